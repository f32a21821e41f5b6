"""The nightly job: once, again, with more, with less, with something broken."""

from __future__ import annotations

import json
import os
import shutil
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from calib.coefficients.file import CoefficientSet
from calib.coefficients.releasing import release
from calib.errors import NightlyError, OutputError
from calib.nightly.dry_run import preview
from calib.nightly.recovery import check_night_store, rebuild_store, replay_night
from calib.nightly.store.writer import open_writer


def candidate(job, night, name):
    found = next(c for c in night.record.campaigns if c.campaign == f"results/{name}")
    return CoefficientSet.load(job.folder / "nights" / "reports" / found.report / "coefficients-v1.json")


def test_a_night_writes_what_it_promises_and_the_same_again_does_nothing(job):
    job.campaign("monday")
    first = job.night()
    assert first.new
    assert {p.name for p in first.folder.iterdir()} == {
        "record.json",
        "summary.json",
        "report.md",
        "junit.xml",
        "pager.txt",
    }
    (written,) = (job.folder / "nights" / "reports").iterdir()
    assert {p.name for p in written.iterdir()} == {"coefficients-v1.json", "report.html", "report.json", "report.md"}
    assert "<figure" not in (written / "report.html").read_text(), "the job asked for none"
    before = {p: p.stat().st_mtime_ns for p in job.folder.rglob("*") if p.is_file() and p.name != "LOCK"}
    again = job.night()
    assert not again.new
    assert again.fitted == again.read == 0
    assert {p: p.stat().st_mtime_ns for p in job.folder.rglob("*") if p.is_file() and p.name != "LOCK"} == before
    suite = ET.parse(first.folder / "junit.xml").getroot()[0]
    assert (suite.get("tests"), suite.get("errors"), suite.get("failures")) == ("1", "0", "0")
    assert len((first.folder / "pager.txt").read_text().splitlines()) == 1
    links = [w.split(")")[0] for w in (first.folder / "report.md").read_text().split("](")[1:]]
    assert links
    assert all((first.folder / link).is_file() for link in links)
    assert str(job.folder) not in "".join(p.read_text() for p in first.folder.iterdir())


def test_what_was_read_is_not_read_again_and_a_new_folder_is(aiperf_job):
    job, results = aiperf_job, aiperf_job.folder / "results" / "qwen"
    aside = job.folder / "aside"
    shutil.move(results / "qwen3-8b-tp1pp8" / "c8", aside)
    toml = results / "campaign.toml"
    text = toml.read_text()
    first = job.night()
    assert first.read == len(list(results.glob("qwen3-8b-tp*")))
    shutil.move(aside, results / "qwen3-8b-tp1pp8" / "c8")
    assert preview(job.config)["would_read"][0]["status"] == "changed"
    second = job.night()
    assert second.new
    assert second.read == 1
    (job.folder / "other").mkdir()
    shutil.copytree(results, job.folder / "other" / "results" / "qwen")
    (job.folder / "other" / "nightly.toml").write_text(job.config.read_text())
    from calib.nightly.night import run_night

    fresh = run_night(job.folder / "other" / "nightly.toml")
    assert [c.digest for c in fresh.record.campaigns] == [c.digest for c in second.record.campaigns]
    assert toml.read_text() == text


def test_a_file_that_changed_under_its_name_is_said_and_one_that_was_only_touched_is_not(job, edit):
    folder = job.campaign("monday")
    job.night()
    os.utime(folder / "points.csv", ns=(1, 1))
    assert not job.night().new
    edit(folder / "points.csv", "A,8,1,64,", "A,8,1,64,1")
    third = job.night()
    assert third.new
    assert third.record.campaigns[0].changed_files == ("points.csv",)
    assert "points.csv" in (third.folder / "report.md").read_text()


def test_a_broken_campaign_is_listed_and_hides_nothing(job, cli):
    job.campaign("monday")
    broken = job.campaign("broken")
    (broken / "campaign.toml").write_text("format_version = 1\nname = ", encoding="utf-8")
    done = cli("nightly", job.config)
    assert done.code == 0
    assert "not calibrated: results/broken" in done.out
    shown = json.loads(next((job.folder / "nights").glob("0001-*/summary.json")).read_text())
    assert [f["campaign"] for f in shown["failures"]] == ["results/broken"]
    assert [c["digest"] is not None for c in shown["campaigns"]] == [False, True]
    shutil.rmtree(job.folder / "results" / "monday")
    done = cli("nightly", job.config)
    assert done.code == 1
    assert "campaign_lost results/monday" in done.out
    assert done.err.count("\n") == 1


