"""The job is killed at any point of its life, and loses nothing; a full disk loses nothing either."""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time

import pytest

from calib.release import release

KILLS = 5


def command(job, *more):
    return [sys.executable, "-m", "calib", "nightly", str(job.config), *more]


def released_files(job):
    return {p.name: p.read_bytes() for p in (job.folder / "released").iterdir()}


def prepared(job):
    """A night that is done, a release of it, and a second campaign to come."""
    job.campaign("monday")
    first = job.night()
    from calib.coefficients import CoefficientSet

    path = job.folder / "nights" / "reports" / first.record.campaigns[0].report / "coefficients-v1.json"
    release(CoefficientSet.load(path), job.folder / "released", why="first")
    job.campaign("tuesday")
    return released_files(job)


def kill_and_rerun(job, tmp_path, kills, seed):
    before = prepared(job)
    start = tmp_path / "start"
    shutil.copytree(job.folder, start)
    began = time.monotonic()
    assert subprocess.run(command(job), check=False, capture_output=True).returncode == 0
    life = time.monotonic() - began
    want, rng = job.dump(), random.Random(seed)
    for _ in range(kills):
        shutil.rmtree(job.folder)
        shutil.copytree(start, job.folder)
        with subprocess.Popen(
            command(job), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        ) as victim:
            time.sleep(rng.uniform(0.2, 1.0) * life)
            os.killpg(victim.pid, signal.SIGKILL)
        assert released_files(job) == before
        done = subprocess.run(command(job), check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert job.dump() == want
        assert released_files(job) == before
        assert not [p for p in (job.folder / "store").iterdir() if p.name.startswith(".")]


def test_a_killed_job_loses_nothing(job, tmp_path):
    kill_and_rerun(job, tmp_path, KILLS, seed=1)


@pytest.mark.slow
def test_a_job_killed_at_many_points_loses_nothing(job, tmp_path):
    kill_and_rerun(job, tmp_path, 24, seed=2)


def test_a_full_disk_ends_with_exit_3_and_loses_nothing(job):
    """A limit on the size of a file is the nearest thing to a full disk that needs no file system of one's own."""
    before = prepared(job)
    want = job.dump()
    for size in (100, 50_000, 400_000):

        def limit(size=size):
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

        done = subprocess.run(command(job), check=False, capture_output=True, text=True, preexec_fn=limit)
        assert done.returncode == 3, (size, done.stderr)
        assert "cannot be written" in done.stderr
        assert "Traceback" not in done.stderr
        assert job.dump() == want
        assert released_files(job) == before
    assert subprocess.run(command(job), check=False, capture_output=True).returncode == 0
