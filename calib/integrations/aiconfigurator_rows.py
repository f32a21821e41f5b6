"""The rows of a table of the ``aiconfigurator`` command, checked and typed."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping
from typing import Any

from calib.coefficients import (
    APPLIED_FIELD,
)
from calib.errors import AlreadyAppliedError, PointError

COUNTS = ("isl", "osl", "concurrency", "tp", "pp", "dp", "num_total_gpus")
COLUMNS = ("model", *COUNTS, "tokens/s", "tokens/s/gpu", "backend", "version", "system")
NO_COLUMNS = "is not a table of the aiconfigurator command"


def parse_results(text: str, *, file: str | None = None) -> tuple[tuple[str, ...], list[dict[str, Any]]]:
    """Header and rows of such a table, counts as whole numbers and throughputs [tok/s] as numbers.

    Raises
    ------
    PointError
        A column is missing, or a cell is not the number it must be.
    AlreadyAppliedError
        The table was corrected before.
    """
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        header, rows = tuple(reader.fieldnames or ()), list(reader)
    except csv.Error as error:
        raise PointError(
            f"is not a CSV table ({error})", file=file, remedy="give pareto.csv as it was written"
        ) from None
    if APPLIED_FIELD in header:
        raise AlreadyAppliedError(
            "says that this table has been corrected before", file=file, field=APPLIED_FIELD,
            remedy="start from the table as the aiconfigurator command wrote it",
        )  # fmt: skip
    if missing := [c for c in COLUMNS if c not in header]:
        raise PointError(
            f"{NO_COLUMNS}: column missing", file=file, field=missing[0],
            remedy="give its pareto.csv or best_config_topn.csv",
        )  # fmt: skip
    if not rows:
        raise PointError("holds no rows", file=file, remedy="give a table with at least one configuration")
    return header, [_parsed(row, number, file) for number, row in enumerate(rows, start=2)]


def _parsed(row: Mapping[str | None, Any], number: int, file: str | None) -> dict[str, Any]:
    if None in row or None in row.values():
        raise PointError(
            f"line {number} has another number of cells than the header", file=file, remedy="correct the line"
        )
    made: dict[str, Any] = {str(k): v for k, v in row.items()}
    for name in (*COUNTS, "tokens/s", "tokens/s/gpu"):
        try:
            value = float(made[name])
            good = math.isfinite(value) and value > 0 and (name not in COUNTS or value.is_integer())
        except ValueError:
            good = False
        if not good:
            raise PointError(
                f"line {number} is not a positive {'whole ' if name in COUNTS else ''}number", file=file, field=name,
                value=made[name], remedy="correct the line",
            )  # fmt: skip
        made[f"_{name}"] = int(value) if name in COUNTS else value
    return made


def _series(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return (
        *(row[k] for k in ("model", "system", "backend", "version")),
        row["_isl"],
        row["_osl"],
        row["_tp"] * row["_pp"],
    )


def _shape(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return (*_series(row), row["_tp"], row["_pp"], row["_dp"])
