"""Children that end with their parent, also where it is killed. Standard library only.

``python -m calib.emulator.supervise COMMAND...`` runs a command whose own children do not know us (aiperf starts several). It
holds a pipe whose other end is the parent's: the kernel closes that when the parent ends in whatever way, and then
everything below is killed. On Linux orphans further down come back to it (``PR_SET_CHILD_SUBREAPER``), and a parent's end is a
signal as well (``PR_SET_PDEATHSIG``).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import IO, NoReturn

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h
POLL_S = 0.1
PROC = Path("/proc")


def _prctl(option: int, value: int) -> None:
    """Linux's prctl; elsewhere nothing, where the pipe and the watch on the parent have to do."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def end_with_parent(parent: int | None = None) -> None:
    """End this process when ``parent``, the one that started it, ends: by a signal where there is one, else by looking."""
    parent = os.getppid() if parent is None else parent
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(POLL_S)
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name="watch-parent").start()


@contextlib.contextmanager
def supervised(
    command: Sequence[str], *, log: IO[bytes], cwd: Path, env: dict[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """A command below a supervisor, in a session of its own so that Ctrl-C reaches us first; ended on leaving."""
    started = [sys.executable, "-P", "-m", "calib.emulator.supervise", *command]
    with subprocess.Popen(
        started, stdin=subprocess.PIPE, stdout=log, stderr=log, cwd=cwd, env=env, start_new_session=True
    ) as process:
        try:
            yield process
        finally:
            assert process.stdin is not None
            with contextlib.suppress(OSError):
                process.stdin.close()  # which is how the supervisor knows
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()


def descendants(of: int) -> list[int]:
    """Processes below ``of``, from ``/proc``; empty where there is none."""
    below: dict[int, list[int]] = {}
    for entry in PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            stat = (entry / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            if stat[0] != "Z":
                below.setdefault(int(stat[1]), []).append(int(entry.name))
    found, todo = [], [of]
    while todo:
        children = below.get(todo.pop(), [])
        found += children
        todo += children
    return found


def _end_all(child: subprocess.Popen[bytes]) -> None:
    """Kill the command and everything below us, until nothing is left."""
    with contextlib.suppress(OSError):
        os.killpg(child.pid, signal.SIGKILL)
    for _ in range(50):
        left = descendants(os.getpid())
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if not left:
            return
        time.sleep(0.02)


def main() -> NoReturn:
    """Run the command until it or our parent ends."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    _prctl(PR_SET_PDEATHSIG, signal.SIGTERM)

    def in_child() -> None:
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

    with subprocess.Popen(
        sys.argv[1:], stdin=subprocess.DEVNULL, start_new_session=True, preexec_fn=in_child
    ) as child:  # no threads here yet, so preexec_fn is safe

        def stop(_: int, __: FrameType | None) -> None:
            _end_all(child)
            os._exit(1)

        for name in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(name, stop)
        while child.poll() is None:
            ready, _, _ = select.select([0], [], [], POLL_S)
            if ready and not os.read(0, 4096):
                stop(0, None)
        code = child.returncode
        _end_all(child)
    os._exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    main()
