"""The DuckDB file: its schema, versioned, and how it is changed without a reader ever seeing half of it.

DuckDB lets no other process read a file while one writes it. A writer therefore works on a copy, which is renamed over the
database when it is complete and on the disk; readers open the database read-only and keep the file they opened.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa

from calib.errors import OutputError, StoreError

DATABASE_NAME = "history.duckdb"

# One script a version, applied in order. A script is never edited once it was released: add the next one.
MIGRATIONS = (
    """
    CREATE TABLE campaigns (
        campaign VARCHAR PRIMARY KEY, name VARCHAR, fingerprint VARCHAR, content VARCHAR, runs INTEGER, part VARCHAR,
        part_sha256 VARCHAR, cache VARCHAR, failure VARCHAR);
    CREATE TABLE files (
        campaign VARCHAR, path VARCHAR, size BIGINT, mtime_ns BIGINT, sha256 VARCHAR, PRIMARY KEY (campaign, path));
    CREATE TABLE findings (
        campaign VARCHAR, rule VARCHAR, verdict VARCHAR, subject VARCHAR, reason VARCHAR, source_file VARCHAR,
        source_row INTEGER, seen DOUBLE, "limit" DOUBLE);
    CREATE TABLE nights (night INTEGER PRIMARY KEY, digest VARCHAR, made_at VARCHAR, folder VARCHAR, record_sha256 VARCHAR);
    CREATE TABLE coefficient_sets (
        night INTEGER, campaign VARCHAR, digest VARCHAR, file VARCHAR, rules VARCHAR, revision VARCHAR);
    CREATE TABLE coefficients (
        night INTEGER, campaign VARCHAR, system VARCHAR, backend VARCHAR, backend_version VARCHAR, model VARCHAR,
        "precision" VARCHAR, parameter VARCHAR, value DOUBLE, stated_stderr DOUBLE, chi_square DOUBLE, dof INTEGER,
        n INTEGER, verdict VARCHAR);
    CREATE TABLE accuracy (
        night INTEGER, campaign VARCHAR, system VARCHAR, backend VARCHAR, backend_version VARCHAR, model VARCHAR,
        "precision" VARCHAR, tp INTEGER, pp INTEGER, concurrency INTEGER, isl INTEGER, osl INTEGER, measured DOUBLE,
        predicted DOUBLE, rel_error DOUBLE, baseline_rel_error DOUBLE, k_model DOUBLE);
    """,
    """
    CREATE TABLE alarms (
        night INTEGER, id VARCHAR, kind VARCHAR, scope VARCHAR, series VARCHAR, state VARCHAR, opened INTEGER, text VARCHAR,
        acknowledged VARCHAR);
    CREATE TABLE acks (id VARCHAR, made_at VARCHAR, made_by VARCHAR, why VARCHAR);
    """,
    "ALTER TABLE accuracy ADD COLUMN explained DOUBLE;",
)
VERSION = len(MIGRATIONS)
TABLES = (
    "campaigns", "files", "findings", "nights", "coefficient_sets", "coefficients", "accuracy", "alarms", "acks",
)  # fmt: skip


def version_of(connection: duckdb.DuckDBPyConnection) -> int:
    """The schema version of an open database; 0 for an empty one."""
    known = connection.execute("SELECT count(*) FROM duckdb_tables() WHERE table_name = 'meta'").fetchone()
    if not known or not known[0]:
        return 0
    row = connection.execute("SELECT schema_version FROM meta").fetchone()
    return int(row[0]) if row else 0


def migrate(connection: duckdb.DuckDBPyConnection, file: Path, to: int = VERSION) -> None:
    """Bring a database to schema version ``to``.

    Raises
    ------
    StoreError
        It was written by a newer calib.
    """
    version = version_of(connection)
    require_known(version, file)
    for number in range(version, to):
        connection.execute("BEGIN")
        connection.execute(MIGRATIONS[number])
        connection.execute("CREATE OR REPLACE TABLE meta (schema_version INTEGER)")
        connection.execute("INSERT INTO meta VALUES (?)", [number + 1])
        connection.execute("COMMIT")


def require_known(version: int, file: Path) -> None:
    """Raise where a schema is newer than this calib, or none."""
    if version < 0:
        raise StoreError(
            "is no version of a store", file=file, field="schema_version", value=version,
            remedy="delete it and run `calib store rebuild`",
        )  # fmt: skip
    if version > VERSION:
        raise StoreError(
            f"was written by a newer calib, which this one cannot read (it knows up to {VERSION})", file=file,
            field="schema_version", value=version, remedy="install that version, or delete the store and rebuild it",
        )  # fmt: skip


def require_tables(connection: duckdb.DuckDBPyConnection, file: Path) -> None:
    """Raise where an up-to-date database has other tables or columns than calib makes."""
    query = "SELECT table_name, column_name, data_type FROM duckdb_columns() WHERE NOT internal ORDER BY ALL"
    own = duckdb.connect(":memory:")
    try:
        migrate(own, file)
        want = own.execute(query).fetchall()
    finally:
        own.close()
    if connection.execute(query).fetchall() != want:
        raise StoreError(
            "is not calib's store, or was altered (other tables or columns)", file=file,
            remedy="delete it and run `calib store rebuild`",
        )  # fmt: skip


def connect(path: Path, *, read_only: bool) -> duckdb.DuckDBPyConnection:
    """Open a database file.

    Raises
    ------
    StoreError
        It is missing, damaged, or no database.
    """
    try:
        return duckdb.connect(
            str(path),
            read_only=read_only,
            config={"threads": 2, "memory_limit": "1GB", "autoinstall_known_extensions": False},
        )
    except duckdb.Error as error:
        if read_only and not path.exists():
            raise StoreError("is not there", file=path, remedy="run `calib nightly` or `calib store rebuild`") from None
        raise StoreError(
            f"cannot be opened ({first_line(error)})", file=path, remedy="delete it and run `calib store rebuild`"
        ) from None


def first_line(error: BaseException) -> str:
    """The first line of a library's message, without its full stop."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")


