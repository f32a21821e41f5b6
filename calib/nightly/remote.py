"""Result folders behind a URL that fsspec knows: brought into a mirror, file by file, and only what changed."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from calib.errors import MissingExtraError, NightlyError, OutputError
from calib.provenance import SHORT, sha256_bytes

STAMPS = ".calib-mirror.json"
SIZE_LIMIT = 512 * 2**20  # bytes of one file, as for local ones


def is_url(source: str) -> bool:
    """Whether a source is a URL rather than a path."""
    return "://" in source


def mirror_of(store: Path, source: str) -> Path:
    """Where the files behind a URL are kept."""
    return store / "mirror" / sha256_bytes(source.encode())[:SHORT]


def sync(source: str, target: Path) -> int:
    """Bring the files behind ``source`` into ``target``; returns how many were fetched.

    A file whose remote size and time (or ETag) are unchanged is not fetched again; one that is gone there is removed.

    Raises
    ------
    MissingExtraError
        The protocol needs a package that is not installed.
    NightlyError
        The source cannot be read.
    OutputError
        The mirror cannot be written.
    """
    listed = _list(source)
    try:
        target.mkdir(parents=True, exist_ok=True)
        known = _known(target)
        wanted = {name: stamp for name, (_, stamp, _) in listed.items()}
        fetched = 0
        for name, (path, stamp, filesystem) in sorted(listed.items()):
            if known.get(name) == stamp and (target / name).is_file():
                continue
            _fetch(filesystem, path, target / name, source)
            known[name] = stamp
            fetched += 1
        for name in known.keys() - wanted.keys():
            with contextlib.suppress(FileNotFoundError):
                (target / name).unlink()
        _replace(target / STAMPS, msgspec.json.encode(wanted, order="sorted"))
        return fetched
    except OSError as error:
        raise OutputError(
            f"cannot be written ({error.strerror or error})", file=target, remedy="free some space or make it writable"
        ) from None


def _list(source: str) -> dict[str, tuple[str, str, Any]]:
    """Name below the source -> path, stamp and file system; names that would leave the mirror are refused."""
    import fsspec

    try:
        filesystem, root = fsspec.core.url_to_fs(source)
        entries = filesystem.find(root, detail=True)
    except ImportError as error:
        raise MissingExtraError(f"{source} needs a package ({error})", remedy="install it") from None
    except Exception as error:  # each protocol has errors of its own
        said = (str(error).splitlines() or [type(error).__name__])[0]
        raise NightlyError(
            f"cannot be read ({said})", field="results", value=source, remedy="check address and credentials"
        ) from None
    found: dict[str, tuple[str, str, Any]] = {}
    for path, info in entries.items():
        name = path[len(root) :].lstrip("/")
        parts = PurePosixPath(name).parts
        if not name or ".." in parts or "\0" in name or name.startswith("/") or parts[-1] == STAMPS:
            continue
        if int(info.get("size") or 0) > SIZE_LIMIT:
            continue
        stamp = [info.get("size"), *(str(info[k]) for k in ("ETag", "LastModified", "mtime", "created") if k in info)]
        found[name] = (path, msgspec.json.encode(stamp).decode(), filesystem)
    if not found:
        raise NightlyError("holds no files", field="results", value=source, remedy="check the address")
    return found


def _known(target: Path) -> dict[str, str]:
    try:
        return msgspec.json.decode((target / STAMPS).read_bytes(), type=dict[str, str])
    except (OSError, msgspec.DecodeError):
        return {}


def _fetch(filesystem: Any, path: str, to: Path, source: str) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=".fetch.", dir=to.parent)
    os.close(handle)
    try:
        try:
            filesystem.get_file(path, temporary)
        except OSError as error:
            if error.errno is not None and error.errno in (28, 30, 27, 122):  # full, read-only, too large, quota: ours
                raise
            raise NightlyError(
                f"{path} cannot be read ({error.strerror or error})", field="results", value=source, remedy="run again"
            ) from None
        os.replace(temporary, to)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)


def _replace(path: Path, data: bytes) -> None:
    handle, temporary = tempfile.mkstemp(prefix=".stamps.", dir=path.parent)
    with os.fdopen(handle, "wb") as stream:
        stream.write(data)
    os.replace(temporary, path)
