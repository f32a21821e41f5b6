"""Continuous batching over the stages of a pipeline, event by event. It knows no clock: times are given to it.

``pp`` microbatches share the requests, a new one joining the smallest, so ``min(pp, C)`` of them are in flight with at most
``ceil(C/pp)`` requests each. A microbatch whose last step has left the last stage waits for stage 0, first come first
served. Stages keep the order and hold a microbatch until it is handed on, so a step's whole way is known when stage 0 takes it:

    depart[i] = max(depart[i-1], free[i]) + busy[i]        free[i] = when stage i let go of the step before

(the recursion of single-server queues in series, Glynn and Whitt, Ann. Appl. Probab. 1, 1991). Only two events a step are
left: taken by stage 0, and done. Batching by iteration is that of Orca (OSDI 2022), chunked prefill that of Sarathi-Serve
(OSDI 2024): prompts are prefilled in chunks within the token budget of a step, in the order of arrival; the step that ends a
prompt gives the first token, each further one a token.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from dataclasses import dataclass, field

import numpy as np

from calib.emulator.physics import EngineSpec, StageTimes
from calib.errors import UsageError


@dataclass(slots=True, eq=False)
class Request:
    """A request in the engine [tokens]; ``wanted`` is None until the engine decides about an early end."""

    number: int
    prompt: int
    wanted: int
    prefilled: int = 0
    generated: int = 0
    slot: int = -1
    cancelled: bool = False


@dataclass(frozen=True, slots=True)
class Token:
    """One generated token; ``index`` from 0, ``last`` where it ends the output."""

    request: int
    index: int
    last: bool


@dataclass(slots=True)
class _Slot:
    """A microbatch: its requests, and what its step in flight prefills of each [tokens]."""

    members: list[Request] = field(default_factory=list)
    in_flight: list[tuple[Request, int]] | None = None
    queued: bool = False


class Engine:
    """The engine. Times are in ms of its own clock and may not go back.

    Submit with `submit`, ask `next_time` when something happens next, and let it happen with `advance`.
    """

    def __init__(self, spec: EngineSpec) -> None:
        self.spec = spec
        self.running = 0
        self.prompt_tokens = self.generated_tokens = self.finished = 0
        self._times = StageTimes(spec)
        self._rng = np.random.default_rng([spec.seed, spec.tp, spec.pp])
        self._free = [0.0] * spec.pp
        self._slots = [_Slot() for _ in range(spec.pp)]
        self._ready: deque[int] = deque()
        self._waiting: deque[Request] = deque()
        self._requests: dict[int, Request] = {}
        self._events: list[tuple[float, int, int]] = []  # time, order, slot that is done or -1: stage 0 takes the next
        self._order = 0
        self._start_planned = False
        self._sigma = math.sqrt(math.log1p(spec.jitter**2))
        self._pace = math.exp(spec.run_noise * self._rng.standard_normal()) if spec.run_noise else 1.0

    @property
    def waiting(self) -> int:
        """Requests that wait for room in the engine."""
        return len(self._waiting)

    @property
    def next_time(self) -> float | None:
        """When the next event is due [ms]; None while there is nothing to do."""
        return self._events[0][0] if self._events else None

    def submit(self, number: int, *, prompt_tokens: int, output_tokens: int, now: float) -> int:
        """Take a request; the output tokens it will get, fewer than asked where its output ends early.

        Raises
        ------
        UsageError
            No tokens are asked for, or the number is in use.
        """
        if prompt_tokens < 1 or output_tokens < 1 or number in self._requests:
            raise UsageError("needs a new number, a prompt and an output", field="request", value=number)
        wanted = output_tokens
        if self.spec.early_end and self._rng.random() < self.spec.early_end:
            wanted = int(self._rng.integers(1, output_tokens + 1))
        request = self._requests[number] = Request(number, prompt_tokens, wanted)
        self.prompt_tokens += prompt_tokens
        if self.running < self.spec.max_num_seqs:
            self._admit(request, now)
        else:
            self._waiting.append(request)
        return wanted

    def cancel(self, number: int, now: float) -> None:
        """Forget a request whose client has gone."""
        request = self._requests.pop(number, None)
        if request is None:
            return
        request.cancelled = True
        if request.slot < 0:
            self._waiting.remove(request)
            return
        self._slots[request.slot].members.remove(request)
        self._leave(now)

    def advance(self) -> tuple[float, list[Token]]:
        """Let the next event happen: its time [ms] and the tokens it gave. There must be one."""
        now, _, slot = heapq.heappop(self._events)
        if slot < 0:
            self._start_planned = False
            self._start(now)
            return now, []
        return now, self._finish(slot, now)

    def _admit(self, request: Request, now: float) -> None:
        sizes = [len(s.members) for s in self._slots]
        request.slot = sizes.index(min(sizes))
        self._slots[request.slot].members.append(request)
        self.running += 1
        self._queue(request.slot, now)

    def _leave(self, now: float) -> None:
        self.running -= 1
        if self._waiting and self.running < self.spec.max_num_seqs:
            self._admit(self._waiting.popleft(), now)

    def _queue(self, index: int, now: float) -> None:
        """Line up a microbatch that has work and is not under way."""
        slot = self._slots[index]
        if slot.members and slot.in_flight is None and not slot.queued:
            slot.queued = True
            self._ready.append(index)
            self._plan_start(now)

    def _plan_start(self, now: float) -> None:
        if self._ready and not self._start_planned:
            self._start_planned = True
            self._push(max(now, self._free[0]), -1)

    def _push(self, time: float, slot: int) -> None:
        self._order += 1
        heapq.heappush(self._events, (time, self._order, slot))

    def _start(self, now: float) -> None:
        """Stage 0 takes the next microbatch; the times at which it leaves every stage follow."""
        index = self._ready.popleft()
        slot = self._slots[index]
        slot.queued = False
        if slot.members:
            slot.in_flight, prompt = self._compose(slot.members)
            busy = self._times.busy_ms(len(slot.in_flight), prompt, self.running)
            factor, free, time = self._pace, self._free, now
            if self._sigma:
                factor *= math.exp(self._sigma * self._rng.standard_normal() - self._sigma**2 / 2)
            for i, ms in enumerate(busy):
                time = (time if time > free[i] else free[i]) + ms * factor
                free[i] = time
            self._push(time, index)
        self._plan_start(now)

    def _compose(self, members: list[Request]) -> tuple[list[tuple[Request, int]], int]:
        """Which requests take part in the step, and the prompt tokens of each, within the budget."""
        left, batch = self.spec.chunk_tokens, []
        for request in members:
            chunk = min(request.prompt - request.prefilled, left)
            if chunk or request.prefilled == request.prompt:
                batch.append((request, chunk))
                left -= chunk
        return batch, self.spec.chunk_tokens - left

    def _finish(self, index: int, now: float) -> list[Token]:
        """A step has left the last stage: tokens, ends of outputs, and the microbatch lines up again."""
        slot = self._slots[index]
        batch, slot.in_flight = slot.in_flight or [], None
        tokens = []
        for request, chunk in batch:
            request.prefilled += chunk
            if request.cancelled or request.prefilled < request.prompt:
                continue
            request.generated += 1
            last = request.generated >= request.wanted
            tokens.append(Token(request.number, request.generated - 1, last))
            if last:
                slot.members.remove(request)
                del self._requests[request.number]
                self.finished += 1
                self._leave(now)
        self.generated_tokens += len(tokens)
        self._queue(index, now)
        return tokens