@contextlib.contextmanager
def understood(path: Path) -> Iterator[None]:
    """Whatever a library says of a database or a part that is valid and no store's, as `StoreError`."""
    try:
        yield
    except (duckdb.IOException, duckdb.OutOfMemoryException):
        raise
    except (duckdb.Error, pa.ArrowException, TypeError, ValueError, KeyError) as error:
        raise StoreError(
            f"is not calib's store, or was altered ({first_line(error)})", file=path,
            remedy="delete it and run `calib store rebuild`",
        ) from None  # fmt: skip


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Disk errors of the libraries as `OutputError`."""
    try:
        yield
    except (OSError, duckdb.IOException, duckdb.OutOfMemoryException) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or first_line(error)
        raise OutputError(
            f"cannot be written ({reason}), and what was there is unchanged", file=path,
            remedy="free some space or make the folder writable, and run again",
        ) from None  # fmt: skip


def working_copy(path: Path) -> Path:
    """A copy of the database (or a new name, where there is none) that only this process knows."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    os.close(handle)
    copy = Path(name)
    if path.exists():
        shutil.copyfile(path, copy)
    else:
        copy.unlink()
    return copy


def publish(copy: Path, path: Path) -> None:
    """Rename a complete copy over the database, once its bytes are on the disk."""
    _sync(copy, os.O_RDWR)
    copy.chmod(0o644)
    copy.rename(path)
    _sync(path.parent, os.O_RDONLY)


def _sync(path: Path, flags: int) -> None:
    handle = os.open(path, flags)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove_leftovers(folder: Path) -> None:
    """Delete what killed writers left; only under the lock."""
    for left in (*folder.glob(f".{DATABASE_NAME}.*"), *folder.glob("*/.*.tmp")):
        with contextlib.suppress(OSError):
            left.unlink()
