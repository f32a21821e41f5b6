"""Result files of virtual runs are laid out as aiperf's own, and say what the clients saw; and the client's set-up."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from support.paths import DATA

from calib.emulator.client import READY, ClientError, default_venv, ensure_aiperf
from calib.emulator.closed_loop import Load, output_tokens_per_s, serve
from calib.emulator.law import Log2Law
from calib.emulator.physics import EngineSpec
from calib.emulator.result_files import result_files
from calib.emulator.tokenizer import byte_letters, write_tokenizer
from calib.measure.readers.discover import read_path

REAL = DATA / "emulated-aiperf" / "tp2pp4" / "c16"
SPEC = EngineSpec(tp=2, pp=4, law=Log2Law(0.2), early_end=0.5)
LOAD = Load(16, 160, warmup=16)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    for name, data in result_files(SPEC, LOAD, *serve(SPEC, LOAD)).items():
        (tmp_path / name).write_bytes(data)
    return tmp_path


def test_every_metric_is_one_that_aiperf_writes_in_its_unit(run):
    virtual, real = (json.loads((f / "profile_export_aiperf.json").read_text()) for f in (run, REAL))
    blocks = {k: v["unit"] for k, v in virtual.items() if isinstance(v, dict) and "unit" in v}
    only_with_mismatches = {"osl_mismatch_count"}
    assert {k: real[k]["unit"] for k in blocks.keys() - only_with_mismatches} == {
        k: u for k, u in blocks.items() if k not in only_with_mismatches
    }
    for key in ("models", "datasets", "phases", "endpoint"):
        assert type(virtual["input_config"][key]) is type(real["input_config"][key])


def test_a_line_of_requests_is_laid_out_as_aiperfs(run):
    for line, real in zip(*((f / "profile_export.jsonl").read_text().splitlines() for f in (run, REAL)), strict=False):
        a, b = json.loads(line), json.loads(real)
        assert set(a["metadata"]) <= set(b["metadata"])
        shared = a["metrics"].keys() & b["metrics"].keys()
        assert len(shared) >= 4
        assert all(a["metrics"][k]["unit"] == b["metrics"][k]["unit"] for k in shared)


def test_calib_reads_back_what_the_clients_saw(run):
    (found,) = read_path(run, root=run)
    _, served = serve(SPEC, LOAD)
    ttft = [s.first_ms - s.start_ms for s in served]
    itl = [(s.end_ms - s.first_ms) / (s.tokens - 1) for s in served if s.tokens > 1]
    expected = {
        "output_tokens_per_s": output_tokens_per_s(served), "ttft_p50_ms": np.median(ttft), "itl_p50_ms": np.median(itl),
        "tpot_mean_ms": np.mean(itl), "completed_requests": 160, "failed_requests": 0, "isl": 64, "osl": 32,
        "concurrency": 16,
    }  # fmt: skip
    assert {k: found.stated[k] for k in expected} == pytest.approx(expected)
    assert found.stated["tool_version"] == "0.13.0+virtual"
    assert found.facts["measured_osl"] == pytest.approx(np.mean([s.tokens for s in served]))
    assert 0 < found.facts["effective_concurrency"] <= 16


def test_the_letters_of_bytes_are_those_of_gpt_2():
    letters = byte_letters()
    assert len(set(letters)) == 256
    assert (letters[:5], letters[-5:]) == (list('!"#$%'), list("ĿŀŁłŃ"))
    assert "Ġ" in letters  # the space


def test_a_tokenizer_folder_has_what_a_loader_looks_for(tmp_path):
    write_tokenizer(tmp_path / "tokenizer")
    document = json.loads((tmp_path / "tokenizer" / "tokenizer.json").read_text())
    assert document["model"]["vocab"]["a"] == 64
    assert document["added_tokens"][0]["id"] == len(document["model"]["vocab"]) == 256
    config = json.loads((tmp_path / "tokenizer" / "tokenizer_config.json").read_text())
    assert config["eos_token"] == document["added_tokens"][0]["content"]


def test_an_environment_that_holds_aiperf_is_taken_as_it_is(tmp_path):
    command = tmp_path / "bin" / "aiperf"
    command.parent.mkdir()
    command.touch()
    said = []
    assert ensure_aiperf(tmp_path, said.append) == command
    assert said == []


def test_where_aiperf_cannot_be_installed_it_is_said_why(tmp_path, monkeypatch):
    """No index: what a machine without a network looks like to pip. It is not taken for ready later on."""
    for name, value in (("PIP_NO_INDEX", "1"), ("PIP_CONFIG_FILE", "/dev/null"), ("PIP_FIND_LINKS", str(tmp_path))):
        monkeypatch.setenv(name, value)
    said = []
    with pytest.raises(ClientError, match=r"cannot be installed \(ERROR: .*No matching distribution.*--virtual"):
        ensure_aiperf(tmp_path / "venv", said.append)
    assert len(said) == 1
    assert "setting up aiperf 0.13.0" in said[0]
    assert not (tmp_path / "venv" / READY).exists()


def test_the_environment_is_kept_in_the_users_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_venv().parent == tmp_path / "calib"


def test_without_the_extra_the_demo_says_what_to_do(cli, tmp_path, monkeypatch):
    command = tmp_path / "venv" / "bin" / "aiperf"
    command.parent.mkdir(parents=True)
    command.touch()
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    done = cli("demo", "--aiperf-venv", tmp_path / "venv", "--out", tmp_path / "out")
    assert done.code == 2
    assert "needs the extra 'demo'; pip install 'llm-calib[demo]', or use --virtual" in done.err
