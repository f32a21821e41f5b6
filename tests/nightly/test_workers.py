"""Workers that die, clusters, and folders that are somewhere else."""

from __future__ import annotations

import os
import shutil
import signal
import time
import warnings
from pathlib import Path

import pytest

from calib.errors import NightlyError
from calib.nightly import remote
from calib.nightly.remote import STAMPS, Synced, mirror_of, sync
from calib.nightly.workers import Dask, Died, Here, Processes


def double(x: int) -> int:
    return 2 * x


def dies_once(x: int, folder: str) -> int:
    mark = Path(folder, f"died-{x}")
    if x == 3 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return 2 * x


def always_dies(x: int) -> int:
    if x == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return 2 * x


def test_every_task_is_done_once_by_any_number_of_workers():
    tasks = [(i,) for i in range(50)]
    for workers in (Here(), Processes(2)):
        assert dict(workers.map(double, tasks)) == {i: 2 * i for i in range(50)}
    assert list(Processes(2).map(double, [])) == []


def test_a_worker_that_dies_costs_a_retry(tmp_path):
    found = dict(Processes(2).map(dies_once, [(i, str(tmp_path)) for i in range(20)]))
    assert found == {i: 2 * i for i in range(20)}


def test_a_task_that_kills_every_worker_is_given_back_and_the_rest_is_done():
    found = dict(Processes(2).map(always_dies, [(i,) for i in range(12)]))
    assert isinstance(found.pop(3), Died)
    assert found == {i: 2 * i for i in range(12) if i != 3}


