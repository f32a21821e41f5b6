"""Who, when, from which inputs; and files read and written so that nothing is lost."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, TypeVar

from calib.errors import CalibError, CampaignError, OutputError, printable

if TYPE_CHECKING:
    from pathlib import Path

# What only writing needs is imported there: a prediction service reads one file, and starts a fifth sooner for it.
Kind = TypeVar("Kind", bound=CalibError)

PACKAGE = os.path.dirname(os.path.abspath(__file__))
DATA = os.path.join(PACKAGE, "data")
SHORT = 12  # hex digits of a digest shown to people and used in folder names


def sha256_bytes(data: bytes) -> str:
    """Hex SHA-256 of ``data``."""
    import hashlib  # with OpenSSL behind it: only when something is really loaded

    return hashlib.sha256(data).hexdigest()


def read_bytes(path: str | Path, *, kind: type[CalibError] = CampaignError, limit: int = 512 * 2**20) -> bytes:
    """The content of ``path``, or an error of ``kind`` that says why not.

    Raises
    ------
    kind
        Missing, unreadable, or larger than ``limit`` bytes.
    """
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):  # a pipe or a device would be read for ever
            raise kind("cannot be read (it is not a regular file)", file=path, remedy="name a file")
        if (size := status.st_size) > limit:
            raise kind(
                f"is {size / 2**20:.0f} MiB, over the limit of {limit / 2**20:.0f} MiB",
                file=path,
                remedy="name a result file, not a trace or a payload dump",
            )
        with open(path, "rb") as stream:
            return stream.read()
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = error.strerror if isinstance(error, OSError) else error
        raise kind(
            f"cannot be read ({reason or error})",
            file=path,
            remedy="check the path and its permissions",
        ) from None


def file_digest(path: Path) -> str:
    """Hex SHA-256 of a file."""
    return sha256_bytes(read_bytes(path))


def now_utc() -> str:
    """The time as ISO 8601 UTC to the second. Never part of a digest."""
    import datetime as dt

    return dt.datetime.now(dt.UTC).replace(microsecond=0).isoformat().replace("+00:00", "Z")


def user_name() -> str:
    """Who ran this: ``CALIB_USER`` where it is set (a nightly job), else the login name."""
    if name := os.environ.get("CALIB_USER"):
        return printable(name)
    import getpass

    try:
        return printable(getpass.getuser())
    except (OSError, KeyError):  # a container without a passwd entry
        return "unknown"


def write_new(path: Path, data: bytes) -> bool:
    """Create ``path`` with ``data`` atomically; False (and nothing done) where it exists.

    Raises
    ------
    OutputError
        The folder is missing, full or read-only.
    """
    try:
        temporary = write_beside(path, data)
        try:
            # A hard link fails where the name is taken, in one step; a rename would replace the file.
            os.link(temporary, path)
        finally:
            os.unlink(temporary)
    except FileExistsError:
        return False
    except OSError as error:
        raise OutputError(
            f"cannot be written ({error.strerror or error}), and nothing was changed",
            file=path,
            remedy="choose a writable folder with --out, or free some space",
        ) from None
    return True


def write_beside(path: Path, data: bytes) -> str:
    """The name of a new hidden file in the folder of ``path`` that holds ``data``, on the disk before it gets its name.

    Raises
    ------
    OSError
        It could not be written; nothing is left.
    """
    import tempfile

    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, 0o644)
    except OSError:
        os.unlink(temporary)
        raise
    return temporary


def not_valid(error: Exception, what: str, *, kind: type[Kind], file: str | Path | None, remedy: str) -> Kind:
    """The error of a document that a decoder refused, naming the field where the decoder does."""
    problem, field = decode_problem(error)
    return kind(f"is not {what} ({problem})", file=file, field=field or None, remedy=remedy)


def decode_problem(error: Exception) -> tuple[str, str]:
    """What a decoder did not like, in lower case, and the path of the field ('' where it names none)."""
    problem, _, path = str(error).partition(" - at ")
    if isinstance(error, RecursionError):
        problem = "it is nested too deeply"
    if problem[1:2].islower():
        problem = problem[0].lower() + problem[1:]
    return problem, path.strip("`")
