"""Result folders behind a URL that fsspec knows: brought into a mirror, file by file, and only what changed."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from calib.errors import MissingExtraError, NightlyError, OutputError, printable
from calib.files import SHORT, sha256_bytes

STAMPS = ".calib-mirror.json"
SIZE_LIMIT = 8 * 2**30  # bytes of one file; per-request records of a long run reach a few GB
_FETCHING = ".calib-fetching."
_OURS = (errno.ENOSPC, errno.EROFS, errno.EFBIG, errno.EDQUOT)


@dataclass(frozen=True)
class Synced:
    """How many files were fetched, and which were left out: name below the source -> why."""

    fetched: int
    left_out: Mapping[str, str]


@dataclass(frozen=True)
class _Remote:
    """A file behind a URL, and what tells that it may have changed."""

    path: str
    stamp: str
    filesystem: Any


def is_url(source: str) -> bool:
    """Whether a source is a URL rather than a path."""
    return "://" in source


def mirror_of(store: Path, source: str) -> Path:
    """Where the files behind a URL are kept."""
    return store / "mirror" / sha256_bytes(source.encode())[:SHORT]


def sync(source: str, target: Path) -> Synced:
    """Bring the files behind ``source`` into ``target``.

    A file whose remote size and time (or ETag) are unchanged is not fetched again; one that is gone there is removed. Names
    that would leave the mirror, or that no file system has a place for, and files above `SIZE_LIMIT` are left out.

    Raises
    ------
    MissingExtraError
        The protocol needs a package that is not installed.
    NightlyError
        The source cannot be read.
    OutputError
        The mirror cannot be written.
    """
    listed, left_out = _list(source)
    fetched = 0
    try:
        target.mkdir(parents=True, exist_ok=True)
        for torn in target.rglob(f"{_FETCHING}*"):  # of a job that was killed
            torn.unlink()
        known = _known(target)
        for name in sorted(known.keys() - listed.keys()):
            _remove(target, name)
        for name, remote in sorted(listed.items()):
            if known.get(name) == remote.stamp and (target / name).is_file():
                continue
            try:
                _fetch(remote, target / name, source)
            except _OneFileError as error:
                left_out[name] = f"cannot be mirrored ({error})"
                continue
            fetched += 1
        stamps = {name: r.stamp for name, r in listed.items() if name not in left_out}
        _replace(target / STAMPS, msgspec.json.encode(stamps, order="sorted"))
    except OSError as error:
        raise OutputError(
            f"cannot be written ({error.strerror or error})", file=target, remedy="free some space or make it writable"
        ) from None
    return Synced(fetched, dict(sorted(left_out.items())))


def _list(source: str) -> tuple[dict[str, _Remote], dict[str, str]]:
    """The files below a source by name, and those that are left out."""
    import fsspec

    try:
        filesystem, root = fsspec.core.url_to_fs(source)
        entries = filesystem.find(root, detail=True)
    except ImportError as error:
        raise MissingExtraError(f"{source} needs a package ({error})", remedy="install it") from None
    except Exception as error:  # each protocol has errors of its own
        raise NightlyError(
            f"cannot be read ({_said(error)})", field="results", value=source, remedy="check address and credentials"
        ) from None
    found: dict[str, _Remote] = {}
    left_out: dict[str, str] = {}
    for path, info in entries.items():
        name = path[len(root) :].lstrip("/")
        parts = PurePosixPath(name).parts
        if not name or name.endswith("/") or parts[-1] == STAMPS:  # the marker of a folder, or a mirror's own
            continue
        if not _is_below(name):
            left_out[printable(name)] = "is no name of a file below the source"
        elif int(info.get("size") or 0) > SIZE_LIMIT:
            left_out[name] = f"holds {info['size'] / 2**30:.1f} GiB, over {SIZE_LIMIT // 2**30}"
        else:
            stamp = [
                info.get("size"),
                *(str(info[k]) for k in ("ETag", "LastModified", "mtime", "created") if k in info),
            ]
            found[name] = _Remote(path, msgspec.json.encode(stamp).decode(), filesystem)
    if not found:
        raise NightlyError("holds no files", field="results", value=source, remedy="check the address")
    return found, left_out


def _is_below(name: str) -> bool:
    """Whether a name is one of a file below the mirror."""
    return ".." not in PurePosixPath(name).parts and "\0" not in name and not name.startswith("/")


def _said(error: BaseException) -> str:
    return printable((str(error).splitlines() or [type(error).__name__])[0])


def _known(target: Path) -> dict[str, str]:
    try:
        known = msgspec.json.decode((target / STAMPS).read_bytes(), type=dict[str, str])
        return {name: stamp for name, stamp in known.items() if _is_below(name)}
    except (OSError, msgspec.DecodeError):
        return {}


def _remove(target: Path, name: str) -> None:
    """A file of the mirror, and the folders that are empty without it: its name may be a folder's, or the reverse, tonight."""
    with contextlib.suppress(OSError):
        (target / name).unlink()
        for folder in (target / name).parents:
            if folder == target:
                break
            folder.rmdir()


class _OneFileError(Exception):
    """What is wrong with one file, and with no other."""


# May not be read, gone meanwhile, or a name too long, or one of a file and a folder at once, as object stores allow.
_ONE_FILE = (PermissionError, FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError)


def _fetch(remote: _Remote, to: Path, source: str) -> None:
    temporary: Path | None = None
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=_FETCHING, dir=to.parent)
        os.close(handle)
        temporary = Path(name)
        _get(remote, temporary, source)
        os.replace(temporary, to)
    except OSError as error:
        if isinstance(error, PermissionError) or not (
            isinstance(error, _ONE_FILE) or error.errno == errno.ENAMETOOLONG
        ):
            raise
        raise _OneFileError(error.strerror or str(error)) from None
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def _get(remote: _Remote, to: Path, source: str) -> None:
    try:
        remote.filesystem.get_file(remote.path, str(to))
    except Exception as error:  # each protocol has errors of its own
        if isinstance(error, OSError) and error.errno in _OURS:
            raise
        if isinstance(error, _ONE_FILE):
            raise _OneFileError(_said(error)) from None
        raise NightlyError(
            f"{printable(remote.path)} cannot be read ({_said(error)})",
            field="results",
            value=source,
            remedy="run again",
        ) from None


def _replace(path: Path, data: bytes) -> None:
    handle, temporary = tempfile.mkstemp(prefix=".stamps.", dir=path.parent)
    with os.fdopen(handle, "wb") as stream:
        stream.write(data)
    os.replace(temporary, path)
