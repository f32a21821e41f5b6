"""``calib predict``: a CSV of points in, the same with predictions out. numpy and the standard library only."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from calib.coefficients import APPLIED_FIELD, BASELINE_FIELD, FIELDS, MODEL_FIELD, Predictor
from calib.errors import AlreadyAppliedError, PointError
from calib.files import read_bytes
from calib.names import DECIMAL

NUMBER = re.compile(DECIMAL, re.ASCII)
NUMBERS = ("tp", "pp", "dp", "isl", "osl", "concurrency", "balance_factor", BASELINE_FIELD, MODEL_FIELD)
OUTPUT = ("factor", "factor_stderr", "factor_low95", "factor_high95")
RATES = tuple(f"predicted_output_tokens_per_s{s}" for s in ("", "_stderr", "_low95", "_high95"))


def read_points(path: Path) -> dict[str, list[Any]]:
    """The columns of a CSV file of operating points.

    Raises
    ------
    PointError
        Unreadable, empty, ragged, or a number that is not one. A column that is empty throughout counts as left out.
    """
    try:
        text = read_bytes(path, kind=PointError).decode("utf-8-sig")
        reader = csv.reader(io.StringIO(text, newline=""), strict=True)
        header = [name.strip() for name in next(reader, [])]
        rows = [cells for cells in reader if cells]
    except UnicodeDecodeError as error:
        raise PointError(f"is not UTF-8 text (byte {error.start})", file=path, remedy="save it as UTF-8 CSV") from None
    except csv.Error as error:
        raise PointError(f"is not a CSV table ({error})", file=path, remedy="save it as CSV") from None
    if not rows:
        raise PointError("holds no points", file=path, remedy="add one line a point below the header")
    if APPLIED_FIELD in header:
        raise AlreadyAppliedError(
            "says that this table has been corrected before",
            file=path,
            field=APPLIED_FIELD,
            remedy="start from the uncorrected table",
        )
    for name in header:
        if header.count(name) > 1 or name not in FIELDS:
            twice = header.count(name) > 1
            raise PointError(
                "stands twice in the header" if twice else "is not a field of an operating point",
                file=path, field=name, remedy="keep one" if twice else f"use {', '.join(FIELDS)}",
            )  # fmt: skip
    if any(len(cells) != len(header) for cells in rows):
        raise PointError("has lines of different length", file=path, remedy="give every point every column")
    columns: dict[str, list[Any]] = {}
    for name, cells in zip(header, zip(*rows, strict=True), strict=True):
        if any(c.strip() for c in cells):
            columns[name] = [_number(c.strip(), name, path) for c in cells] if name in NUMBERS else list(cells)
    return columns


def csv_rows(predictor: Predictor, table: Mapping[str, Any], **options: Any) -> tuple[list[dict[str, Any]], list[str]]:
    """One row a point: the input, the factor [1] with its 95 % interval, and the throughput [tok/s] where one is given.

    ``options`` are those of `Predictor.factor`.
    """
    factor = predictor.factor(table, **options)
    made = dict(zip(OUTPUT, (factor.value, factor.stderr, factor.low, factor.high), strict=True))
    if BASELINE_FIELD in table or MODEL_FIELD in table:
        rate = predictor.throughput(table, **options)
        made |= dict(zip(RATES, (rate.value, rate.stderr, rate.low, rate.high), strict=True))
    rows = []
    for i in range(len(factor.value)):
        row = {k: _whole(v[i] if isinstance(v, list) else v) for k, v in table.items()}
        row |= {k: _known(float(v[i])) for k, v in made.items()}
        rows.append(row | {"flag": str(factor.flags[i]), APPLIED_FIELD: factor.applied})
    return rows, [*table, *made, "flag", APPLIED_FIELD]


def _number(cell: str, name: str, path: Path) -> float | None:
    if not cell and name == "concurrency":
        return None  # not stated for this point
    if not NUMBER.fullmatch(cell):
        raise PointError(
            "is not a number" if cell else "is empty for some points",
            file=path, field=name, value=cell, remedy="give a number for every point, or leave the column out",
        )  # fmt: skip
    return float(cell)


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


def _whole(value: Any) -> Any:
    """A count as it was written: 8, not 8.0."""
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 1e15 else value
