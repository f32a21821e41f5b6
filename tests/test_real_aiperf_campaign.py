"""A campaign that real aiperf wrote, against a server whose truth is known; and that server itself."""

from __future__ import annotations

import asyncio
import importlib.util
import ipaddress
import json
import math
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import ModuleType

import pytest

from calib import decompose, load_campaign

TESTS = Path(__file__).parent
CAMPAIGN = TESTS / "data" / "qwen3-8b-aiperf"
SERVER = TESTS / "tools" / "mock_server.py"
TRUTH = 0.2
TOPOLOGIES = {(8, 1), (4, 2), (2, 4), (1, 8)}
CONCURRENCIES = (2, 4, 8)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize("matching", ["peak", "matched"])
def test_the_main_job_recovers_the_truth_from_the_unchanged_folder(cli, tmp_path, matching):
    before = contents(CAMPAIGN)
    done = cli("run", CAMPAIGN, "--matching", matching, "--json", "--out", tmp_path)
    assert (done.code, done.err) == (0, "")
    found = json.loads(done.out)
    fits = [c for c in found["coefficients"] if c["kind"] == "model"]
    assert [(c["model"], c["backend"], c["verdict"]) for c in fits] == [("Qwen/Qwen3-8B", "vllm", "FIT")]
    assert fits[0]["s"] == pytest.approx(TRUTH, abs=0.02)
    # True of a client and a mock server that share two cores, and of a server without a prefix cache.
    assert {f["rule"] for f in found["findings"]} <= {"client_bound", "prefix_cache", "no_microbatching"}
    assert "REJECT" not in {f["verdict"] for f in found["findings"]}
    assert contents(CAMPAIGN) == before


def test_the_main_job_prints_its_tables(cli, tmp_path):
    done = cli("run", CAMPAIGN, "--out", tmp_path)
    assert (done.code, done.err) == (0, "")
    assert "FIT" in done.out


def test_every_run_is_read_and_none_is_set_aside():
    runs = load_campaign(CAMPAIGN).runs
    rows = runs[["tp", "pp", "concurrency"]].itertuples(index=False, name=None)
    assert sorted(rows) == sorted((tp, pp, c) for tp, pp in TOPOLOGIES for c in CONCURRENCIES)
    assert "REJECT" not in set(runs["verdict"])
    assert set(runs["tool"]) == {"aiperf"}
    assert set(runs["isl"]) == {64}
    assert set(runs["osl"]) == {32}


def test_throughputs_are_those_of_the_server():
    """Within 2 %: what the client costs between two requests of one slot."""
    physics = server_module().Physics
    campaign = load_campaign(CAMPAIGN)
    for row in campaign.runs[campaign.runs["pp"] == 1].to_dict("records"):
        c = row["concurrency"]
        assert row["output_tokens_per_s"] == pytest.approx(c / physics().step_s(c), rel=0.02)
    for row in decompose(campaign, matching="matched").table.to_dict("records"):
        truth = row["balance_factor"] * (1 - TRUTH * math.log2(row["pp"]))
        assert row["efficiency"] == pytest.approx(truth, rel=0.02)


def test_the_campaign_holds_no_absolute_path():
    for name, data in contents(CAMPAIGN).items():
        assert re.findall(r"(?<![\w.:/])/\w[^\s\"]*", data.decode("utf-8")) == [], name


def server_module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("mock_server", SERVER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_the_server_listens_on_loopback_only():
    module = server_module()

    async def addresses() -> list[str]:
        async with await module.MockServer(module.Physics()).start() as server:
            return [s.getsockname()[0] for s in server.sockets]

    found = asyncio.run(addresses())
    assert found
    assert all(ipaddress.ip_address(a).is_loopback for a in found)
    helped = subprocess.run([sys.executable, str(SERVER), "--help"], capture_output=True, text=True, check=True)
    assert "--host" not in helped.stdout


def get(url: str, body: object = None) -> str:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Connection": "close"})
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=10) as answer:
        return answer.read().decode()


@pytest.fixture
def url():
    with subprocess.Popen([sys.executable, str(SERVER), "--itl-ms", "1"], stdout=subprocess.PIPE, text=True) as server:
        yield server.stdout.readline().strip()
        server.terminate()


def test_the_server_streams_one_token_a_chunk_and_counts_them(url):
    ask = {"model": "Qwen/Qwen3-8B", "stream": True, "messages": [{"role": "user", "content": "abc"}], "max_tokens": 5}
    for extra, tokens in (({"ignore_eos": True}, 5), ({"min_tokens": 4}, 4), ({}, 2)):
        lines = [x for x in get(f"{url}/v1/chat/completions", ask | extra).split("\n\n") if x]
        assert lines[-1] == "data: [DONE]"
        chunks = [json.loads(x.removeprefix("data: ")) for x in lines[:-1]]
        assert [len(c["choices"]) for c in chunks] == [1] * tokens + [0]
        assert chunks[-1]["usage"] == {"prompt_tokens": 3, "completion_tokens": tokens, "total_tokens": 3 + tokens}
    assert 'vllm:generation_tokens_total{model_name="Qwen/Qwen3-8B",engine="0"} 11.0\n' in get(f"{url}/metrics")
    assert json.loads(get(f"{url}/v1/models"))["data"][0]["id"] == "Qwen/Qwen3-8B"
    with pytest.raises(urllib.error.HTTPError, match="404"):
        get(f"{url}/nothing")


def test_the_server_ends_with_its_parent():
    start = (
        "import subprocess, sys\n"
        f"server = subprocess.Popen([sys.executable, {str(SERVER)!r}], stdout=subprocess.PIPE, text=True)\n"
        "print(server.stdout.readline().strip())\n"
    )
    done = subprocess.run([sys.executable, "-c", start], capture_output=True, text=True, check=True, timeout=30)
    limit = time.monotonic() + 10
    with pytest.raises(urllib.error.URLError, match="refused"):  # noqa: PT012
        while time.monotonic() < limit:
            get(f"{done.stdout.strip()}/health")
            time.sleep(0.1)
