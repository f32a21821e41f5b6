"""One writer at a time. The lock is the kernel's (flock), so a job that is killed leaves none behind."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from pathlib import Path
from types import TracebackType

from calib.errors import OutputError
from calib.files import now_utc

LOCK_NAME = "LOCK"
_PAUSE_S = 0.1


class StoreLock:
    """The lock of a store's folder, held inside a ``with`` block.

    Parameters
    ----------
    folder
        The store; made where it is missing.
    wait_s
        How long to wait for another job [s]; 0 says so at once.

    Raises
    ------
    OutputError
        Another job holds it (who and since when), or the folder cannot be written.
    """

    def __init__(self, folder: Path, wait_s: float = 0.0) -> None:
        self.path = folder / LOCK_NAME
        self._wait_s = wait_s
        self._handle: int | None = None

    def __enter__(self) -> StoreLock:
        handle: int | None = None
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
            self._acquire(handle)
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"process {os.getpid()} since {now_utc()}".encode(), 0)
        except OSError as error:
            if handle is not None:
                os.close(handle)
            if error.errno in (errno.EWOULDBLOCK, errno.EAGAIN):
                raise self._busy() from None
            raise OutputError(
                f"cannot be written ({error.strerror or error}), and nothing was changed",
                file=self.path.parent, remedy="make the store's folder writable, or free some space",
            ) from None  # fmt: skip
        self._handle = handle
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def _acquire(self, handle: int) -> None:
        deadline = time.monotonic() + self._wait_s
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise
            time.sleep(_PAUSE_S)

    def _busy(self) -> OutputError:
        holder = ""
        with contextlib.suppress(OSError):
            holder = self.path.read_text(encoding="utf-8", errors="replace")[:80]
        return OutputError(
            f"is in use by another job ({holder or 'just started'})", file=self.path.parent,
            remedy="run again when it has ended, or wait for it with --wait SECONDS",
        )  # fmt: skip
