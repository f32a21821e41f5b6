"""The engine on the wall clock, and its HTTP server on loopback."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable

import msgspec
import pytest

from calib.emulator.closed_loop import Load, Served, output_tokens_per_s, serve
from calib.emulator.engine import Engine
from calib.emulator.law import Log2Law
from calib.emulator.metrics import State, prometheus_text, scrape
from calib.emulator.physics import EmulatedModel, EngineSpec
from calib.emulator.realtime import RealTime
from calib.emulator.server import EngineServer
from calib.measure.readers.server_metrics import read_scrape
from calib.names import BACKENDS

QUICK = EngineSpec(model=EmulatedModel(layer_ms=0.02))
SERVER = (sys.executable, "-P", "-m", "calib.emulator.server")


class JumpingLoop(asyncio.SelectorEventLoop):
    """A loop whose clock jumps to the next timer instead of waiting for it."""

    def __init__(self) -> None:
        super().__init__()
        self._jumped = 0.0
        select: Callable[[float], object] = self._selector.select

        def jump(timeout: float | None) -> object:
            assert timeout is not None, "everything waits for something that never comes"
            self._jumped += timeout
            return select(0)

        self._selector.select = jump

    def time(self) -> float:
        return self._jumped


async def closed_loop(spec: EngineSpec, load: Load, slowdown: float) -> list[Served]:
    """Clients that need ``think_ms`` between two requests, on the loop's clock; times in ms of that clock."""
    loop = asyncio.get_running_loop()
    clock, left, served = RealTime(Engine(spec), slowdown), iter(range(load.requests)), []

    async def client(number: int) -> None:
        await asyncio.sleep(number * load.think_ms * slowdown / 1000)
        for request in left:
            one = Served(request, loop.time() * 1000)
            async for token in clock.tokens(prompt_tokens=load.isl, output_tokens=load.osl):
                one.first_ms = one.first_ms or loop.time() * 1000
                one.end_ms, one.tokens = loop.time() * 1000, token.index + 1
            served.append(one)
            await asyncio.sleep(load.think_ms * slowdown / 1000)

    engine = asyncio.create_task(clock.run())
    await asyncio.gather(*(client(number) for number in range(load.concurrency)))
    engine.cancel()
    return served


@pytest.mark.parametrize("pp", [1, 4])
@pytest.mark.parametrize("concurrency", [1, 6])
def test_the_same_engine_runs_on_both_clocks(pp, concurrency):
    """Each request takes on the wall clock what it takes in virtual time, times the slow-down, whatever the client costs."""
    spec, slowdown = EngineSpec(tp=8 // pp, pp=pp, law=Log2Law(0.2)), 3.0
    load = Load(concurrency, 4 * concurrency, osl=8, think_ms=0.7371)
    loop = JumpingLoop()
    try:
        real = loop.run_until_complete(closed_loop(spec, load, slowdown))
    finally:
        loop.close()
    _, virtual = serve(spec, load)
    assert len({round(s.end_ms - s.start_ms, 6) for s in virtual}) > 1 or concurrency == 1
    assert sorted(s.end_ms - s.start_ms for s in real) == pytest.approx(
        sorted(slowdown * (s.end_ms - s.start_ms) for s in virtual), rel=1e-6
    )
    assert output_tokens_per_s(real) * slowdown == pytest.approx(output_tokens_per_s(virtual), rel=1e-6)


def test_a_client_that_goes_away_is_taken_out_of_the_engine():
    async def leave() -> tuple[int, int]:
        clock = RealTime(Engine(QUICK), 1.0)
        engine = asyncio.create_task(clock.run())
        stream = clock.tokens(prompt_tokens=1, output_tokens=1000)
        async for _ in stream:
            break
        before = clock.engine.running
        await stream.aclose()
        engine.cancel()
        return before, clock.engine.running

    assert asyncio.run(leave()) == (1, 0)


def test_the_server_listens_on_loopback_only():
    async def addresses() -> list[str]:
        runner = await EngineServer(QUICK).start()
        try:
            return [address[0] for address in runner.addresses]
        finally:
            await runner.cleanup()

    found = asyncio.run(addresses())
    assert found
    assert all(ipaddress.ip_address(a).is_loopback for a in found)
    helped = subprocess.run([*SERVER, "--help"], capture_output=True, text=True, check=True)
    assert "--host" not in helped.stdout


def get(url: str, body: object = None) -> str:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Connection": "close", "Content-Type": "application/json"})
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=10) as answer:
        return answer.read().decode()


@pytest.fixture
def url():
    command = [*SERVER, "--spec", msgspec.json.encode(QUICK).decode()]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        yield server.stdout.readline().strip()
        server.terminate()


