"""A mock of an OpenAI-compatible streaming server whose throughput is known: the seed of an emulator of PP serving.

With n requests in flight every request gets its next token after

    step(n) = itl * (1 + (n / n_best)^2) / eta            eta = balance * (1 - s*log2(pp))

the first token included, so a closed loop of C equal requests yields ``x(C) = C / step(C)`` tok/s, which is largest at
``C = n_best`` and exactly proportional to eta. Tokens have absolute deadlines, so sleeping late does not add up. There is no
model behind it: a token is one ASCII letter, a prompt has as many tokens as bytes, every completion is streamed. It listens
on loopback only and ends with the process that started it. Its first line on stdout is its address.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import math
import os
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

HOST = "127.0.0.1"  # nothing here is meant for a network
MAX_BODY = 2**20  # bytes of one request


@dataclass(frozen=True)
class Physics:
    """Timing of the server; ``itl_ms`` is the step of an empty TP=G/PP=1 server."""

    pp: int = 1
    s: float = 0.0
    balance: float = 1.0
    itl_ms: float = 30.0
    best_concurrency: float = 5.0

    @property
    def efficiency(self) -> float:
        """Throughput against TP=G/PP=1 [1]."""
        return self.balance * (1.0 - self.s * math.log2(self.pp))

    def step_s(self, in_flight: int) -> float:
        """Time to the next token of every request [s]."""
        return self.itl_ms / 1000.0 * (1.0 + (in_flight / self.best_concurrency) ** 2) / self.efficiency


@dataclass
class MockServer:
    """The engine's state and its HTTP routes."""

    physics: Physics
    model: str = "Qwen/Qwen3-8B"
    running: int = 0
    totals: Counter[str] = field(default_factory=Counter)

    async def start(self, port: int = 0) -> asyncio.Server:
        """Listen on loopback; port 0 takes a free one."""
        return await asyncio.start_server(self._connection, HOST, port)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in head[1:] if line)}
                length = int(headers.get("content-length", "0"))
                if length > MAX_BODY:
                    break
                body = await reader.readexactly(length)
                method, path = head[0].split(" ")[:2]
                await self._route(method, path.partition("?")[0], body, writer)
        writer.close()

    async def _route(self, method: str, path: str, body: bytes, writer: asyncio.StreamWriter) -> None:
        if (method, path) == ("POST", "/v1/chat/completions"):
            await self._chat(json.loads(body), writer)
            return
        status, kind, text = "200 OK", "application/json", ""
        if path == "/v1/models":
            text = json.dumps({"object": "list", "data": [{"id": self.model, "object": "model", "owned_by": "mock"}]})
        elif path == "/metrics":
            kind, text = "text/plain; version=0.0.4; charset=utf-8", self.metrics()
        elif path != "/health":
            status = "404 Not Found"
        writer.write(_head(status, kind, f"Content-Length: {len(text)}") + (b"" if method == "HEAD" else text.encode()))
        await writer.drain()

    async def _chat(self, ask: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        wanted = self.tokens(ask)
        prompt = sum(len(_text(m.get("content")).encode()) for m in ask.get("messages", ()))
        usage = {"prompt_tokens": prompt, "completion_tokens": wanted, "total_tokens": prompt + wanted}
        frame = {"id": "mock", "object": "chat.completion.chunk", "created": int(time.time()), "model": self.model}
        writer.write(_head("200 OK", "text/event-stream", "Transfer-Encoding: chunked"))
        self.running += 1
        self.totals["prompt_tokens"] += prompt
        try:
            due = time.perf_counter()
            for i in range(wanted):
                due += self.physics.step_s(self.running)
                await asyncio.sleep(due - time.perf_counter())
                delta = {"content": "abcdefghijklmnopqrstuvwxyz"[i % 26]} | ({} if i else {"role": "assistant"})
                end = "length" if i == wanted - 1 else None
                _event(writer, frame | {"choices": [{"index": 0, "delta": delta, "finish_reason": end}]})
                await writer.drain()
                self.totals["generation_tokens"] += 1
        finally:
            self.running -= 1
        self.totals["request_success"] += 1
        _event(writer, frame | {"choices": [], "usage": usage})
        _event(writer, None)
        await writer.drain()

    def tokens(self, ask: dict[str, Any]) -> int:
        """Tokens to generate: all that are allowed under ``ignore_eos``, else at least ``min_tokens`` of them."""
        most = int(ask.get("max_completion_tokens") or ask.get("max_tokens") or 16)
        least = int(ask.get("min_tokens") or 0)
        return most if ask.get("ignore_eos") else max(least, most // 2, 1)  # an end of sequence, half way

    def metrics(self) -> str:
        """State in vLLM's names, as Prometheus text."""
        label = f'{{model_name="{self.model}",engine="0"}}'
        lines = ["# TYPE vllm:num_requests_running gauge", f"vllm:num_requests_running{label} {self.running}"]
        for name in ("prompt_tokens", "generation_tokens", "request_success"):
            value = float(self.totals[name])
            lines += [f"# TYPE vllm:{name}_total counter", f"vllm:{name}_total{label} {value}"]
        return "\n".join(lines) + "\n"


def _text(content: object) -> str:
    """The text of a message: a string, or a list of parts."""
    parts = content if isinstance(content, list) else [{"text": content}]
    return "".join(str(p.get("text") or "") for p in parts)


def _event(writer: asyncio.StreamWriter, document: dict[str, Any] | None) -> None:
    """One server-sent event as one HTTP chunk; None ends the stream."""
    data = b"data: " + (b"[DONE]" if document is None else json.dumps(document).encode()) + b"\n\n"
    writer.write(b"%x\r\n%s\r\n" % (len(data), data) + (b"0\r\n\r\n" if document is None else b""))


def _head(status: str, kind: str, framing: str) -> bytes:
    """Status line and headers of an answer."""
    return f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\n{framing}\r\n\r\n".encode()


async def _serve_until_orphaned(server: MockServer, port: int, parent: int) -> None:
    listening = await server.start(port)
    sys.stdout.write(f"http://{HOST}:{listening.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    while os.getppid() == parent:
        await asyncio.sleep(0.2)


def main() -> None:
    """Serve until the parent process is gone."""
    parent = os.getppid()
    options = argparse.ArgumentParser(description="A mock serving engine with a known throughput, on loopback only.")
    options.add_argument("--port", type=int, default=0, help="0 takes a free one")
    options.add_argument("--pp", type=int, default=1, help="pipeline stages")
    options.add_argument("--s", type=float, default=0.0, help="the truth in 1 - s*log2(pp)")
    options.add_argument("--balance", type=float, default=1.0, help="balance factor of the stages")
    options.add_argument("--itl-ms", type=float, default=30.0, help="step of an empty TP=G/PP=1 server")
    options.add_argument("--best-concurrency", type=float, default=5.0, help="where throughput peaks")
    given = options.parse_args()
    physics = Physics(given.pp, given.s, given.balance, given.itl_ms, given.best_concurrency)
    if not 0 < physics.efficiency <= 1:
        options.error(f"an efficiency of {physics.efficiency:g} is not between 0 and 1")
    asyncio.run(_serve_until_orphaned(MockServer(physics), given.port, parent))


if __name__ == "__main__":
    main()
