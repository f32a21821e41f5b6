"""What a hostile pass over the nightly job has found, each with what must happen instead."""

from __future__ import annotations

import json
import shutil

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calib.coefficients.file import CoefficientSet
from calib.coefficients.releasing import release
from calib.errors import NightlyError, StoreError
from calib.nightly.record import acknowledge
from calib.nightly.recovery import check_night_store, rebuild_store
from calib.nightly.remote import STAMPS, mirror_of, sync
from calib.nightly.store.database import DATABASE_NAME
from calib.nightly.store.reader import open_store


def again(job, name, s, seed, **options):
    """The campaign of a name is measured anew, in the same folder."""
    shutil.rmtree(job.folder / "results" / name, ignore_errors=True)
    return job.campaign(name, s, seed=seed, **options)


def kinds(night):
    return {(a.kind, a.series.split(",")[0]) for a in night.record.alarms if a.acknowledged is None}


def test_what_a_rebuild_has_seen_is_still_work_for_the_next_night(job):
    again(job, "a", {"A": 0.2, "B": 0.22}, 1)
    job.night()
    again(job, "a", {"A": 0.3, "B": 0.22}, 2)
    job.campaign("new", {"Z": 0.2, "Y": 0.2})
    rebuild_store(job.config)
    night = job.night()
    assert night.new
    assert {c.campaign for c in night.record.campaigns} == {"results/a", "results/new"}
    assert ("moved", "s of A") in kinds(night)
    assert not job.night().new


def test_a_night_whose_record_is_gone_is_done_again(job):
    job.campaign("a")
    job.night()
    job.campaign("b", {"A": 0.3, "B": 0.22})
    second = job.night()
    shutil.move(second.folder, job.folder / "aside")
    again_ = job.night()
    assert again_.new
    assert [(c.campaign, c.digest) for c in again_.record.campaigns] == [
        (c.campaign, c.digest) for c in second.record.campaigns
    ]
    assert kinds(again_) == kinds(second) != set()
    (again_.folder / "record.json").unlink()
    with pytest.raises(NightlyError, match=r"record\.json"):
        job.night()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ('store = "results"', "overlaps"), ('store = "."', "overlaps"), ('out = "results/nights"', "overlaps"),
        ('store = "st"\nout = "st"', "overlaps"), ('store = ""', "no name of a folder"),
        ('out = "ou\\u0000"', "no name of a folder"), ('registry = "nightly.toml"', "is no folder"),
        ("[alarms]\nchangepoint_nights = 1", "changepoint_nights"), ("[fit]\nerror_floor = 1e-300", "error_floor"),
    ],
)  # fmt: skip
def test_folders_that_overlap_and_figures_that_cannot_be_are_refused(job, cli, changes, words):
    job.campaign("a")
    job.config.write_text(f'name = "x"\nresults = ["results"]\n{changes}\n', encoding="utf-8")
    done = cli("nightly", job.config)
    assert done.code == 3
    assert words in done.err
    assert (job.folder / "results" / "a" / "campaign.toml").is_file()


def test_one_folder_under_two_spellings_is_refused(job, cli):
    job.campaign("a")
    job.config.write_text('name = "x"\nresults = ["results", "./results"]\n', encoding="utf-8")
    assert cli("nightly", job.config).code == 3


def test_an_alarm_of_one_model_is_not_closed_by_another(job):
    job.config.write_text(job.config.read_text() + "[alarms]\ncoverage_nights = 10\n", encoding="utf-8")
    again(job, "a", {"A": 0.2}, 1)
    again(job, "b", {"B": 0.2}, 2)
    job.night()
    again(job, "b", {"B": 0.28}, 3)
    assert ("moved", "s of B") in kinds(job.night())
    opened = {a.id for a in job.night().record.alarms}
    again(job, "a", {"A": 0.2}, 5)
    night = job.night()
    assert ("moved", "s of B") in kinds(night)
    assert opened <= {a.id for a in night.record.alarms}


def test_an_acknowledged_move_stays_silent_where_the_same_folder_is_measured_anew(job):
    again(job, "a", {"A": 0.2, "B": 0.22}, 1)
    job.night()
    again(job, "a", {"A": 0.28, "B": 0.22}, 3)
    for alarm in job.night().record.alarms:
        acknowledge(job.folder / "nights", alarm.id, "known")
    assert job.night().alarms_open == 0
    again(job, "a", {"A": 0.28, "B": 0.22}, 4)
    night = job.night()
    assert night.alarms_open == 0, night.record.alarms
    again(job, "a", {"A": 0.36, "B": 0.22}, 6)
    assert ("moved", "s of A") in kinds(job.night())


def released(job, night):
    report = job.folder / "nights" / "reports" / night.record.campaigns[0].report
    release(CoefficientSet.load(report / "coefficients-v1.json"), job.folder / "released", why="first")


def test_a_registry_that_is_gone_is_an_error_and_closes_no_alarm(job, cli):
    again(job, "a", {"A": 0.2, "B": 0.22}, 1)
    released(job, job.night())
    again(job, "a", {"A": 0.28, "B": 0.22}, 3)
    assert cli("nightly", job.config).code == 1
    shutil.move(job.folder / "released", job.folder / "away")
    again(job, "a", {"A": 0.28, "B": 0.22}, 9)
    done = cli("nightly", job.config)
    assert done.code == 3
    assert "holds no release" in done.err
    job.config.write_text(job.config.read_text().replace('registry = "released"\n', ""), encoding="utf-8")
    assert job.night().new  # not configured any more is a decision


