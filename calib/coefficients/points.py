"""Operating points as a prediction service gives them, checked and reduced to distinct configurations. numpy only."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from calib.arrays import Array
from calib.coefficients.point_columns import (
    TEXT_FIELDS,
    balance_column,
    common_length,
    count_column,
    grouped,
    labels_of,
    raw_column,
    text_column,
    unstated_as_zero,
)
from calib.errors import AlreadyAppliedError, PointError

COUNT_FIELDS = ("tp", "pp", "isl", "osl")
OPTIONAL_FIELDS = ("precision", "dp", "concurrency", "balance_factor")
BASELINE_FIELD = "baseline_output_tokens_per_s"
MODEL_FIELD = "model_output_tokens_per_s"
APPLIED_FIELD = "calib_applied"
NOT_APPLIED = "none"  # what `APPLIED_FIELD` says where correction was turned off
QUANTITIES = (BASELINE_FIELD, MODEL_FIELD)
FIELDS = (*TEXT_FIELDS, *COUNT_FIELDS, *OPTIONAL_FIELDS, *QUANTITIES)


class Points(Protocol):
    """A table of operating points: a dict of arrays or scalars, or a DataFrame."""

    def __contains__(self, key: object, /) -> bool: ...
    def __getitem__(self, key: str, /) -> Any: ...


class PointKey(msgspec.Struct, frozen=True):
    """One distinct configuration; ``concurrency`` 0 where it is not stated."""

    model: str
    system: str
    backend: str
    backend_version: str
    precision: str | None
    tp: int
    pp: int
    isl: int
    osl: int
    dp: int
    concurrency: int

    def describe(self) -> str:
        c = f" at concurrency {self.concurrency}" if self.concurrency else ""
        p = f" ({self.precision})" if self.precision else ""
        return f"{self.model}{p} on {self.backend} {self.backend_version} / {self.system} at TP{self.tp}/PP{self.pp}{c}"


class CalibratedArray(np.ndarray):
    """Numbers that a coefficient file was applied to; they, their slices and what is computed from them say so.

    ``calib_applied`` is the digest of that file, so that `Predictor.throughput` can refuse to correct them again.
    """

    calib_applied: str

    @classmethod
    def of(cls, values: Array, applied: str) -> CalibratedArray:
        """``values`` with the mark; no copy."""
        marked = values.view(cls)
        marked.calib_applied = applied
        return marked

    def __array_finalize__(self, obj: Any) -> None:
        self.calib_applied = getattr(obj, "calib_applied", "")


class PointTable(msgspec.Struct, frozen=True):
    """The points, checked and reduced: the distinct configurations, each with its first row, and which one each point has."""

    n: int
    own_balance: Array | None
    distinct: list[tuple[int, PointKey]]
    inverse: NDArray[Any]

    @classmethod
    def parse(cls, points: Points) -> PointTable:
        """Check a table and find its distinct configurations.

        Raises
        ------
        PointError
            A field is missing, empty, not a possible value, or of another length.
        AlreadyAppliedError
            The table says that a coefficient file was applied to it.
        """
        _require_uncorrected(points)
        if missing := [name for name in (*TEXT_FIELDS, *COUNT_FIELDS) if name not in points]:
            raise PointError("is missing", field=missing[0], remedy=f"a point states {', '.join(missing)} as well")
        texts = {name: text_column(name, points[name]) for name in (*TEXT_FIELDS, "precision") if name in points}
        given = {name: points[name] for name in (*COUNT_FIELDS, *OPTIONAL_FIELDS, *QUANTITIES) if name in points}
        raw = {name: raw_column(name, v) for name, v in given.items() if name != "precision"}
        n = common_length({name: c for name, (_, c) in texts.items()} | raw)
        counts = {name: count_column(name, raw[name]) for name in COUNT_FIELDS}
        counts["dp"] = count_column("dp", raw.get("dp", np.int64(1)))
        counts["concurrency"] = count_column(
            "concurrency", unstated_as_zero(raw.get("concurrency", np.int64(0))), zero=True
        )
        labelled: dict[str, tuple[list[Any], NDArray[np.intp]]] = {**texts} | {
            name: labels_of(values) for name, values in counts.items()
        }
        first, inverse = grouped([(len(labels), codes) for labels, codes in labelled.values()], n)
        distinct = []
        for row in first.tolist():
            at: dict[str, Any] = {
                name: labels[int(codes if codes.ndim == 0 else codes[row % codes.size])]
                for name, (labels, codes) in labelled.items()
            }
            precision = at.pop("precision", None) or None
            distinct.append((row, PointKey(precision=precision, **at)))
        own = balance_column(raw["balance_factor"], n) if "balance_factor" in raw else None
        return cls(n, own, distinct, inverse)


def _require_uncorrected(points: Points) -> None:
    """A table may say that nothing was applied to it, and nothing else."""
    if APPLIED_FIELD not in points:
        return
    said = set(np.asarray(points[APPLIED_FIELD], dtype=object).reshape(-1).tolist())
    if said - {NOT_APPLIED}:
        raise AlreadyAppliedError(
            "says that this table has been corrected before",
            field=APPLIED_FIELD,
            value=next(iter(said - {NOT_APPLIED})),
            remedy="start from the uncorrected table",
        )