def test_nothing_usable_ends_with_exit_3_and_names_the_first_reason(job, cli):
    broken = job.campaign("broken")
    (broken / "points.csv").write_text("nothing\n", encoding="utf-8")
    done = cli("nightly", job.config)
    assert done.code == 3
    assert "nothing could be calibrated" in done.err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "`name`"), ('name = "x"\nresults = []\n', "names no folder"), ('name = "x"\nresults = ["nowhere"]\n', "nowhere"),
        ('name = "x"\nresults = ["results"]\n[alarms]\nstandard_errors = -1\n', "alarms.standard_errors"),
        ('name = "x"\nresults = ["results"]\n[fit]\nform = "cubic"\n', "fit.form"), ("[[[", "nightly.toml"),
        ('name = "x"\nresults = ["results"]\nsurprise = 1\n', "surprise"),
    ],
)  # fmt: skip
def test_a_wrong_configuration_is_one_sentence_and_exit_3(job, cli, text, said):
    job.config.write_text(text, encoding="utf-8")
    done = cli("nightly", job.config)
    assert done.code == 3
    assert said in done.err
    assert done.err.splitlines()[-1].startswith("calib: error: ")


def test_a_dry_run_writes_nothing(job, cli):
    job.campaign("monday")
    done = cli("nightly", job.config, "--dry-run")
    assert "new: results/monday" in done.out
    assert sorted(p.name for p in job.folder.iterdir()) == ["nightly.toml", "results"]
    job.night()
    assert cli("nightly", job.config, "--dry-run").out == "1 campaigns unchanged: nothing is to be done\n"
    assert not job.night().new


def test_a_dry_run_foretells_a_night_that_no_result_asks_for(job):
    job.campaign("monday")
    first = job.night()
    report = job.folder / "nights" / "reports" / first.record.campaigns[0].report
    release(CoefficientSet.load(report / "coefficients-v1.json"), job.folder / "released", why="first")
    assert preview(job.config)["also"] == ["what is released has changed"]
    assert job.night().new
    job.config.write_text(job.config.read_text() + "[alarms]\nfamily_nights = 100\n", encoding="utf-8")
    assert preview(job.config)["also"] == ["[alarms] has changed"]
    assert job.night().new
    shutil.move(job.folder / "results", job.folder / "unmounted")
    shown = preview(job.config)
    assert (shown["gone"], shown["also"], shown["would_write"]) == ([], ["other sources cannot be read"], True)
    job.night()
    assert preview(job.config)["would_write"] is False


def test_since_leaves_out_what_is_older(job, cli):
    old = job.campaign("old")
    for p in old.iterdir():
        os.utime(p, (10**9, 10**9))
    job.campaign("new")
    night = json.loads(cli("nightly", job.config, "--since", "2020-01-01", "--json").out)
    assert [c["campaign"] for c in night["campaigns"]] == ["results/new"]
    assert cli("nightly", job.config, "--since", "yesterday").code == 2


def test_a_night_can_be_replayed_and_says_when_its_inputs_changed(job, cli, edit):
    folder = job.campaign("monday")
    night = job.night()
    found = replay_night(job.config, 1)
    assert [(r.now, r.problem) for r in found] == [(night.record.campaigns[0].digest, None)]
    edit(folder / "points.csv", "A,8,1,64,", "A,8,1,64,1")
    done = cli("nightly", job.config, "--replay", 1)
    assert done.code == 3
    assert "points.csv has changed" in done.err
    with pytest.raises(NightlyError, match="not on record"):
        replay_night(job.config, 7)


def test_a_deleted_store_is_rebuilt_with_the_same_content(job):
    job.campaign("monday")
    job.night()
    job.campaign("tuesday")
    job.night()
    before = job.dump()
    shutil.rmtree(job.folder / "store")
    rebuild_store(job.config)
    assert job.dump() == before
    assert not job.night().new
    shutil.rmtree(job.folder / "store")
    assert not job.night().new  # the nightly job alone mends it as well
    assert job.dump() == before


