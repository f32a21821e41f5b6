"""The store as its readers see it: read-only, whole, and as it was when it was opened."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa

from calib.errors import StoreError, UsageError
from calib.nightly.store.database import (
    DATABASE_NAME,
    TABLES,
    VERSION,
    connect,
    first_line,
    require_known,
    require_tables,
    understood,
    version_of,
)
from calib.nightly.store.parts import RUN_SCHEMA, read_part

if TYPE_CHECKING:
    import pandas as pd


_TRIES = 3


class Store:
    """A store, open for reading.

    A job that writes meanwhile is not seen: the database is the file that was opened. Tables are those of
    `calib.nightly.store.database` and ``runs``, the run table of every campaign with ``campaign_folder``.
    """

    def __init__(self, folder: Path, connection: duckdb.DuckDBPyConnection) -> None:
        self.folder = folder
        self._connection = connection

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        count = "SELECT (SELECT count(*) FROM campaigns), (SELECT count(*) FROM runs), (SELECT count(*) FROM nights)"
        campaigns, runs, nights = self._connection.execute(count).fetchone() or (0, 0, 0)
        return f"<Store {self.folder.name}: {campaigns} campaigns, {runs} runs, {nights} nights>"

    @property
    def runs(self) -> pd.DataFrame:
        """The run table of every campaign (`calib.measure.run_table`), with its folder; throughput in tok/s, latencies in ms."""
        return self.sql("SELECT * FROM runs ORDER BY ALL")

    def table(self, name: str) -> pd.DataFrame:
        """One table of the history, in an order that depends on its content alone."""
        return self.sql(f'SELECT * FROM "{name}" ORDER BY ALL')

    def sql(self, query: str) -> pd.DataFrame:
        """The result of a query, as a DataFrame.

        Raises
        ------
        UsageError
            The query is not valid, or would write.
        """
        try:
            result = self._connection.execute(query)
            return result.df() if result.description else self._connection.execute("SELECT 'done' AS result").df()
        except (duckdb.Error, UnicodeEncodeError) as error:
            raise UsageError(
                f"the query failed ({first_line(error)})", field="query", value=query,
                remedy=f"tables are runs, {', '.join(TABLES)}; the store is read-only",
            ) from None  # fmt: skip

    def close(self) -> None:
        """Let go of the files."""
        self._connection.close()


def open_store(folder: str | Path = "store", *, runs: bool = True) -> Store:
    """Open a store for reading, for a notebook or a query; without the table ``runs`` its parts are not looked at.

    Raises
    ------
    StoreError
        There is none, it is damaged, or another version of calib wrote it.
    """
    folder = Path(folder)
    for attempt in range(_TRIES):
        connection = connect(folder / DATABASE_NAME, read_only=True)
        try:
            with understood(folder / DATABASE_NAME):
                _prepare(connection, folder, runs)
        except StoreError:
            # Parts that are no longer in use may be cleared between the two reads: the next try sees the newer database.
            connection.close()
            if attempt == _TRIES - 1:
                raise
            continue
        return Store(folder, connection)
    raise AssertionError("unreachable")


def _prepare(connection: duckdb.DuckDBPyConnection, folder: Path, runs: bool) -> None:
    version, path = version_of(connection), folder / DATABASE_NAME
    require_known(version, path)
    if version < VERSION:
        raise StoreError(
            "is of an older schema", file=path, field="schema_version", value=version,
            remedy="run `calib nightly` or `calib store rebuild`, which bring it up to date",
        )  # fmt: skip
    require_tables(connection, path)
    if runs:
        parts = connection.execute("SELECT part FROM campaigns WHERE part IS NOT NULL ORDER BY campaign").fetchall()
        tables = [read_part(folder / part) for (part,) in parts]
        whole = pa.concat_tables([t.cast(RUN_SCHEMA) for t in tables]) if tables else RUN_SCHEMA.empty_table()
        connection.register("runs", whole)
    # A query may read the store and nothing else.
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
