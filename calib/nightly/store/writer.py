"""The store as its one writer sees it: a copy, which replaces the database when it is complete."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd

from calib.errors import StoreError, printable
from calib.measure import Finding
from calib.nightly.store.database import (
    DATABASE_NAME,
    TABLES,
    connect,
    migrate,
    publish,
    remove_leftovers,
    require_tables,
    understood,
    working_copy,
    writing,
)
from calib.nightly.store.lock import StoreLock
from calib.nightly.store.parts import (
    CACHE,
    MEASUREMENTS,
    cache_part,
    read_cache,
    read_signatures,
    runs_part,
    write_part,
)

KEEP_S = 3600.0  # how long a part that is no longer in use stays, for readers of the database that named it


@dataclass(frozen=True)
class Stamp:
    """What tells that a file may have changed: its size [bytes] and its time [ns]; links and special files have size -1."""

    size: int
    mtime_ns: int


@dataclass(frozen=True)
class CampaignRow:
    """What the store knows of a campaign folder.

    ``fingerprint`` is of names, sizes and times; ``content`` of the digests of what was read; ``failure`` says why
    nothing could be read or fitted.
    """

    name: str
    fingerprint: str
    content: str
    runs: int
    cache: str | None
    failure: str | None


class Writer:
    """An open store that may be changed. Nothing is seen by others before `commit`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._path = folder / DATABASE_NAME
        self._committed_s = time.monotonic()
        self._open()

    def _open(self) -> None:
        with writing(self._path):
            self._copy = working_copy(self._path)
            self.connection: duckdb.DuckDBPyConnection = connect(self._copy, read_only=False)
            try:
                with understood(self._path):
                    migrate(self.connection, self._path)
                    require_tables(self.connection, self._path)
            except StoreError:
                self.close()
                raise

    def campaigns(self) -> dict[str, CampaignRow]:
        """Every campaign by its key."""
        query = "SELECT campaign, name, fingerprint, content, runs, cache, failure FROM campaigns ORDER BY campaign"
        return {key: CampaignRow(*rest) for key, *rest in self.connection.execute(query).fetchall()}

    def files(self, campaign: str) -> dict[str, tuple[Stamp, str | None]]:
        """The files of a campaign as they were seen, with their digest where they were read."""
        query = "SELECT path, size, mtime_ns, sha256 FROM files WHERE campaign = ?"
        rows = self.connection.execute(query, [campaign]).fetchall()
        return {path: (Stamp(size, mtime), sha) for path, size, mtime, sha in rows}

    def signatures(self, campaign: str) -> tuple[Path | None, dict[str, str]]:
        """The part that keeps a campaign's results, and the signature of each; None and nothing where it is missing."""
        part = self._cache_of(campaign)
        found = read_signatures(part) if part else None
        return (None, {}) if found is None else (part, found)

    def units(self, campaign: str) -> dict[str, tuple[str, bytes]]:
        """What the results of a campaign held when they were read: unit -> (signature, payload)."""
        part = self._cache_of(campaign)
        return read_cache(part) if part else {}

    def _cache_of(self, campaign: str) -> Path | None:
        row = self.connection.execute("SELECT cache FROM campaigns WHERE campaign = ?", [campaign]).fetchone()
        return self.folder / row[0] if row and row[0] else None

    def put_units(self, campaign: str, units: Mapping[str, tuple[str, bytes]]) -> Path:
        """Keep what the results of a campaign held; returns the part."""
        with writing(self.folder):
            name, _ = write_part(self.folder, CACHE, campaign, cache_part(units))
            self.connection.execute(
                "INSERT INTO campaigns (campaign, name, fingerprint, content, runs, cache) VALUES (?, '', '', '', 0, ?) "
                "ON CONFLICT (campaign) DO UPDATE SET cache = excluded.cache",
                [campaign, name],
            )
        return self.folder / name

    def put_campaign(
        self,
        campaign: str,
        row: CampaignRow,
        *,
        runs: pd.DataFrame | None,
        findings: Sequence[Finding],
        files: Mapping[str, tuple[Stamp, str | None]],
    ) -> None:
        """Replace everything known of a campaign."""
        with writing(self.folder):
            part = digest = None
            if runs is not None and len(runs):
                part, digest = write_part(self.folder, MEASUREMENTS, campaign, runs_part(runs, campaign))
            self.drop_campaign(campaign)
            self.insert(
                "campaigns",
                [(campaign, row.name, row.fingerprint, row.content, row.runs, part, digest, row.cache, row.failure)],
            )
            self.insert("files", [(campaign, p, s.size, s.mtime_ns, sha) for p, (s, sha) in sorted(files.items())])
            self.insert(
                "findings",
                [
                    (campaign, f.rule, f.verdict, f.subject, f.reason, f.source_file, f.source_row, f.seen, f.limit)
                    for f in findings
                ],
            )

    def drop_campaign(self, campaign: str) -> None:
        """Forget a campaign whose folder is gone; its history stays."""
        for table in ("campaigns", "files", "findings"):
            self.connection.execute(f"DELETE FROM {table} WHERE campaign = ?", [printable(campaign)])

    def insert(self, table: str, rows: Iterable[tuple[Any, ...]]) -> None:
        """Add rows to a table; text that cannot be stored is escaped."""
        clean = [tuple(printable(v) if isinstance(v, str) else v for v in row) for row in rows]
        if clean:
            frame = pd.DataFrame(clean, dtype=object)
            names = [c[0] for c in self.connection.execute(f"SELECT * FROM {table} LIMIT 0").description]
            frame.columns = pd.Index(names)
            casts = self.connection.execute(
                "SELECT column_name, data_type FROM duckdb_columns() WHERE table_name = ? ORDER BY column_index",
                [table],
            ).fetchall()
            chosen = ", ".join(f'CAST("{name}" AS {kind})' for name, kind in casts)
            self.connection.register("incoming", _arrow(frame, dict(casts)))
            try:
                self.connection.execute(f"INSERT INTO {table} SELECT {chosen} FROM incoming")
            finally:
                self.connection.unregister("incoming")

    def clear(self) -> None:
        """Forget everything; parts stay until `clear_unused`."""
        for table in TABLES:
            self.connection.execute(f"DELETE FROM {table}")

    def commit(self, *, every_s: float = 0.0) -> None:
        """Make everything since the last commit visible, at once; not where that was less than ``every_s`` seconds ago."""
        if time.monotonic() - self._committed_s < every_s:
            return
        with writing(self._path):
            self.connection.execute("CHECKPOINT")
            self.connection.close()
            publish(self._copy, self._path)
        self._committed_s = time.monotonic()
        self._open()

    def close(self) -> None:
        """Let go; what was not committed is gone."""
        with contextlib.suppress(duckdb.Error):
            self.connection.close()
        for left in (self._copy, self._copy.with_name(self._copy.name + ".wal")):
            with contextlib.suppress(OSError):
                left.unlink()

    def clear_unused(self, keep_s: float = KEEP_S) -> int:
        """Delete parts that the database no longer names; how many."""
        query = "SELECT part FROM campaigns WHERE part IS NOT NULL UNION SELECT cache FROM campaigns WHERE cache IS NOT NULL"
        used = {name for (name,) in self.connection.execute(query).fetchall()}
        removed = 0
        for path in (*self.folder.glob(f"{MEASUREMENTS}/*.parquet"), *self.folder.glob(f"{CACHE}/*.parquet")):
            with contextlib.suppress(OSError):
                if (
                    path.relative_to(self.folder).as_posix() not in used
                    and time.time() - path.stat().st_mtime >= keep_s
                ):
                    path.unlink()
                    removed += 1
        return removed


def _arrow(frame: pd.DataFrame, kinds: Mapping[str, str]) -> Any:
    import pyarrow as pa

    types = {"VARCHAR": pa.string(), "BIGINT": pa.int64(), "INTEGER": pa.int64(), "DOUBLE": pa.float64()}
    columns = {name: pa.array([_whole(v) for v in frame[name]], type=types[kinds[name]]) for name in frame.columns}
    return pa.table(columns)


def _whole(value: Any) -> Any:
    return None if value is None or value is pd.NA or value != value else value


@contextlib.contextmanager
def open_writer(folder: Path, *, wait_s: float = 0.0) -> Iterator[Writer]:
    """The store for writing, under its lock; what is not committed when the block ends is dropped.

    Raises
    ------
    OutputError
        Another job is writing and did not end within ``wait_s`` seconds, or the folder cannot be written.
    StoreError
        The database is damaged, or of a newer version.
    """
    with StoreLock(folder, wait_s):
        remove_leftovers(folder)
        writer = Writer(folder)
        try:
            yield writer
        finally:
            writer.close()
