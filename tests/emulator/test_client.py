"""The whole loop with the real client: aiperf over HTTP against emulated engines, and the truth found again.

``pytest -m aiperf -n 0`` runs four configurations at two concurrencies (about five minutes); ``-m slow -n 0`` four at four, for a
law and for a cliff (a quarter of an hour each). aiperf is taken from the cache folder, or from ``CALIB_AIPERF_VENV``, and
installed where it is not there.
"""

from __future__ import annotations

import ipaddress
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from scipy import stats

from calib.emulator.client import ClientError, ensure_aiperf
from calib.emulator.demo import Demo, Progress, run_demo
from calib.emulator.scenarios import DEGREES, SCENARIOS
from calib.emulator.supervise import descendants
from calib.workflow import calibrate

TRUTH = 0.2


@pytest.fixture(scope="session")
def venv() -> Path:
    """An environment with aiperf; a reason to skip where there is none and none can be made."""
    given = os.environ.get("CALIB_AIPERF_VENV")
    try:
        return ensure_aiperf(Path(given) if given else None, lambda text: sys.stderr.write(f"{text}\n")).parent.parent
    except ClientError as error:
        pytest.skip(f"aiperf cannot be installed here: {error}")


def listening(pids: list[int]) -> set[str]:
    """Addresses on which these processes listen, from ``/proc``."""
    inodes = set()
    for pid in pids:
        for link in Path(f"/proc/{pid}/fd").glob("*"):
            try:
                inodes.add(os.readlink(link).removeprefix("socket:[").removesuffix("]"))
            except OSError:
                continue
    found = set()
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                raw = bytes.fromhex(fields[1].partition(":")[0])
                words = [raw[i : i + 4][::-1] for i in range(0, len(raw), 4)]  # each word in the order of the machine
                found.add(str(ipaddress.ip_address(b"".join(words))))
    return found


class Watch:
    """What a demo shows, and on which addresses its processes were seen to listen, looked at about once a second."""

    def __init__(self) -> None:
        self.addresses: set[str] = set()
        self._next = 0.0

    def __call__(self, _: Progress) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + 1.0
            self.addresses |= listening(descendants(os.getpid()))


def check_truth(demo: Demo, watch: Watch) -> None:
    """s within 0.02 of the truth, the truth within its 99.9 % interval, FIT; nothing but loopback."""
    result = calibrate(demo.folder)
    (fit,) = result.fit.series
    assert fit.verdict == "FIT", fit.reasons
    (s,), (stderr,) = fit.estimate.values, fit.estimate.stderr
    print(f"s = {s:.4f} +- {stderr:.4f}, 95 % {fit.estimate.interval95}")  # noqa: T201
    assert s == pytest.approx(TRUTH, abs=0.02)
    assert abs(s - TRUTH) <= stats.t.ppf(0.9995, fit.estimate.dof) * stderr
    assert len(result.campaign.runs) == len(demo.runs)
    assert "REJECT" not in {f.verdict for f in result.findings}
    check_addresses(watch)


def check_addresses(watch: Watch) -> None:
    assert watch.addresses
    assert all(ipaddress.ip_address(a).is_loopback for a in watch.addresses), watch.addresses


@pytest.mark.aiperf
def test_the_truth_is_found_through_aiperf_at_two_concurrencies(venv, tmp_path):
    watch = Watch()
    demo = Demo(
        SCENARIOS["clean-log2"],
        tmp_path / "demo",
        virtual=False,
        slowdown=1.5,
        concurrencies=(16, 24),
        aiperf_venv=venv,
    )
    begun = time.monotonic()
    run_demo(demo, show=watch, say=lambda _: None)
    print(f"{len(demo.runs)} runs of aiperf in {time.monotonic() - begun:.0f} s")  # noqa: T201
    check_truth(demo, watch)


@pytest.mark.slow
def test_the_truth_is_found_through_aiperf(venv, tmp_path):
    watch = Watch()
    demo = Demo(SCENARIOS["clean-log2"], tmp_path / "demo", virtual=False, aiperf_venv=venv)
    assert len(demo.runs) == len(DEGREES) * 4
    run_demo(demo, show=watch, say=lambda _: None)
    check_truth(demo, watch)


@pytest.mark.slow
def test_a_cliff_is_refused_through_aiperf(venv, tmp_path):
    watch = Watch()
    demo = Demo(SCENARIOS["cliff"], tmp_path / "demo", virtual=False, aiperf_venv=venv)
    run_demo(demo, show=watch, say=lambda _: None)
    (fit,) = calibrate(demo.folder).fit.series
    assert fit.verdict == "REFUSED"
    assert any("pp=4 is measured at 0.3" in reason for reason in fit.reasons)
    check_addresses(watch)


@pytest.mark.aiperf
@pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc")
def test_nothing_is_left_of_aiperf_where_the_demo_is_killed(venv, tmp_path):
    command = [sys.executable, "-m", "calib", "demo", "--aiperf-venv", str(venv), "--out", str(tmp_path / "out")]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as demo:
        limit = time.monotonic() + 120
        while len(family := descendants(demo.pid)) < 9:  # server, supervisor, aiperf and the processes it starts
            assert time.monotonic() < limit, f"aiperf has not started: {family}"
            time.sleep(0.1)
        os.kill(demo.pid, signal.SIGKILL)
    limit = time.monotonic() + 30
    while left := [p for p in family if is_alive(p)]:
        assert time.monotonic() < limit, f"left: {left}"
        time.sleep(0.1)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
