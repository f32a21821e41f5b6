"""Parquet files of the store: the runs of a campaign, and what its result files held, as read.

A part is named after its content and never changed; the database says which parts are in use.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from calib.errors import StoreError, printable
from calib.files import SHORT, sha256_bytes, write_beside
from calib.measure import COUNTS, MEASURES, RUN_COLUMNS

MEASUREMENTS, CACHE = "measurements", "cache"


def _kind(name: str) -> pa.DataType:
    if name in COUNTS or name == "source_row":
        return pa.int64()
    return pa.float64() if name in MEASURES else pa.string()


RUN_SCHEMA = pa.schema([("campaign_folder", pa.string()), *((name, _kind(name)) for name in RUN_COLUMNS)])
CACHE_SCHEMA = pa.schema([("unit", pa.string()), ("signature", pa.string()), ("payload", pa.binary())])


def runs_part(runs: pd.DataFrame, campaign: str) -> pa.Table:
    """The run table of a campaign as Arrow, with the folder it lies in."""
    columns: dict[str, list[object]] = {"campaign_folder": [campaign] * len(runs)}
    for name in RUN_COLUMNS:
        columns[name] = [_plain(v) for v in runs[name].tolist()]
    return pa.table(columns, schema=RUN_SCHEMA)


def _plain(value: object) -> object:
    if value is None or value is pd.NA or value != value:
        return None
    return printable(value) if isinstance(value, str) else value


def write_part(folder: Path, kind: str, campaign: str, table: pa.Table) -> tuple[str, str]:
    """Write a part below ``folder``; its name relative to it, and its digest. A whole one that is there is left as it is."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", store_schema=False, write_statistics=True)
    data = sink.getvalue().to_pybytes()
    digest = sha256_bytes(data)
    name = f"{kind}/{sha256_bytes(campaign.encode('utf-8', 'surrogatepass'))[:SHORT]}-{digest[:SHORT]}.parquet"
    path = folder / name
    if not is_whole(path):
        path.parent.mkdir(exist_ok=True)
        temporary = write_beside(path, data)
        try:
            os.rename(temporary, path)  # replaces a part that was torn
        except OSError:
            os.unlink(temporary)
            raise
    return name, digest


def read_part(path: Path, columns: list[str] | None = None) -> pa.Table:
    """A part, or some columns of it.

    Raises
    ------
    StoreError
        Missing or damaged.
    """
    try:
        return pq.read_table(path, columns=columns, partitioning=None)
    except (OSError, pa.ArrowException) as error:
        reason = (str(error).splitlines() or ["damaged"])[0]
        raise StoreError(f"cannot be read ({reason})", file=path, remedy="run `calib store rebuild`") from None


def cache_part(units: Mapping[str, tuple[str, bytes]]) -> pa.Table:
    """What the units of a campaign held: unit -> (signature, payload)."""
    names = sorted(units)
    return pa.table(
        {"unit": names, "signature": [units[n][0] for n in names], "payload": [units[n][1] for n in names]},
        schema=CACHE_SCHEMA,
    )


def is_whole(path: Path) -> bool:
    """Whether a part is what it was when it was written: its name ends with the digest of its content."""
    try:
        return path.stem.endswith(f"-{sha256_bytes(path.read_bytes())[:SHORT]}")
    except OSError:
        return False


def read_signatures(path: Path) -> dict[str, str] | None:
    """The signature of each unit in a cache part, without what they held; None where it is missing or damaged."""
    if not is_whole(path):
        return None
    try:
        table = read_part(path, ["unit", "signature"])
    except StoreError:
        return None
    if table.schema.names != ["unit", "signature"]:
        return None
    return dict(zip(table.column("unit").to_pylist(), table.column("signature").to_pylist(), strict=True))


def read_cache(path: Path) -> dict[str, tuple[str, bytes]]:
    """The units of a cache part; empty where it is missing or damaged, since a cache can be made again."""
    if not is_whole(path):
        return {}
    try:
        table = read_part(path)
    except StoreError:
        return {}
    if table.schema.names != CACHE_SCHEMA.names:
        return {}
    rows: Iterable[tuple[str, str, bytes]] = zip(
        *(table.column(n).to_pylist() for n in CACHE_SCHEMA.names), strict=True
    )
    return {unit: (signature, payload) for unit, signature, payload in rows}