def test_a_release_of_another_matching_is_no_reference(job):
    again(job, "a", {"A": 0.2, "B": 0.22}, 1)
    released(job, job.night())
    job.config.write_text(job.config.read_text() + '[fit]\nmatching = "matched"\n', encoding="utf-8")
    night = job.night()
    assert night.alarms_open == 0
    assert not any("against the released" in s for s in night.record.said)


def test_a_cache_that_was_altered_is_read_anew_and_found(aiperf_job):
    job = aiperf_job
    first = job.night()
    (part,) = (job.folder / "store" / "cache").glob("*.parquet")
    table = pq.read_table(part)
    column = pa.array([b"\xc1garbage"] * table.num_rows, type=pa.binary())
    pq.write_table(table.set_column(2, "payload", column), part)
    assert [p.reason for p in check_night_store(job.config)[0]] == [
        "is missing, or has another content than was written"
    ]
    (job.folder / "results" / "qwen" / "note.txt").write_text("x", encoding="utf-8")
    night = job.night()
    assert night.record.campaigns[0].digest == first.record.campaigns[0].digest
    assert check_night_store(job.config)[0] == []


def test_the_stamps_of_a_mirror_name_nothing_outside_it(tmp_path):
    import fsspec

    memory = fsspec.filesystem("memory")
    memory.pipe_file("/stamps/a.txt", b"x")
    mirror, precious = tmp_path / "mirror", tmp_path / "precious.txt"
    precious.write_text("mine", encoding="utf-8")
    try:
        sync("memory://stamps", mirror)
        (mirror / STAMPS).write_text(json.dumps({"../precious.txt": "x", "a\0": "x", "/etc/x": "x"}), encoding="utf-8")
        sync("memory://stamps", mirror)
        assert precious.read_text() == "mine"
    finally:
        memory.rm("/stamps", recursive=True)
    assert mirror_of(tmp_path, "x").parent == tmp_path / "mirror"


def test_what_is_left_out_is_said(job, tmp_path):
    job.campaign("a")
    elsewhere = shutil.move(job.campaign("elsewhere"), tmp_path / "elsewhere")
    (job.folder / "results" / "linked").symlink_to(elsewhere)
    (job.folder / "results" / "d" / "campaign.toml").mkdir(parents=True)
    job.config.write_text(job.config.read_text().replace('["results"]', '["results", "gs://b/x"]'), encoding="utf-8")
    night = job.night()
    assert set(night.failed_sources) == {"results/linked", "results/d/campaign.toml", "gs://b/x"}
    assert "results/linked" in (night.folder / "report.md").read_text()
    assert night.record.campaigns[0].digest


META = "CREATE TABLE meta (schema_version INTEGER)"


@pytest.mark.parametrize(
    "script",
    [
        META, f"{META}; INSERT INTO meta VALUES (NULL)", f"{META}; INSERT INTO meta VALUES (-1)",
        f"{META}; INSERT INTO meta VALUES (3)", "CREATE TABLE campaigns (x INTEGER)",
        "CREATE TABLE meta (schema_version VARCHAR); INSERT INTO meta VALUES ('many')",
    ],
)  # fmt: skip
def test_a_database_of_something_else_is_one_sentence(job, cli, script):
    job.campaign("a")
    (job.folder / "store").mkdir()
    with duckdb.connect(str(job.folder / "store" / DATABASE_NAME)) as other:
        other.execute(script)
    for command in (("nightly", job.config), ("sql", "SELECT 1", "--store", job.folder / "store")):
        done = cli(*command)
        assert done.code in (0, 3), done.err
    assert cli("store", "rebuild", "--config", job.config).code == 0
    assert job.night().record.campaigns[0].digest


def test_a_part_with_other_columns_is_one_sentence(job, cli):
    job.campaign("a")
    job.night()
    (part,) = (job.folder / "store" / "measurements").glob("*.parquet")
    pq.write_table(pa.table({"x": [1]}), part)
    with pytest.raises(StoreError):
        open_store(job.folder / "store")
    assert cli("sql", "SELECT count(*) FROM runs", "--store", job.folder / "store").code == 3


def test_json_of_any_type_and_reasons_of_any_text(job, cli):
    job.campaign("a")
    job.night()
    done = cli("sql", "--json", "--store", job.folder / "store", "SELECT DATE '2020-01-01' AS a, [1, 2] AS b")
    assert done.code == 0
    assert "2020-01-01" in done.out
    again(job, "a", {"A": 0.30, "B": 0.22}, 2)
    alarm = job.night().record.alarms[0].id
    assert cli("ack", alarm, "--why", "bad \udcff", "--config", job.config).code == 0


def test_a_lock_that_is_a_link_is_not_followed(job, cli):
    job.campaign("a")
    (job.folder / "store").mkdir()
    victim = job.folder / "victim"
    victim.write_text("mine", encoding="utf-8")
    (job.folder / "store" / "LOCK").symlink_to(victim)
    assert cli("nightly", job.config).code == 3
    assert victim.read_text() == "mine"