def test_check_finds_what_changed_behind_the_stores_back(job, cli):
    folder = job.campaign("monday")
    job.night()
    assert check_night_store(job.config) == ([], {"files": 3, "parts": 1, "nights": 1})
    (folder / "points.csv").write_text("x\n", encoding="utf-8")
    part = next((job.folder / "store" / "measurements").glob("*.parquet"))
    part.write_bytes(part.read_bytes()[:-1] + b"?")
    done = cli("store", "check", "--config", job.config)
    assert done.code == 3
    assert "points.csv: has another content" in done.out
    assert part.name in done.out


def test_two_jobs_at_once_one_says_so(job, cli):
    job.campaign("monday")
    with open_writer(job.folder / "store"):
        done = cli("nightly", job.config)
    assert done.code == 3
    assert "is in use by another job (process" in done.err
    assert job.night().new


def test_workers_and_their_number_change_nothing(aiperf_job):
    job = aiperf_job
    for name in ("monday", "tuesday"):
        job.campaign(name)
    one = job.night(workers=1)
    shutil.move(job.folder / "nights", job.folder / "nights-of-one")
    shutil.rmtree(job.folder / "store")
    two = job.night(workers=2)
    assert one.record.campaigns == two.record.campaigns
    assert (one.record.series, one.record.points) == (two.record.series, two.record.points)


def test_a_campaign_that_is_gone_is_said_and_its_history_stays(job):
    job.campaign("monday")
    job.campaign("tuesday")
    job.night()
    shutil.rmtree(job.folder / "results" / "monday")
    night = job.night()
    assert [(c.campaign, c.status) for c in night.record.campaigns] == [
        ("results/monday", "gone"), ("results/tuesday", "unchanged"),
    ]  # fmt: skip
    assert [a.kind for a in night.record.alarms] == ["campaign_lost"]
    again = job.night()
    assert not again.new
    assert again.alarms_open == 1


def test_a_source_that_is_not_there_tonight_alarms_and_does_not_lose_its_campaigns(job, cli):
    job.campaign("monday")
    other = job.folder / "results-2"  # the name of one source begins with that of the other
    shutil.copytree(job.campaign("tuesday"), other / "wednesday")
    job.config.write_text(job.config.read_text().replace('["results"]', '["results", "results-2"]'), encoding="utf-8")
    job.night()
    shutil.move(other, job.folder / "unmounted")
    done = cli("nightly", job.config)
    assert done.code == 1
    assert "source_lost results-2: is not a folder" in done.out
    assert "1 source not read" in done.out
    assert "source cannot be read" in next((job.folder / "nights").glob("0002-*/report.md")).read_text()
    again = job.night()
    assert (again.new, again.alarms_open) == (False, 1)
    assert {c.status for c in again.record.campaigns} == {"unchanged"}
    shutil.rmtree(job.folder / "store")
    assert "results-2" in rebuild_store(job.config).failed_sources
    shutil.move(job.folder / "unmounted", other)
    back = job.night()
    assert (back.new, back.alarms_open) == (True, 0)
    shutil.move(job.folder / "results", job.folder / "unmounted")
    (other / "wednesday" / "points.csv").unlink()
    shutil.rmtree(other / "wednesday")
    lost = job.night()
    assert {(a.kind, a.scope) for a in lost.record.alarms} == {
        ("campaign_lost", "results-2/wednesday"), ("source_lost", "results"),
    }  # fmt: skip


def test_an_output_that_cannot_be_written_ends_with_exit_3(job, cli):
    job.campaign("monday")
    text = job.config.read_text()
    job.config.write_text(text + 'out = "/proc/nights"\n', encoding="utf-8")
    done = cli("nightly", job.config)
    assert done.code == 3
    assert "cannot be written" in done.err
    job.config.write_text(text + 'store = "/proc/store"\n', encoding="utf-8")
    with pytest.raises(OutputError):
        job.night()
    job.config.write_text(text, encoding="utf-8")
    assert job.night().new


def test_the_shipped_campaigns_pass_a_night(job):
    from calib.measure.shipped import shipped_campaigns

    for name, folder in shipped_campaigns().items():
        shutil.copytree(folder, job.folder / "results" / name)
    job.config.write_text(job.config.read_text().replace("figures = false", "figures = true"))
    night = job.night(workers=2)
    reports = [job.folder / "nights" / "reports" / c.report for c in night.record.campaigns]
    assert all(len(list(r.glob("figures/*.svg"))) >= 3 for r in reports)
    assert sorted(Path(c.campaign).name for c in night.record.campaigns if c.digest) == sorted(shipped_campaigns())
