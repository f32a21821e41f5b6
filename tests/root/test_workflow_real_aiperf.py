"""A campaign that real aiperf wrote, against emulated engines whose truth is known."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
from support.paths import TESTS

from calib import decompose, load_campaign
from calib.emulator.closed_loop import output_tokens_per_s, serve
from calib.emulator.demo_folder import cells
from calib.emulator.scenarios import SCENARIOS

CAMPAIGN = TESTS / "data" / "emulated-aiperf"
TRUTH = 0.2
SLOWDOWN = 2.0
TOPOLOGIES = {(8, 1), (4, 2), (2, 4), (1, 8)}
CONCURRENCIES = (8, 16, 24)
SCENARIO = replace(SCENARIOS["clean-log2"], knee=14.0)  # as it was measured, see tests/support/README.md


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize("matching", ["peak", "matched"])
def test_the_main_job_recovers_the_truth_from_the_unchanged_folder(cli, tmp_path, matching):
    before = contents(CAMPAIGN)
    done = cli("run", CAMPAIGN, "--matching", matching, "--json", "--out", tmp_path)
    assert (done.code, done.err) == (0, "")
    found = json.loads(done.out)
    fits = [c for c in found["coefficients"] if c["kind"] == "model"]
    assert [(c["model"], c["backend"], c["verdict"]) for c in fits] == [("emulated-36l", "vllm", "FIT")]
    assert fits[0]["s"] == pytest.approx(TRUTH, abs=0.02)
    # True of a client and a server that share two cores.
    assert {f["rule"] for f in found["findings"]} <= {"client_bound", "no_microbatching"}
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


def test_throughputs_are_those_of_the_engine_in_virtual_time():
    """Over HTTP, within 2 % where requests are long; at lower load the client's own cost comes in, up to 4 %."""
    runs = load_campaign(CAMPAIGN).runs.set_index(["tp", "pp", "concurrency"])["output_tokens_per_s"]
    for cell in cells(SCENARIO, waves=10, concurrencies=CONCURRENCIES):
        c = cell.load.concurrency
        ratio = SLOWDOWN * runs[(cell.spec.tp, cell.spec.pp, c)] / output_tokens_per_s(serve(cell.spec, cell.load)[1])
        assert 0.98 <= ratio <= 1.02 if c >= 16 else 0.96 <= ratio <= 1.0, cell.name


def test_the_efficiencies_at_the_peak_are_balance_times_the_law():
    """Within 3 %: each run's pace has a noise of 0.8 %, the baseline's too."""
    for row in decompose(load_campaign(CAMPAIGN), matching="peak").table.to_dict("records"):
        assert row["efficiency"] == pytest.approx(row["balance_factor"] * (1 - TRUTH * math.log2(row["pp"])), rel=0.03)


def test_the_campaign_holds_no_absolute_path():
    for name, data in contents(CAMPAIGN).items():
        assert re.findall(r"(?<![\w.:/])/\w[^\s\"]*", data.decode("utf-8")) == [], name
