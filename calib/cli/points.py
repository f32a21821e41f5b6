"""``calib predict``: a CSV of points in, the same with predictions out. numpy and the standard library only."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from calib.errors import PointError
from calib.operating_points import BASELINE_FIELD, MODEL_FIELD
from calib.predict import Predictor
from calib.provenance import read_bytes

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
    text = read_bytes(path, kind=PointError).decode("utf-8-sig", "replace")
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        rows = list(reader)
    except csv.Error as error:
        raise PointError(f"is not a CSV table ({error})", file=path, remedy="save it as CSV") from None
    if not rows:
        raise PointError("holds no points", file=path, remedy="add one line a point below the header")
    columns: dict[str, list[Any]] = {}
    for name in reader.fieldnames or ():
        cells = [row[name] for row in rows]
        if None in cells or any(None in row for row in rows):
            raise PointError("has lines of different length", file=path, remedy="give every point every column")
        if any(c.strip() for c in cells):
            columns[name.strip()] = (
                [_number(c, name.strip(), path) for c in cells] if name.strip() in NUMBERS else cells
            )
    return columns


def predict_rows(
    file: Path, table: Mapping[str, Any], allow_refused: Collection[str]
) -> tuple[list[dict[str, Any]], list[str]]:
    """One row a point: the input, the factor [1] with its 95 % interval, and the throughput [tok/s] where a baseline is given."""
    predictor = Predictor.load(file)
    factor = predictor.factor(table, allow_refused=allow_refused)
    made = dict(zip(OUTPUT, (factor.value, factor.stderr, factor.low, factor.high), strict=True))
    if BASELINE_FIELD in table or MODEL_FIELD in table:
        rate = predictor.throughput(table, allow_refused=allow_refused)
        made |= dict(zip(RATES, (rate.value, rate.stderr, rate.low, rate.high), strict=True))
    rows = []
    for i in range(len(factor.value)):
        row = {k: v[i] if isinstance(v, list) else v for k, v in table.items()}
        row |= {k: _known(float(v[i])) for k, v in made.items()}
        rows.append(row | {"flag": str(factor.flags[i]), "calib_applied": factor.applied})
    return rows, [*table, *made, "flag", "calib_applied"]


def _number(cell: str, name: str, path: Path) -> float:
    try:
        return float(cell)
    except ValueError:
        raise PointError(
            "is not a number" if cell.strip() else "is empty for some points",
            file=path, field=name, value=cell, remedy="give a number for every point, or leave the column out",
        ) from None  # fmt: skip


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value