ASK = {"messages": [{"role": "user", "content": "abc"}], "max_tokens": 5}


def test_the_server_streams_one_token_a_chunk_and_counts_them(url):
    for extra, tokens in (({"ignore_eos": True}, 5), ({"min_tokens": 4}, 4), ({}, 2)):
        lines = [x for x in get(f"{url}/v1/chat/completions", ASK | extra | {"stream": True}).split("\n\n") if x]
        assert lines[-1] == "data: [DONE]"
        chunks = [json.loads(x.removeprefix("data: ")) for x in lines[:-1]]
        assert [len(c["choices"]) for c in chunks] == [1] * tokens + [0]
        assert [c["choices"][0]["finish_reason"] for c in chunks[:-1]] == [None] * (tokens - 1) + ["length"]
        assert chunks[-1]["usage"] == {"prompt_tokens": 3, "completion_tokens": tokens, "total_tokens": 3 + tokens}
    assert 'vllm:generation_tokens_total{model_name="emulated-36l",engine="0"} 11.0\n' in get(f"{url}/metrics")
    assert json.loads(get(f"{url}/v1/models"))["data"][0]["id"] == "emulated-36l"
    with pytest.raises(urllib.error.HTTPError, match="404"):
        get(f"{url}/nothing")


def test_the_server_answers_in_one_piece_where_no_stream_is_asked_for(url):
    parts = [{"type": "text", "text": "ab"}, {"type": "text", "text": "c"}]
    ask = {"messages": [{"role": "user", "content": parts}], "max_completion_tokens": 3, "ignore_eos": True}
    answer = json.loads(get(f"{url}/v1/chat/completions", ask))
    assert answer["choices"][0]["message"]["content"] == "abc"
    assert answer["usage"] == {"prompt_tokens": 3, "completion_tokens": 3, "total_tokens": 6}


@pytest.mark.parametrize(
    "wrong", [{"max_tokens": -1}, {"max_tokens": 2**21, "ignore_eos": True}, {"messages": 1}, {"max_tokens": "x"}]
)
def test_a_request_that_cannot_be_is_refused_and_the_server_goes_on(url, wrong):
    with pytest.raises(urllib.error.HTTPError, match="400"):
        get(f"{url}/v1/chat/completions", ASK | wrong)
    assert get(f"{url}/health") == ""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, None])
def test_the_server_ends_with_its_parent(how):
    """Killed, terminated, or just done: a process between us and the server, which is a group of its own."""
    start = (
        "import subprocess, sys, time\n"
        f"server = subprocess.Popen({[*SERVER]!r}, stdout=subprocess.PIPE, text=True, start_new_session=True)\n"
        "print(server.stdout.readline().strip(), flush=True)\n"
        f"time.sleep({60 if how else 0})\n"
    )
    with subprocess.Popen([sys.executable, "-c", start], stdout=subprocess.PIPE, text=True) as parent:
        address = parent.stdout.readline().strip()
        if how:
            assert get(f"{address}/health") == ""
            os.kill(parent.pid, how)
        parent.wait()
    assert refuses(address, within_s=20)


def refuses(address: str, within_s: float) -> bool:
    limit = time.monotonic() + within_s
    while time.monotonic() < limit:
        try:
            get(f"{address}/health")
        except OSError as error:  # a URLError, or a connection that was cut in the middle
            if "refused" in str(error):
                return True
        time.sleep(0.1)
    return False


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_metrics_are_named_as_the_backend_names_them(backend):
    """calib's reader of aiperf's scrape knows the backend, counts its tokens, and sees degrees where they are exported."""
    spec = EngineSpec(backend=backend, tp=2, pp=4)
    state = State(running=3, waiting=1, prompt_tokens=640, generated_tokens=320, finished=10)
    document = {"metrics": scrape(spec, state, "http://127.0.0.1:1"), "summary": {}}
    raw = {k: msgspec.Raw(msgspec.json.encode(v)) for k, v in document.items()}
    found = read_scrape(raw, file="server_metrics_export.json")
    hints = {h.field: h.value for h in found.hints}
    assert hints == {"backend": backend} | ({"tp": 2, "pp": 4, "gpus": 8} if backend == "trtllm" else {})
    assert found.facts["server_generation_tokens"] == 320
    assert found.facts["prefix_cache_hit_rate"] == 0.0
    text = prometheus_text(spec, state)
    assert text.endswith("\n")
    for line in text.splitlines():
        assert line.startswith("# TYPE ") or float(line.rpartition(" ")[2]) >= 0
