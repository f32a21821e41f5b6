"""Campaigns for teaching: calib has to say of each what its truth implies. And `calib demo --virtual`, which makes them."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from calib.emulator.demo import Demo, Progress, run_demo
from calib.emulator.demo_folder import claimed
from calib.emulator.scenarios import DEGREES, SCENARIOS
from calib.measure.campaign.config import ENGINE_FLAGS
from calib.measure.shipped import load_campaign
from calib.workflow import calibrate

NO_WORD_FOR_IT = {"no_microbatching"}  # an INFO that every campaign without a TP=k/PP=1 run on k GPUs gets


def made(folder: Path, name: str = "clean-log2", **given: object) -> Path:
    run_demo(Demo(SCENARIOS[name], folder, virtual=True, **given), show=lambda _: None, say=lambda _: None)  # type: ignore[arg-type]
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize("name", SCENARIOS)
def test_calib_says_of_each_scenario_what_its_truth_implies(name, tmp_path):
    scenario = SCENARIOS[name]
    result = calibrate(made(tmp_path / name, name))
    (fit,) = result.fit.series
    assert fit.verdict == scenario.verdict, fit.reasons
    rules = {f.rule for f in result.findings}
    assert rules - NO_WORD_FOR_IT - {"littles_law"} == scenario.rules
    assert "REJECT" not in {f.verdict for f in result.findings}
    if scenario.truth is not None:
        assert fit.estimate.values[0] == pytest.approx(scenario.truth, abs=0.02)
        (span,) = fit.estimate.interval95
        assert span.low < scenario.truth < span.high
    assert len(result.campaign.runs) == len(DEGREES) * len(scenario.concurrencies)


def test_the_cliff_is_refused_and_the_reasons_say_where(tmp_path):
    (fit,) = calibrate(made(tmp_path / "cliff", "cliff")).fit.series
    assert fit.verdict == "REFUSED"
    assert any("pp=4 is measured at 0.3" in reason for reason in fit.reasons)


def test_an_efficiency_that_rises_with_pp_is_named(tmp_path):
    (fit,) = calibrate(made(tmp_path / "rise", "non-monotone")).fit.series
    assert any("efficiency rises from pp=2" in reason and "to pp=4" in reason for reason in fit.reasons)


def test_an_overhead_that_grows_with_load_gives_an_s_for_each_load(tmp_path):
    """0.08 + 0.035*log2(C); 0.02 is three times what a run's pace does to one fit. And calib warns of the drift."""
    (fit,) = calibrate(made(tmp_path / "growing", "growing-overhead")).fit.series
    found = {f.concurrency: f.curve.values[0] for f in fit.by_concurrency}
    assert found == pytest.approx({c: 0.08 + 0.035 * math.log2(c) for c in (8, 16, 24, 32)}, abs=0.02)
    assert found[8] < found[16] < found[32]
    assert any("drifts with concurrency" in warning for warning in fit.warnings)


def test_the_rules_hit_the_runs_that_were_changed_and_no_others(tmp_path):
    for name, rule, expected in (
        ("early-end", "early_end", {4, 8}), ("engine-flag", "engine_flags", {2, 4, 8}),
        ("unsaturated", "peak_at_edge", {1, 2, 4, 8}), ("clean-log2", "peak_at_edge", set()),
    ):  # fmt: skip
        runs = load_campaign(made(tmp_path / name, name)).runs
        assert set(runs[runs["rules"].str.contains(rule)]["pp"]) == expected, name


def test_flags_stated_are_ones_that_calib_compares():
    for scenario in SCENARIOS.values():
        for _, pp in DEGREES:
            assert set(scenario.engine_flags(pp)) <= set(ENGINE_FLAGS)


def test_the_same_seed_gives_the_same_bytes_and_another_one_others(tmp_path):
    first, again, other = (made(tmp_path / n, waves=1, seed=s) for n, s in (("a", 1), ("b", 1), ("c", 2)))
    assert contents(first) == contents(again)
    run = "tp1pp8/c8/profile_export_aiperf.json"
    assert contents(first)[run] != contents(other)[run]
    assert not (first / ".work").exists()


def test_finished_runs_are_kept_and_not_repeated(tmp_path):
    """Interrupted in the third run: two are there, whole; the rest is made by the next call, and the first two stay."""
    folder, seen = tmp_path / "demo", []

    def stop(progress: Progress) -> None:
        if progress.done == 2:
            raise KeyboardInterrupt

    demo = Demo(SCENARIOS["clean-log2"], folder, virtual=True, waves=1)
    with pytest.raises(KeyboardInterrupt):
        run_demo(demo, show=stop, say=seen.append)
    assert sorted(str(p.parent.relative_to(folder)) for p in folder.glob("tp*/*/profile_export_aiperf.json")) == [
        "tp8pp1/c16", "tp8pp1/c8",
    ]  # fmt: skip
    summary = folder / "tp8pp1/c8/profile_export_aiperf.json"
    times, shown = summary.stat().st_mtime_ns, []
    run_demo(demo, show=lambda p: shown.append((p.done, p.kept, p.total)), say=seen.append)
    assert (shown[0], shown[-1]) == ((2, 2, 16), (16, 2, 16))
    assert summary.stat().st_mtime_ns == times
    assert contents(folder) == contents(made(tmp_path / "at-once", waves=1))


