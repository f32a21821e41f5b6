"""The engine on the wall clock, slowed down by a stated factor.

Event times are absolute, so waking late does not add up: the engine is where it would be in virtual time.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator

from calib.emulator.engine import Engine, Token

ROUNDING_S = 1e-6  # an event this near is due: a timer can end a rounding error before its time


class RealTime:
    """Drives an engine; ``slowdown`` seconds pass for each of its own."""

    def __init__(self, engine: Engine, slowdown: float) -> None:
        self.engine, self.slowdown = engine, slowdown
        self._loop = asyncio.get_running_loop()
        self._origin = self._loop.time()
        self._wake = asyncio.Event()
        self._outputs: dict[int, asyncio.Queue[Token]] = {}
        self._count = 0

    @property
    def now_ms(self) -> float:
        """The engine's time [ms]."""
        return (self._loop.time() - self._origin) * 1000.0 / self.slowdown

    async def tokens(self, *, prompt_tokens: int, output_tokens: int) -> AsyncGenerator[Token, None]:
        """The tokens of one request as they come; a caller that goes away takes it out of the engine."""
        self._catch_up(-ROUNDING_S)  # what was due before this request must not see it, what is due now may
        number, self._count = self._count, self._count + 1
        output = self._outputs[number] = asyncio.Queue()
        try:
            self.engine.submit(number, prompt_tokens=prompt_tokens, output_tokens=output_tokens, now=self.now_ms)
            self._wake.set()
            while True:
                token = await output.get()
                yield token
                if token.last:
                    return
        finally:
            del self._outputs[number]
            self._catch_up()
            self.engine.cancel(number, self.now_ms)

    async def run(self) -> None:
        """Let events happen when they are due, for ever."""
        while True:
            self._catch_up()
            self._wake.clear()
            due, wait = self.engine.next_time, None
            if due is not None:
                wait = max(0.0, self._at(due) - self._loop.time())
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), wait)

    def _at(self, ms: float) -> float:
        """The loop's time [s] of a time of the engine [ms]."""
        return self._origin + ms * self.slowdown / 1000.0

    def _catch_up(self, late_s: float = ROUNDING_S) -> None:
        now = self._loop.time() + late_s
        while (due := self.engine.next_time) is not None and self._at(due) <= now:
            for token in self.engine.advance()[1]:
                if token.request in self._outputs:
                    self._outputs[token.request].put_nowait(token)
