"""A table that can be written in any format: raw values, and how each column is shown."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from calib.errors import printable
from calib.names import unknown_value

if TYPE_CHECKING:
    import pandas as pd

    from calib.coefficients import Estimate


def json_value(value: Any) -> Any:
    """A cell as JSON has it: a plain number or text, null where it is not known."""
    if unknown_value(value):
        return None
    if type(value).__module__ == "numpy" and getattr(value, "shape", None) == ():
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


DECIMALS = {"ratio": 3, "ratio4": 4, "points": 1, "percent": 0}
NUMERIC = (*DECIMALS, "int", "p", "plain")


@dataclass(frozen=True)
class Column:
    """One column: key in the rows, heading with its unit, and the kind of its values."""

    key: str
    label: str
    kind: str = "text"

    @property
    def numeric(self) -> bool:
        """Whether the column is set flush right."""
        return self.kind in NUMERIC


# What tells one configuration from another, in most tables.
CONFIGURATION = (
    Column("backend", "backend"),
    Column("model", "model"),
    Column("tp", "TP", "int"),
    Column("pp", "PP", "int"),
    Column("concurrency", "C [requests]", "int"),
)


_TOLD_APART = (
    Column("backend_version", "version"), Column("precision", "precision"), Column("gpus", "GPUs", "int"),
    Column("isl", "ISL [tokens]", "int"), Column("osl", "OSL [tokens]", "int"),
)  # fmt: skip


def varying(points: pd.DataFrame) -> tuple[Column, ...]:
    """What else than backend and model tells the series of some points apart: a column for each such field."""
    if points.empty:
        return ()
    own = points.groupby(["backend", "model"], dropna=False)
    return tuple(c for c in _TOLD_APART if c.key in points and (own[c.key].nunique(dropna=False) > 1).any())


@dataclass(frozen=True)
class Table:
    """Rows of raw values with their columns; ``empty`` is the sentence shown instead of no rows."""

    name: str
    title: str
    note: str
    columns: tuple[Column, ...]
    rows: tuple[Mapping[str, Any], ...]
    empty: str = "There is nothing to show."

    @property
    def filled(self) -> tuple[Column, ...]:
        """The columns, without those of sentences that no row has."""
        return tuple(
            c for c in self.columns if c.kind != "long" or any(cell_text(r.get(c.key), c.kind) for r in self.rows)
        )

    def cells(self, row: Mapping[str, Any], columns: tuple[Column, ...] | None = None) -> list[str]:
        """One row as it is shown, in all or in some columns."""
        return [cell_text(row.get(c.key), c.kind) for c in columns or self.columns]


def cell_text(value: Any, kind: str) -> str:
    """A value as text; empty where it is not known."""
    if unknown_value(value):
        return ""
    if kind in DECIMALS:
        text = f"{float(value):.{DECIMALS[kind]}f}"
        return "0" + text[2:] if text.startswith("-0") and float(text) == 0 else text
    if kind == "int":
        return f"{int(value)}"
    if kind == "p":
        return "< 1e-6" if value < 1e-6 else f"{float(value):.2g}"
    if kind == "plain":
        return f"{float(value):g}"
    return printable(str(value))


def parameter_text(e: Estimate) -> str:
    """The parameters with their standard errors [1], as a title or a cell has them."""
    parts = []
    for i, (name, value) in enumerate(zip(e.parameters, e.values, strict=True)):
        error = e.stderr[i] if e.stderr else None
        digits = 3 if error is None or error <= 0 else min(6, max(3, 1 - math.floor(math.log10(error))))
        parts.append(f"{name} = {value:.{digits}f}" + ("" if error is None else f" ± {error:.{digits}f}"))
    return ", ".join(parts)