def test_the_time_left_goes_down_to_nothing(tmp_path):
    left = []
    demo = Demo(SCENARIOS["unsaturated"], tmp_path / "demo", virtual=True, waves=1)
    run_demo(demo, show=lambda p: left.append(p.seconds_left), say=lambda _: None)
    assert left[0] > 0
    assert left == sorted(left, reverse=True)
    assert left[-1] == pytest.approx(0, abs=1e-9)


def test_the_demo_finds_the_truth_and_says_where_the_report_is(cli, tmp_path):
    done = cli("demo", "--virtual", "--out", tmp_path)
    assert (done.code, done.err) == (0, "")
    assert "true s   0.2\n" in done.out
    assert "verdict  FIT, as it must be" in done.out
    report = Path(done.out.rpartition("Report")[2].strip())
    assert report.is_file()
    assert report.parent.parent == tmp_path / "reports"
    again = cli("demo", "--virtual", "--out", tmp_path)
    assert (again.code, again.err) == (0, "calib: all 16 runs are there already\n")
    assert again.out == done.out


def test_a_demo_in_json_holds_truth_and_finding(cli, tmp_path):
    done = cli("demo", "--virtual", "--scenario", "engine-flag", "--out", tmp_path, "--json")
    found = json.loads(done.out)
    assert (found["verdict"], found["rules"], found["truth"], found["as_expected"]) == (
        "FIT",
        ["engine_flags"],
        None,
        "yes",
    )
    assert load_campaign(found["campaign"]).name == "emulated-engine-flag"


def test_a_demo_that_does_not_find_its_truth_fails(cli, tmp_path):
    """A baseline that was tampered with after it was measured."""
    folder = made(tmp_path / "clean-log2-virtual")
    for c in (8, 16, 24, 32):
        path = folder / f"tp8pp1/c{c}/profile_export_aiperf.json"
        summary = json.loads(path.read_text())
        summary["total_osl"]["avg"] *= 1.3
        path.write_text(json.dumps(summary))
    done = cli("demo", "--virtual", "--out", tmp_path)
    assert done.code == 1
    assert "the demo did not find what its truth implies" in done.err


def test_a_folder_of_something_else_is_left_alone(cli, tmp_path):
    folder = tmp_path / "clean-log2-virtual"
    folder.mkdir()
    (folder / "campaign.toml").write_text("mine")
    done = cli("demo", "--virtual", "--out", tmp_path)
    assert done.code == 3
    assert "is not what this demo would write" in done.err
    assert contents(folder) == {"campaign.toml": b"mine"}


def test_results_of_somebody_else_are_left_alone(cli, tmp_path):
    folder = tmp_path / "clean-log2-virtual"
    folder.mkdir()
    (folder / "results.csv").write_text("mine")
    assert cli("demo", "--virtual", "--out", tmp_path).code == 3
    assert contents(folder) == {"results.csv": b"mine"}


def test_two_demos_do_not_work_in_one_folder(cli, tmp_path):
    with claimed(tmp_path / "clean-log2-virtual"):
        done = cli("demo", "--virtual", "--out", tmp_path)
    assert done.code == 3
    assert "another demo is at work in it" in done.err


def test_a_folder_that_cannot_be_written_is_said(cli, tmp_path):
    (tmp_path / "file").touch()
    done = cli("demo", "--virtual", "--out", tmp_path / "file")
    assert done.code == 3
    assert "cannot be written (Not a directory)" in done.err


@pytest.mark.parametrize("other", [("--seed", "1"), ("--waves", "9")])
def test_other_settings_do_not_mix_with_runs_that_are_there(cli, tmp_path, other):
    made(tmp_path / "clean-log2-virtual")
    done = cli("demo", "--virtual", "--out", tmp_path, *other)
    assert done.code == 3
    assert "campaign.toml is missing or differs" in done.err


@pytest.mark.parametrize(
    ("wrong", "word"),
    [
        (("--scenario", "none"), "clean-log2"),
        (("--slowdown", "0"), "positive"),
        (("--waves", "0"), "1000"),
        (("--seed", "-1"), "seed"),
    ],
)
def test_what_cannot_be_asked_for_is_a_usage_error(cli, tmp_path, wrong, word):
    done = cli("demo", "--virtual", "--out", tmp_path, *wrong)
    assert done.code == 2
    assert word in done.err
    assert list(tmp_path.iterdir()) == []


def test_the_list_names_every_scenario(cli):
    done = cli("demo", "--list")
    assert done.code == 0
    assert all(name in done.out for name in SCENARIOS)
    assert [s["name"] for s in json.loads(cli("demo", "--list", "--json").out)] == list(SCENARIOS)
