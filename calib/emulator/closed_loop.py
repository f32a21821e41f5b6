"""A closed loop of C clients in virtual time: each sends its next request when the last one has ended, or a little later."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

from calib.emulator.engine import Engine
from calib.emulator.physics import EngineSpec


@dataclass(frozen=True)
class Load:
    """What the clients ask for: C requests in flight, ``requests`` measured ones after ``warmup`` ones, lengths in tokens.

    ``think_ms`` is what a client takes between two requests, and between its start and that of the next one [ms of the
    engine's clock].
    """

    concurrency: int
    requests: int
    isl: int = 64
    osl: int = 32
    warmup: int = 0
    think_ms: float = 0.0


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
    clients = min(load.concurrency, requests)
    due = [now + i * load.think_ms for i in range(clients)]  # a heap: when the next requests are sent
    open_: dict[int, Served] = {}
    done: list[Served] = []
    sent = 0
    while due or open_:
        if due and (engine.next_time is None or due[0] <= engine.next_time):
            now = heapq.heappop(due)
            engine.submit(first + sent, prompt_tokens=load.isl, output_tokens=load.osl, now=now)
            open_[first + sent] = Served(first + sent, now)
            sent += 1
            continue
        now, tokens = engine.advance()
        for token in tokens:
            served = open_[token.request]
            served.tokens += 1
            if token.index == 0:
                served.first_ms = now
            if token.last:
                served.end_ms = now
                done.append(open_.pop(token.request))
                if sent + len(due) < requests:
                    heapq.heappush(due, now + load.think_ms)
    return done
