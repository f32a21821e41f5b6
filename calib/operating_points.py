"""Operating points as a prediction service gives them, checked and reduced to distinct configurations. numpy only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from calib.errors import AlreadyAppliedError, PointError

Array = NDArray[np.float64]

TEXT_FIELDS = ("model", "system", "backend", "backend_version")
COUNT_FIELDS = ("tp", "pp", "isl", "osl")
OPTIONAL_COUNTS = {"dp": 1, "concurrency": 0}  # 0: not stated
OPTIONAL_FIELDS = ("precision", *OPTIONAL_COUNTS, "balance_factor")
BASELINE_FIELD = "baseline_output_tokens_per_s"
MODEL_FIELD = "model_output_tokens_per_s"
APPLIED_FIELD = "calib_applied"


class Points(Protocol):
    """A table of operating points: a dict of arrays or scalars, or a DataFrame."""

    def __contains__(self, key: object, /) -> bool: ...
    def __getitem__(self, key: str, /) -> Any: ...


@dataclass(frozen=True)
class PointKey:
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
        return f"{self.model} on {self.backend} {self.backend_version} / {self.system} at TP{self.tp}/PP{self.pp}{c}"


@dataclass(frozen=True)
class PointTable:
    """The points, checked: whole numbers as int64 of shape (n,), and the distinct configurations among them."""

    n: int
    counts: dict[str, NDArray[np.int64]]
    own_balance: Array | None
    distinct: list[tuple[int, PointKey]]
    inverse: NDArray[np.intp]

    @classmethod
    def parse(cls, points: Points) -> PointTable:
        if APPLIED_FIELD in points:
            raise AlreadyAppliedError(
                "says that this table has been corrected before",
                field=APPLIED_FIELD,
                remedy="start from the uncorrected table",
            )
        if missing := [name for name in (*TEXT_FIELDS, *COUNT_FIELDS) if name not in points]:
            raise PointError("is missing", field=missing[0], remedy=f"a point states {', '.join(missing)} as well")
        raw = {
            name: np.asarray(points[name]) for name in (*TEXT_FIELDS, *COUNT_FIELDS, *OPTIONAL_FIELDS) if name in points
        }
        try:
            (n,) = np.broadcast_shapes(*(a.shape for a in raw.values()), (1,))
        except ValueError:
            sizes = ", ".join(f"{k}: {v.shape}" for k, v in raw.items() if v.ndim)
            raise PointError(f"the columns differ in length ({sizes})", remedy="give arrays of one length") from None
        texts = {name: _text_codes(name, raw[name]) for name in (*TEXT_FIELDS, "precision") if name in raw}
        counts = {name: _counts(name, raw[name], n) for name in COUNT_FIELDS}
        for name, default in OPTIONAL_COUNTS.items():
            counts[name] = _counts(name, raw[name], n) if name in raw else np.full(n, default, dtype=np.int64)
        columns = [np.broadcast_to(codes, (n,)) for _, codes in texts.values()] + list(counts.values())
        _, first, inverse = np.unique(np.stack(columns, axis=1), axis=0, return_index=True, return_inverse=True)
        distinct = []
        for row in first.tolist():
            words = {name: labels[np.broadcast_to(codes, (n,))[row]] for name, (labels, codes) in texts.items()}
            precision = words.pop("precision", None)
            numbers = {name: int(values[row]) for name, values in counts.items()}
            distinct.append((row, PointKey(precision=precision, **words, **numbers)))  # type: ignore[arg-type]
        own = _balance(raw["balance_factor"], n) if "balance_factor" in raw else None
        return cls(n, counts, own, distinct, inverse.reshape(-1))


def _text_codes(name: str, values: NDArray[Any]) -> tuple[list[str], NDArray[np.int64]]:
    labels, codes = np.unique(values.astype(object).reshape(-1).astype(np.str_), return_inverse=True)
    words = labels.tolist()
    if any(not w or w in ("nan", "None", "<NA>") for w in words):
        raise PointError("is empty", field=name, remedy="state it for every point")
    return words, codes.astype(np.int64) if values.ndim else np.zeros(1, dtype=np.int64)


def positive_numbers(name: str, values: Any, n: int) -> Array:
    """A column as float64 of shape (n,), all finite and positive; `PointError` with the first that is not."""
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise PointError("is not a number", field=name, value=values, remedy="give plain numbers") from None
    if not np.all(np.isfinite(array)) or np.any(array <= 0):
        bad = array[~(np.isfinite(array) & (array > 0))].reshape(-1)[0]
        raise PointError("must be finite and positive", field=name, value=float(bad), remedy="correct the point")
    return np.broadcast_to(array, (n,))


def _counts(name: str, values: NDArray[Any], n: int) -> NDArray[np.int64]:
    numbers = positive_numbers(name, values, n)
    if np.any(numbers != np.floor(numbers)) or np.any(numbers > 2**31):
        bad = numbers[(numbers != np.floor(numbers)) | (numbers > 2**31)][0]
        raise PointError("must be a whole number", field=name, value=float(bad), remedy="correct the point")
    return numbers.astype(np.int64)


def _balance(values: NDArray[Any], n: int) -> Array:
    numbers = positive_numbers("balance_factor", values, n)
    if np.any(numbers > 1.0):
        raise PointError(
            "must lie in (0, 1]",
            field="balance_factor",
            value=float(numbers.max()),
            remedy="correct the point",
        )
    return numbers
