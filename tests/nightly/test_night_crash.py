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

from calib.coefficients.releasing import release


def command(job, *more):
    return [sys.executable, "-m", "calib", "nightly", str(job.config), *more]


def released_files(job):
    return {p.name: p.read_bytes() for p in (job.folder / "released").iterdir()}


def prepared(job):
    """A night that is done, a release of it, and a second campaign to come."""
    job.campaign("monday")
    first = job.night()
    from calib.coefficients.file import CoefficientSet

    path = job.folder / "nights" / "reports" / first.record.campaigns[0].report / "coefficients-v1.json"
    release(CoefficientSet.load(path), job.folder / "released", why="first")
    job.campaign("tuesday")
    return released_files(job)


# Every change of a file's name or place counts; before the n-th, the process is killed. DuckDB writes in between by itself.
DYING = """
import atexit, os, signal, sys
last, done = int(sys.argv[1]), 0

def counted(real):
    def call(*given, **named):
        global done
        done += 1
        if done == last:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*given, **named)
    return call

for name in ("rename", "replace", "fsync", "mkdir", "unlink", "rmdir"):
    setattr(os, name, counted(getattr(os, name)))
atexit.register(lambda: print("WRITES", done))
sys.argv = ["calib", *sys.argv[2:]]
from calib.cli import main
main()
"""


class Crash:
    """A job that is about to do a night's work, as often as it is wanted."""

    def __init__(self, job, tmp_path):
        self.job, self.start = job, tmp_path / "start"
        self.released = prepared(job)
        shutil.copytree(job.folder, self.start)
        began = time.monotonic()
        done = self.dying(0)
        assert done.returncode == 0, done.stderr
        self.life = time.monotonic() - began
        self.writes = int(done.stdout.split("WRITES ")[1])
        self.want = job.dump()

    def dying(self, at):
        call = [sys.executable, "-c", DYING, str(at), "nightly", str(self.job.config)]
        return subprocess.run(call, check=False, capture_output=True, text=True)

    def again(self):
        shutil.rmtree(self.job.folder)
        shutil.copytree(self.start, self.job.folder)

    def kill_at_a_write(self, number):
        self.again()
        assert self.dying(number).returncode == -signal.SIGKILL
        self.rerun_loses_nothing()

    def kill_at_a_time(self, part):
        self.again()
        with subprocess.Popen(
            command(self.job), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        ) as victim:
            time.sleep(part * self.life)
            os.killpg(victim.pid, signal.SIGKILL)
        self.rerun_loses_nothing()

    def rerun_loses_nothing(self):
        assert released_files(self.job) == self.released
        done = subprocess.run(command(self.job), check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert self.job.dump() == self.want
        assert released_files(self.job) == self.released
        assert [str(p) for p in self.job.folder.rglob(".*")] == []


def test_a_killed_job_loses_nothing(job, tmp_path):
    crash, rng = Crash(job, tmp_path), random.Random(1)
    assert crash.writes > 20
    for number in rng.sample(range(1, crash.writes + 1), 3):
        crash.kill_at_a_write(number)
    for _ in range(2):
        crash.kill_at_a_time(rng.uniform(0.0, 1.0))


@pytest.mark.slow
def test_a_job_killed_at_many_points_loses_nothing(job, tmp_path):
    """At 24 random times, and before each of its writes."""
    crash, rng = Crash(job, tmp_path), random.Random(2)
    for _ in range(24):
        crash.kill_at_a_time(rng.uniform(0.0, 1.0))
    for number in range(1, crash.writes + 1):
        crash.kill_at_a_write(number)


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
