"""Table contracts, checked once where a table is born.

The run table is what `load_campaign` returns and a notebook works with: one row a run, the unit in every name.
"""

from __future__ import annotations

import re
from typing import Any

import pandas as pd
import pandera.pandas as pa

from calib.measure.columns import COUNTS, IDENTITY, MEASURES, RUN_COLUMNS, VERDICTS

_NULLABLE_TEXT = ("precision", "tool", "tool_version")


def _column(name: str) -> pa.Column:
    if name in COUNTS:
        return pa.Column("Int64", pa.Check.ge(1), nullable=name == "concurrency")
    if name in MEASURES:
        return pa.Column("float64", nullable=True)
    if name == "source_row":
        return pa.Column("int64", pa.Check.ge(0))
    if name == "verdict":
        return pa.Column(str, pa.Check.isin(VERDICTS))
    return pa.Column(object if name in _NULLABLE_TEXT else str, nullable=name in _NULLABLE_TEXT)


RUN_TABLE = pa.DataFrameSchema({name: _column(name) for name in RUN_COLUMNS}, strict=True, ordered=True)


def make_run_table(rows: list[dict[str, object]]) -> pd.DataFrame:
    """The run table of ``rows``, typed, in an order that depends on the rows alone.

    Raises
    ------
    pandera.errors.SchemaError
        A row breaks the contract: a fault of calib, since readers check what comes from files.
    """
    frame = pd.DataFrame(rows, columns=list(RUN_COLUMNS))
    kinds: dict[str, str] = {}
    for name in RUN_COLUMNS:
        if name in COUNTS:
            kinds[name] = "Int64"
        elif name in MEASURES:
            kinds[name] = "float64"
        elif name == "source_row":
            kinds[name] = "int64"
        elif name in _NULLABLE_TEXT:
            kinds[name] = "object"
        else:
            kinds[name] = "str"
    frame = frame.astype(kinds)
    order = [*IDENTITY, "source_file", "source_row"]
    frame = frame.sort_values(order, kind="stable", na_position="first", ignore_index=True, key=natural_key)
    return RUN_TABLE.validate(frame)


def natural_key(column: pd.Series) -> pd.Series:
    """Sort key that puts 8B before 14B: numbers inside text compare as numbers."""
    if column.dtype.kind in "iuf" or isinstance(column.dtype, pd.Int64Dtype):
        return column
    return column.map(lambda v: natural(v) if isinstance(v, str) else v)


def natural(text: str) -> str:
    """``text`` with its numbers padded, so that 8B sorts before 14B."""
    return re.sub(r"\d+(?:\.\d+)?", lambda m: f"{float(m[0]):016.4f}", text)


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a frame as dicts by column name."""
    return [{str(k): v for k, v in row.items()} for row in frame.to_dict("records")]