@pytest.fixture
def cluster():
    distributed = pytest.importorskip("distributed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster:
            yield cluster


@pytest.mark.filterwarnings("ignore")
def test_a_night_on_a_dask_cluster_is_the_same_night(aiperf_job, cluster):
    job = aiperf_job
    job.campaign("monday")
    here = job.night()
    shutil.rmtree(job.folder / "store")
    shutil.move(job.folder / "nights", job.folder / "nights-here")
    there = job.night(scheduler=cluster.scheduler_address)
    assert there.read == here.read > 0
    assert there.record.campaigns == here.record.campaigns


@pytest.mark.filterwarnings("ignore")
def test_a_dask_worker_that_dies_costs_a_retry(cluster, tmp_path):
    found = dict(Dask(cluster.scheduler_address).map(dies_once, [(i, str(tmp_path)) for i in range(8)]))
    assert found == {i: 2 * i for i in range(8)}


@pytest.mark.filterwarnings("ignore")
def test_a_cluster_with_another_calib_or_without_workers_is_one_sentence(cluster, monkeypatch):
    import calib.nightly.workers as module

    monkeypatch.setattr(module, "code_digest", _other_digest)
    with pytest.raises(NightlyError, match="another version of calib"):
        list(Dask(cluster.scheduler_address).map(double, [(1,)]))
    monkeypatch.undo()
    monkeypatch.setattr(module, "WAIT_S", 0.5)
    cluster.scale(0)
    time.sleep(1)
    with pytest.raises(NightlyError, match="has no worker"):
        list(Dask(cluster.scheduler_address).map(double, [(1,)]))


def _other_digest(_):
    return f"{os.getpid()}"


def test_a_scheduler_that_is_not_there_is_one_sentence():
    pytest.importorskip("distributed")
    with pytest.raises(NightlyError, match="cannot be reached"):
        list(Dask("nowhere://x").map(double, [(1,)]))


def put(filesystem, root, folder):
    for path in folder.rglob("*"):
        if path.is_file():
            filesystem.pipe_file(f"{root}/{path.relative_to(folder).as_posix()}", path.read_bytes())


def test_results_in_memory_are_the_same_as_on_the_disk(job):
    import fsspec

    folder = job.campaign("monday")
    here = job.night()
    memory = fsspec.filesystem("memory")
    put(memory, "/calib/monday", folder)
    try:
        job.config.write_text(job.config.read_text().replace('"results"', '"memory://calib"'), encoding="utf-8")
        shutil.rmtree(job.folder / "nights")
        there = job.night()
        assert [c.digest for c in there.record.campaigns] == [c.digest for c in here.record.campaigns]
        assert there.record.campaigns[0].campaign == "memory://calib/monday"
        mirror = mirror_of(job.folder / "store", "memory://calib")
        assert sync("memory://calib", mirror) == Synced(0, {})
        memory.pipe_file("/calib/monday/extra.txt", b"x")
        assert sync("memory://calib", mirror) == Synced(1, {})
        memory.rm_file("/calib/monday/extra.txt")
        sync("memory://calib", mirror)
        assert not (mirror / "monday" / "extra.txt").exists()
    finally:
        memory.rm("/calib", recursive=True)


def test_names_of_a_remote_store_cannot_leave_the_mirror(tmp_path):
    import fsspec

    memory = fsspec.filesystem("memory")
    for name in ("/tricks/a/../../escape.txt", f"/tricks/{STAMPS}", "/tricks/fine.txt"):
        memory.store[name] = memory.store.get(name) or _file(memory, name)
    try:
        found = sync("memory://tricks", tmp_path / "mirror")
        assert sorted(p.name for p in tmp_path.rglob("*")) == [STAMPS, "fine.txt", "mirror"]
        assert [why.endswith("is no name of a file below the source") for why in found.left_out.values()] == [True]
    finally:
        memory.rm("/tricks", recursive=True)


def test_what_cannot_be_mirrored_is_said_and_the_rest_is_there(tmp_path, monkeypatch):
    """Object stores allow a name that is a file and a folder at once, names of any length, and files of any size."""
    import fsspec

    memory = fsspec.filesystem("memory")
    for name in ("/odd/a", "/odd/a/b.txt", f"/odd/{'x' * 300}", "/odd/fine.txt"):
        memory.store[name] = _file(memory, name)
    memory.store["/odd/large"] = _file(memory, "/odd/large", b"x" * 2000)
    monkeypatch.setattr(remote, "SIZE_LIMIT", 1000)
    monkeypatch.setattr(type(memory), "get_file", _get_file)  # its own does not know such names
    try:
        found = sync("memory://odd", tmp_path / "mirror")
        assert found.left_out.keys() == {"a/b.txt", "x" * 300, "large"}
        assert found.fetched == 2
        del memory.store["/odd/a"]
        again = sync("memory://odd", tmp_path / "mirror")
        assert (tmp_path / "mirror" / "a" / "b.txt").read_bytes() == b"x"
        assert "a/b.txt" not in again.left_out
        del memory.store["/odd/a/b.txt"]
        memory.store["/odd/a"] = _file(memory, "/odd/a")
        sync("memory://odd", tmp_path / "mirror")
        assert (tmp_path / "mirror" / "a").read_bytes() == b"x"
    finally:
        memory.rm("/odd", recursive=True)


def test_a_source_that_breaks_off_is_one_sentence(tmp_path, monkeypatch):
    import fsspec

    memory = fsspec.filesystem("memory")
    memory.pipe_file("/off/a.txt", b"x")
    monkeypatch.setattr(type(memory), "get_file", lambda *_, **__: {}["no such region"])
    try:
        with pytest.raises(NightlyError, match=r"off/a\.txt cannot be read"):
            sync("memory://off", tmp_path / "mirror")
        assert not [p for p in (tmp_path / "mirror").rglob("*") if p.name != STAMPS]
    finally:
        memory.rm("/off", recursive=True)


def _get_file(memory, path, to):
    Path(to).write_bytes(memory.store[path].getvalue())


def _file(memory, name, data=b"x"):
    from fsspec.implementations.memory import MemoryFile

    return MemoryFile(memory, name, data)


@pytest.mark.filterwarnings("ignore")
def test_results_in_an_object_store(job, monkeypatch):
    pytest.importorskip("s3fs")
    server = pytest.importorskip("moto.server")
    import fsspec

    started = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    started.start()
    try:
        host, port = started.get_host_and_port()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.setenv(name, "test")
        monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        store = fsspec.filesystem("s3", skip_instance_cache=True)
        store.mkdir("calib-nightly")
        put(store, "calib-nightly/results/monday", job.campaign("monday"))
        job.config.write_text(
            job.config.read_text().replace('"results"', '"s3://calib-nightly/results"'), encoding="utf-8"
        )
        night = job.night()
        assert [c.digest is not None for c in night.record.campaigns] == [True]
        time.sleep(0.1)
        assert not job.night().new
    finally:
        started.stop()
        fsspec.config.conf.clear()
        shutil.rmtree(job.folder / "store")
