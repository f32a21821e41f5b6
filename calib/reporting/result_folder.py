"""A folder of results made whole or not at all, and what a killed job has left there removed."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from calib.errors import OutputError

_TORN = re.compile(r"\.\d{4,}-.*-[0-9a-f]{12}\.[a-z0-9_]{8}")


def require_room(folder: Path) -> None:
    """Say at once, and not after seconds of drawing, where ``folder`` cannot be made."""
    try:
        if folder.exists():
            raise taken(folder)
        parent = next(p for p in folder.absolute().parents if p.exists())
    except OSError as error:
        raise unwritable(folder, error) from None
    if not parent.is_dir():
        raise unwritable(folder, NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)))
    if not os.access(parent, os.W_OK):
        raise unwritable(folder, PermissionError(errno.EACCES, os.strerror(errno.EACCES)))


def taken(folder: Path) -> OutputError:
    """The error of a folder that holds other results."""
    return OutputError(
        "holds other or incomplete results and is not overwritten",
        file=folder,
        remedy="move it away, or choose another folder with --out",
    )


def unwritable(folder: Path, error: OSError) -> OutputError:
    """The error of a folder that cannot be written."""
    return OutputError(
        f"cannot be written ({error.strerror or error}), and nothing was changed",
        file=folder,
        remedy="choose a writable folder with --out, or free some space",
    )


def write_folder(folder: Path, contents: Mapping[str, bytes]) -> bool:
    """Create ``folder`` with ``contents`` in one step; False where the name is taken, with nothing changed."""
    temporary: Path | None = None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        temporary.chmod(0o755)
        for name, data in contents.items():
            (temporary / name).parent.mkdir(exist_ok=True)
            (temporary / name).write_bytes(data)
        if folder.exists():
            return False
        try:
            temporary.rename(folder)
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):  # another job was faster
                return False
            raise
    except OSError as error:
        raise unwritable(folder, error) from None
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)
    return True


def remove_torn(parent: Path) -> None:
    """Delete what a `write_folder` that was killed has left in ``parent``; only where nobody else writes there."""
    with contextlib.suppress(OSError):
        for left in parent.iterdir():
            if _TORN.fullmatch(left.name):
                shutil.rmtree(left, ignore_errors=True)
