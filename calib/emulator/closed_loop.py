"""A closed loop of C clients in virtual time: each sends its next request the moment the last one has ended."""

from __future__ import annotations

from dataclasses import dataclass

from calib.emulator.engine import Engine
from calib.emulator.physics import EngineSpec


@dataclass(frozen=True)
class Load:
    """What the clients ask for: C requests in flight, ``requests`` measured ones after ``warmup`` ones, lengths in tokens."""

    concurrency: int
    requests: int
    isl: int = 64
    osl: int = 32
    warmup: int = 0


@dataclass(slots=True)
class Served:
    """One request as the client saw it; times in ms of the engine's clock, ``tokens`` received."""

    number: int
    start_ms: float
    first_ms: float = 0.0
    end_ms: float = 0.0
    tokens: int = 0


def serve(spec: EngineSpec, load: Load) -> tuple[list[Served], list[Served]]:
    """Warm-up and measured requests of one engine under one load, in order of completion.

    As in aiperf the warm-up has ended before the measurement begins.
    """
    engine = Engine(spec)
    warmup = _closed_loop(engine, load, load.warmup, 0, 0.0)
    start = warmup[-1].end_ms if warmup else 0.0
    return warmup, _closed_loop(engine, load, load.requests, load.warmup, start)


def output_tokens_per_s(served: list[Served]) -> float:
    """Tokens over the time from the first start to the last end [tok/s], as aiperf's ``benchmark_duration`` has it."""
    duration = max(s.end_ms for s in served) - min(s.start_ms for s in served)
    return 1000.0 * sum(s.tokens for s in served) / duration


def _closed_loop(engine: Engine, load: Load, requests: int, first: int, now: float) -> list[Served]:
    open_, done, sent = {}, [], 0

    def send(at: float) -> None:
        nonlocal sent
        number = first + sent
        engine.submit(number, prompt_tokens=load.isl, output_tokens=load.osl, now=at)
        open_[number] = Served(number, at)
        sent += 1

    while sent < min(load.concurrency, requests):
        send(now)
    while open_:
        now, tokens = engine.advance()
        for token in tokens:
            served = open_[token.request]
            served.tokens += 1
            if token.index == 0:
                served.first_ms = now
            if token.last:
                served.end_ms = now
                done.append(open_.pop(token.request))
                if sent < requests:
                    send(now)
    return done
