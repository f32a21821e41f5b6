"""The store: whole for readers, versioned, locked for one writer, and nothing a query can harm."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import duckdb
import pytest

from calib.errors import OutputError, StoreError, UsageError
from calib.nightly.store.database import DATABASE_NAME, MIGRATIONS, VERSION, migrate, version_of
from calib.nightly.store.lock import StoreLock
from calib.nightly.store.reader import open_store
from calib.nightly.store.writer import CampaignRow, open_writer

HOLD = """
import time
from pathlib import Path
from calib.nightly.store.lock import StoreLock
with StoreLock(Path({0!r})):
    print('in', flush=True)
    time.sleep({1})
"""


def put(writer, name):
    writer.put_campaign(name, CampaignRow(name, "f", "c", 0, None, None), runs=None, findings=(), files={})


def names(store):
    return store.table("campaigns")["campaign"].tolist()


def test_a_reader_sees_whole_commits_only(tmp_path):
    with open_writer(tmp_path) as writer:
        put(writer, "a")
        assert not (tmp_path / DATABASE_NAME).exists()
        writer.commit()
        with open_store(tmp_path) as store:
            put(writer, "b")
            assert names(store) == ["a"]
            writer.commit()
            assert names(store) == ["a"]
        with open_store(tmp_path) as store:
            assert names(store) == ["a", "b"]
        put(writer, "never committed")
    with open_store(tmp_path) as store:
        assert names(store) == ["a", "b"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["LOCK", DATABASE_NAME]


@pytest.mark.parametrize("version", range(1, VERSION))
def test_a_database_of_an_older_schema_keeps_its_content(tmp_path, version):
    connection = duckdb.connect(str(tmp_path / DATABASE_NAME))
    migrate(connection, tmp_path, to=version)
    connection.execute("INSERT INTO nights VALUES (1, 'd', 'a', 'f', 's')")
    connection.close()
    with pytest.raises(StoreError, match=rf"field 'schema_version' = {version}.*run `calib nightly`"):
        open_store(tmp_path)
    with open_writer(tmp_path) as writer:
        assert version_of(writer.connection) == VERSION
        writer.commit()
    with open_store(tmp_path) as store:
        assert store.table("nights")["digest"].tolist() == ["d"]
        assert store.table("alarms").empty


def test_migrations_are_never_edited():
    from calib.files import sha256_bytes

    assert [sha256_bytes(m.encode())[:12] for m in MIGRATIONS] == ["a80e4a7f4292", "3bee94ac3a67", "0e8c4e653dd3"]


def test_a_database_of_a_newer_calib_is_refused(tmp_path):
    with open_writer(tmp_path) as writer:
        writer.connection.execute("UPDATE meta SET schema_version = 99")
        with pytest.raises(StoreError, match="newer calib"):
            writer.commit()
    with pytest.raises(StoreError, match="newer calib"):
        open_store(tmp_path)


@pytest.mark.parametrize("content", [b"", b"not a database", os.urandom(20000)])
def test_a_damaged_database_is_one_sentence(tmp_path, content):
    (tmp_path / DATABASE_NAME).write_bytes(content)
    with pytest.raises(StoreError):
        open_store(tmp_path)


def test_a_missing_store_says_how_to_make_one(tmp_path):
    with pytest.raises(StoreError, match="is not there; run `calib nightly`"):
        open_store(tmp_path / "none")
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    "query",
    ["DROP TABLE nights", "COPY nights TO '{0}/x'", "SELECT * FROM read_text('/etc/passwd')", "ATTACH '{0}/y'", "nonsense",
     "\ud800", "SET enable_external_access = true"],
)  # fmt: skip
def test_a_query_reads_the_store_and_nothing_else(tmp_path, query):
    with open_writer(tmp_path) as writer:
        writer.commit()
    with open_store(tmp_path) as store, pytest.raises(UsageError):
        store.sql(query.format(tmp_path))
    assert not (tmp_path / "x").exists()


def test_a_killed_job_leaves_no_lock(tmp_path):
    code = HOLD.format(str(tmp_path), 60)
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "in\n"
        with pytest.raises(OutputError, match=rf"another job \(process {holder.pid} since"), StoreLock(tmp_path):
            pass
        holder.send_signal(signal.SIGKILL)
    with StoreLock(tmp_path, wait_s=5):
        pass


def test_waiting_for_another_job(tmp_path):
    code = HOLD.format(str(tmp_path), 1)
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "in\n"
        with StoreLock(tmp_path, wait_s=60):
            pass


def test_text_that_no_database_takes_is_escaped(tmp_path):
    with open_writer(tmp_path) as writer:
        put(writer, "a\ud800\x00'; DROP TABLE nights")
        writer.commit()
    with open_store(tmp_path) as store:
        assert names(store) == ["a\\ud800\\x00'; DROP TABLE nights"]
        assert store.table("nights").empty
