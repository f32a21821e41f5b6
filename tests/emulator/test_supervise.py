"""Every process that a demo starts ends with it, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from calib.emulator.supervise import descendants

linux = pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc")

# A client that has a child, and one that moved to a session of its own, as a daemon would.
FAMILY = "#!/bin/sh\nsleep 300 &\nsetsid sleep 300 &\nexec sleep 300\n"
SLEEPERS = 3


def alive(pids: list[int]) -> list[int]:
    found = []
    for pid in pids:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            continue
        found += [pid] if state != "Z" else []
    return found


def wait_for(condition: Callable[[], bool], what: str) -> None:
    limit = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < limit, what
        time.sleep(0.05)


def sleepers(of: int) -> list[int]:
    names = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in alive(descendants(of))}
    return [pid for pid, name in names.items() if name.startswith(b"sleep")]


def heed_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.fixture
def client(tmp_path: Path) -> Path:
    """A folder that looks like aiperf's environment, with a client that never ends."""
    command = tmp_path / "venv" / "bin" / "aiperf"
    command.parent.mkdir(parents=True)
    command.write_text(FAMILY)
    command.chmod(0o755)
    return tmp_path / "venv"


@pytest.fixture
def demo(tmp_path: Path, client: Path):
    """`calib demo` in the middle of its first run, with the client's whole family up."""
    command = [sys.executable, "-m", "calib", "demo", "--aiperf-venv", str(client), "--out", str(tmp_path / "out")]
    # Tests that run in the background of a shell inherit an ignored SIGINT; a terminal's Ctrl-C is what is meant here.
    pipes = {"stderr": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "preexec_fn": heed_interrupts}
    with subprocess.Popen(command, **pipes) as process:
        wait_for(lambda: len(sleepers(process.pid)) == SLEEPERS, "the demo does not start its client")
        family = descendants(process.pid)
        yield process
        process.kill()
        for pid in alive(family):  # only where a test failed, or killed what would have ended them
            os.kill(pid, signal.SIGKILL)


@linux
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_is_left_of_a_demo(demo, how):
    family = descendants(demo.pid)
    assert len(family) >= SLEEPERS + 2  # the engine's server and the client's supervisor
    os.kill(demo.pid, how)
    wait_for(lambda: not alive(family), f"left: {alive(family)}")
    out, err = demo.communicate()
    if how == signal.SIGINT:
        assert demo.returncode == 130
        assert "interrupted: 0 of 16 runs are kept; the same command goes on from there" in err
        assert "Traceback" not in err + out


@linux
def test_the_client_ends_and_the_demo_says_so_where_the_supervisor_itself_is_killed(demo):
    """The kernel ends the client then; what the client has started is its own business."""
    supervisor = next(p for p in descendants(demo.pid) if b"supervise" in Path(f"/proc/{p}/cmdline").read_bytes())
    (client,) = [
        p for p in descendants(supervisor) if Path(f"/proc/{p}/stat").read_text().split()[3] == str(supervisor)
    ][:1]
    os.kill(supervisor, signal.SIGKILL)
    wait_for(lambda: not alive([client]), "the client outlives its supervisor")
    _, err = demo.communicate()
    assert demo.returncode == 3
    assert "aiperf ended with -9" in err


@linux
def test_a_supervised_command_keeps_its_exit_code_and_leaves_no_orphan():
    script = "(setsid sleep 300 &) ; echo $$; exit 7"
    started = [sys.executable, "-P", "-m", "calib.emulator.supervise", "/bin/sh", "-c", script]
    with subprocess.Popen(started, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.wait(timeout=30) == 7
        session = int(process.stdout.readline())
    assert alive([session]) == []
