"""A job over several nights: released, drifting, acknowledged, under changed rules."""

from __future__ import annotations

import json

import msgspec
import pytest

from calib.coefficients.releasing import release
from calib.nightly import alarm_decisions as compare
from calib.nightly.alarms.series import Level
from calib.nightly.record import acknowledge, read_nights


def exit_and_alarms(cli, job):
    done = cli("nightly", job.config, "--json")
    return done.code, {(a["kind"], a["acknowledged"] is not None) for a in json.loads(done.out)["alarms"]}


def test_a_change_alarms_is_acknowledged_and_stays_silent_until_the_next(job, cli):
    job.campaign("n1")
    first = job.night()
    found = first.record.campaigns[0].report
    from calib.coefficients.file import CoefficientSet

    candidate = CoefficientSet.load(job.folder / "nights" / "reports" / found / "coefficients-v1.json")
    release(candidate, job.folder / "released", why="first")
    job.campaign("n2")
    assert exit_and_alarms(cli, job) == (0, set())
    job.campaign("n3", {"A": 0.26, "B": 0.22})
    code, alarms = exit_and_alarms(cli, job)
    assert code == 1
    assert ("moved", False) in alarms
    assert exit_and_alarms(cli, job) == (1, alarms)  # nothing new, and still open
    last = read_nights(job.folder / "nights")[-1][0]
    assert all("A, vllm" in a.series for a in last.alarms if a.kind == "moved")
    for alarm in last.alarms:
        done = cli("ack", alarm.id, "--why", "new driver", "--config", job.config)
        assert done.code == 0
    assert cli("ack", last.alarms[0].id, "--why", "again", "--config", job.config).code == 3
    code, alarms = exit_and_alarms(cli, job)
    assert (code, alarms) == (0, {(k, True) for k, _ in alarms})
    job.campaign("n4", {"A": 0.26, "B": 0.22})
    code, alarms = exit_and_alarms(cli, job)
    assert code == 0, alarms
    report = next((job.folder / "nights").glob("0005-*/report.md")).read_text()
    assert "Acknowledged: new driver" in report
    job.campaign("n5", {"A": 0.32, "B": 0.22})
    code, alarms = exit_and_alarms(cli, job)
    assert code == 1
    assert ("moved", False) in alarms


def test_a_series_that_is_lost_and_a_version_that_is_not_covered(job, cli, edit):
    job.campaign("n1")
    job.night()
    job.campaign("n2", {"A": 0.20, "C": 0.2})
    code, alarms = exit_and_alarms(cli, job)
    assert (code, alarms) == (1, {("series_lost", False)})
    folder = job.campaign("n3")
    edit(folder / "campaign.toml", "0.19.1", "0.20.0")
    code, alarms = exit_and_alarms(cli, job)
    assert code == 1
    assert alarms == {("version", False)}


def test_a_changed_rule_starts_a_new_baseline_and_is_never_a_recovery(job, cli):
    job.campaign("n1")
    job.night()
    job.campaign("n2", {"A": 0.30, "B": 0.22})
    code, alarms = exit_and_alarms(cli, job)
    assert code == 1
    text = job.config.read_text()
    job.config.write_text(text + "[fit]\nerror_floor = 0.03\n", encoding="utf-8")
    night = job.night()
    assert any("comparison unavailable: the rules changed" in s for s in night.record.said)
    assert {(a.kind, a.acknowledged is not None) for a in night.record.alarms} == alarms  # still open, not recovered
    assert "recovered" not in (night.folder / "report.md").read_text()


def test_points_that_are_not_measured_any_more(job, cli):
    job.campaign("n1")
    job.night()
    job.campaign("n2", levels=(2, 8))
    done = cli("nightly", job.config)
    assert done.code == 1
    assert "points_lost vllm on h200_sxm: 2 points lost: A TP2/PP4, B TP2/PP4" in done.out
    job.campaign("n3")
    assert exit_and_alarms(cli, job) == (0, set())


def test_coverage_may_be_asked_for_within_several_nights(job, cli):
    job.config.write_text(job.config.read_text() + "[alarms]\ncoverage_nights = 2\n", encoding="utf-8")
    job.campaign("n1")
    job.night()
    job.campaign("n2", {"A": 0.20})
    assert exit_and_alarms(cli, job) == (0, set())
    job.campaign("n3", {"A": 0.20})
    assert exit_and_alarms(cli, job) == (1, {("series_lost", False)})


def test_latencies_that_changed_under_the_same_version_start_a_new_baseline(job):
    job.campaign("n1")
    job.night()
    job.campaign("n2", head=3.0)  # the same provider and version say another balance
    night = job.night()
    assert any(
        "comparison unavailable: the latencies behind the balance factors changed, under the same source" in s
        for s in night.record.said
    )
    assert night.alarms_open == 0
    job.campaign("n3", {"A": 0.30, "B": 0.22}, head=3.0)
    third = job.night()
    assert "moved" in {a.kind for a in third.record.alarms}


def test_an_unknown_alarm_and_a_missing_reason(job, cli):
    job.campaign("n1")
    job.night()
    assert cli("ack", "12345678", "--why", "x", "--config", job.config).code == 3
    assert cli("ack", "12345678", "--why", " ", "--config", job.config).code == 3


def test_a_torn_acknowledgement_is_set_aside(job):
    job.campaign("n1")
    job.night()
    job.campaign("n2", {"A": 0.30, "B": 0.22})
    night = job.night()
    (job.folder / "nights" / "acks.jsonl").write_bytes(b'{"id": "torn')
    acknowledge(job.folder / "nights", night.record.alarms[0].id, "known")
    assert len((job.folder / "nights" / "acks.jsonl").read_bytes().splitlines()) == 1


def test_an_altered_record_is_refused(job, cli):
    job.campaign("n1")
    path = job.night().folder / "record.json"
    path.write_bytes(path.read_bytes().replace(b'"runs": 8', b'"runs": 9'))
    done = cli("nightly", job.config)
    assert done.code == 3
    assert "the record was altered" in done.err


def test_the_error_of_a_published_file_is_that_of_its_measurements(calibrated):
    """The scale of three points' own scatter is taken out again."""

    result = calibrated("h200-vllm-pp")
    for s in result.fit.series:
        key = tuple(s.key[k] for k in ("system", "backend", "backend_version", "model", "precision"))
        level = compare._published(result.coefficients, key, "s")
        assert isinstance(level, Level)
        assert level.stderr == pytest.approx(float(s.curve.stated_covariance[0, 0] ** 0.5), rel=1e-6)
    assert msgspec.to_builtins(result.coefficients)
