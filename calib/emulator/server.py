"""An OpenAI-compatible streaming server around an emulated engine, on loopback only.

``python -m calib.emulator.server --spec JSON`` prints its address as its first line and serves ``/v1/chat/completions`` (usage
in the last chunk), ``/v1/models``, ``/metrics`` in the names of its backend, and ``/health``. There is no model behind it: a
token is one ASCII letter, a prompt has as many tokens as bytes. It ends with the process that started it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from aiohttp import web

from calib.emulator.engine import Engine
from calib.emulator.metrics import State, prometheus_text
from calib.emulator.physics import EngineSpec
from calib.emulator.realtime import RealTime
from calib.emulator.supervise import end_with_parent

HOST = "127.0.0.1"  # nothing here is meant for a network
MAX_BODY = 2**20  # bytes of one request
MOST_TOKENS = 2**20
LETTERS = "abcdefghijklmnopqrstuvwxyz"


class EngineServer:
    """The HTTP routes of one engine; ``slowdown`` seconds pass for each of the engine's own."""

    def __init__(self, spec: EngineSpec, slowdown: float = 1.0) -> None:
        self.spec, self.slowdown = spec, slowdown
        self._clock: RealTime | None = None

    @property
    def clock(self) -> RealTime:
        """The running engine."""
        if self._clock is None:
            self._clock = RealTime(Engine(self.spec), self.slowdown)
        return self._clock

    def app(self) -> web.Application:
        """The application, to be run by `start` or a test."""
        app = web.Application(client_max_size=MAX_BODY)
        app.add_routes(
            [
                web.post("/v1/chat/completions", self._chat),
                web.get("/v1/models", self._models),
                web.get("/metrics", self._metrics),
                web.get("/health", self._health),
            ]
        )
        app.cleanup_ctx.append(self._engine)
        return app

    async def start(self, port: int = 0) -> web.AppRunner:
        """Listen on loopback; port 0 takes a free one, ``runner.addresses`` says which."""
        runner = web.AppRunner(self.app(), access_log=None, handler_cancellation=True)
        await runner.setup()
        await web.TCPSite(runner, HOST, port).start()
        return runner

    async def _engine(self, _: web.Application) -> AsyncIterator[None]:
        task = asyncio.create_task(self.clock.run())
        yield
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response()

    async def _models(self, _: web.Request) -> web.Response:
        model = {"id": self.spec.model.name, "object": "model", "owned_by": "calib-emulator"}
        return web.json_response({"object": "list", "data": [model]})

    async def _metrics(self, _: web.Request) -> web.Response:
        text = prometheus_text(self.spec, State.of(self.clock.engine))
        return web.Response(text=text, headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        try:
            ask = json.loads(await request.text())
            prompt, wanted = prompt_tokens(ask), output_tokens(ask)
        except (ValueError, TypeError, AttributeError) as error:
            return web.json_response({"error": {"message": str(error), "type": "invalid_request_error"}}, status=400)
        frame = {"id": "emulated", "created": int(time.time()), "model": self.spec.model.name}
        if ask.get("stream"):
            return await self._stream(request, frame, prompt, wanted)
        stream = self.clock.tokens(prompt_tokens=prompt, output_tokens=wanted)
        text = "".join([LETTERS[token.index % 26] async for token in stream])
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "length"}
        return web.json_response(
            frame | {"object": "chat.completion", "choices": [choice], "usage": _usage(prompt, len(text))}
        )

    async def _stream(
        self, request: web.Request, frame: dict[str, Any], prompt: int, wanted: int
    ) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
        await answer.prepare(request)
        frame |= {"object": "chat.completion.chunk"}
        count = 0
        tokens = self.clock.tokens(prompt_tokens=prompt, output_tokens=wanted)
        async with contextlib.aclosing(tokens):
            async for token in tokens:
                delta = {"content": LETTERS[token.index % 26]} | ({} if token.index else {"role": "assistant"})
                choice = {"index": 0, "delta": delta, "finish_reason": "length" if token.last else None}
                await answer.write(_event(frame | {"choices": [choice]}))
                count += 1
        await answer.write(_event(frame | {"choices": [], "usage": _usage(prompt, count)}) + b"data: [DONE]\n\n")
        await answer.write_eof()
        return answer


def prompt_tokens(ask: dict[str, Any]) -> int:
    """Tokens of the prompt: the bytes of all messages."""
    return max(1, sum(len(_text(m.get("content")).encode()) for m in ask.get("messages", ())))


def output_tokens(ask: dict[str, Any]) -> int:
    """Tokens to generate: all that are allowed under ``ignore_eos``, else at least ``min_tokens`` of them.

    Raises
    ------
    ValueError
        Not between 1 and `MOST_TOKENS`.
    """
    most = int(ask.get("max_completion_tokens") or ask.get("max_tokens") or 16)
    least = int(ask.get("min_tokens") or 0)
    tokens = most if ask.get("ignore_eos") else max(least, most // 2, 1)  # an end of sequence, half way
    if most < 1 or not 1 <= tokens <= MOST_TOKENS:
        raise ValueError(f"max_tokens must be between 1 and {MOST_TOKENS}")
    return tokens


def _text(content: object) -> str:
    """The text of a message: a string, or a list of parts."""
    parts = content if isinstance(content, list) else [{"text": content}]
    return "".join(str(p.get("text") or "") for p in parts)


def _usage(prompt: int, completion: int) -> dict[str, int]:
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def _event(document: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(document, separators=(",", ":")).encode() + b"\n\n"


async def _serve(server: EngineServer, port: int) -> None:
    runner = await server.start(port)
    host, listening = runner.addresses[0][:2]
    sys.stdout.write(f"http://{host}:{listening}\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


def main() -> None:
    """Serve until the parent process is gone."""
    parent = os.getppid()
    options = argparse.ArgumentParser(description="An emulated serving engine with known physics, on loopback only.")
    options.add_argument("--port", type=int, default=0, help="0 takes a free one")
    options.add_argument("--spec", default="{}", help="the engine as JSON, see calib.emulator.physics.EngineSpec")
    options.add_argument("--slowdown", type=float, default=1.0, help="seconds that pass for each of the engine's")
    given = options.parse_args()
    spec = msgspec.json.decode(given.spec, type=EngineSpec)
    if not given.slowdown > 0:
        options.error("--slowdown must be positive")
    end_with_parent(parent)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(EngineServer(spec, given.slowdown), given.port))


if __name__ == "__main__":
    main()
