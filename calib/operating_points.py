"""Operating points as a prediction service gives them, checked and reduced to distinct configurations. numpy only."""

from __future__ import annotations

import numbers
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from calib.errors import AlreadyAppliedError, PointError

Array = NDArray[np.float64]

TEXT_FIELDS = ("model", "system", "backend", "backend_version")
COUNT_FIELDS = ("tp", "pp", "isl", "osl")
OPTIONAL_FIELDS = ("precision", "dp", "concurrency", "balance_factor")
BASELINE_FIELD = "baseline_output_tokens_per_s"
MODEL_FIELD = "model_output_tokens_per_s"
APPLIED_FIELD = "calib_applied"
QUANTITIES = (BASELINE_FIELD, MODEL_FIELD)
FIELDS = (*TEXT_FIELDS, *COUNT_FIELDS, *OPTIONAL_FIELDS, *QUANTITIES)


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
        p = f" ({self.precision})" if self.precision else ""
        return f"{self.model}{p} on {self.backend} {self.backend_version} / {self.system} at TP{self.tp}/PP{self.pp}{c}"


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
        optional = (f for f in (*OPTIONAL_FIELDS, *QUANTITIES) if f in points)
        raw = {name: _column(name, points[name]) for name in (*TEXT_FIELDS, *COUNT_FIELDS, *optional)}
        try:
            (n,) = np.broadcast_shapes(*(a.shape for a in raw.values()), (1,))
        except ValueError:
            sizes = ", ".join(f"{k}: {v.shape}" for k, v in raw.items() if v.ndim)
            raise PointError(f"the columns differ in length ({sizes})", remedy="give arrays of one length") from None
        texts = {name: _text_codes(name, raw[name]) for name in (*TEXT_FIELDS, "precision") if name in raw}
        counts = {name: _counts(name, raw[name], n) for name in COUNT_FIELDS}
        counts["dp"] = _counts("dp", raw.get("dp", np.int64(1)), n)
        counts["concurrency"] = _counts(
            "concurrency", _unstated_is_zero(raw.get("concurrency", np.int64(0))), n, zero=True
        )
        columns = [np.broadcast_to(codes, (n,)) for _, codes in texts.values()] + list(counts.values())
        _, first, inverse = np.unique(np.stack(columns, axis=1), axis=0, return_index=True, return_inverse=True)
        distinct = []
        for row in first.tolist():
            words = {name: labels[np.broadcast_to(codes, (n,))[row]] for name, (labels, codes) in texts.items()}
            precision = words.pop("precision", None) or None
            degrees = {name: int(values[row]) for name, values in counts.items()}
            distinct.append((row, PointKey(precision=precision, **words, **degrees)))  # type: ignore[arg-type]
        own = _balance(raw["balance_factor"], n) if "balance_factor" in raw else None
        return cls(n, counts, own, distinct, inverse.reshape(-1))


def _column(name: str, values: Any) -> NDArray[Any]:
    """One column as an array of shape () or (n,)."""
    if np.ma.isMaskedArray(values):
        raise PointError("is a masked array", field=name, remedy="fill it, or leave the masked points out")
    try:  # text stays Python text: numpy's own would drop a trailing NUL, and match another name
        array = np.asarray(values, dtype=object if name in (*TEXT_FIELDS, "precision") else None)
    except ValueError:
        raise PointError("is ragged", field=name, value=values, remedy="give one value a point") from None
    if array.ndim > 1:
        raise PointError("has more than one dimension", field=name, value=array.shape, remedy="give one value a point")
    return array


def _text_codes(name: str, values: NDArray[Any]) -> tuple[list[str], NDArray[np.int64]]:
    """The distinct words of a column and the code of each point. An empty precision is an unstated one."""
    words = values.astype(object).reshape(-1).tolist()
    if name == "precision":
        words = ["" if _unknown(w) else w for w in words]
    distinct = dict.fromkeys(words)
    for word in distinct:
        if _unknown(word) or (word == "" and name != "precision"):
            raise PointError("is empty", field=name, remedy="state it for every point")
        if not isinstance(word, str):
            raise PointError("is not text", field=name, value=word, remedy="give plain text")
    labels = sorted(distinct)
    code = {w: i for i, w in enumerate(labels)}
    return labels, np.array([code[w] for w in words], dtype=np.int64)


def positive_numbers(name: str, values: Any, n: int, *, zero: bool = False) -> Array:
    """A column as float64 of shape (n,), finite and positive (or 0, where ``zero``); `PointError` with the first that is not."""
    array = _column(name, values)
    if array.dtype.kind not in "iuf":
        for value in array.reshape(-1).tolist():
            if isinstance(value, bool) or not isinstance(value, numbers.Real):
                raise PointError("is not a number", field=name, value=value, remedy="give plain numbers")
    try:
        plain = array.astype(np.float64)
    except OverflowError:
        raise PointError("is too large", field=name, remedy="correct the point") from None
    good = np.isfinite(plain) & ((plain >= 0) if zero else (plain > 0))
    if not np.all(good):
        bad = plain.reshape(-1)[~good.reshape(-1)][0]
        raise PointError("must be finite and positive", field=name, value=float(bad), remedy="correct the point")
    return np.broadcast_to(plain, (n,))


def _unknown(value: object) -> bool:
    return (
        value is None or (isinstance(value, float) and value != value) or type(value).__name__ in ("NAType", "NaTType")
    )


def _unstated_is_zero(values: Any) -> NDArray[Any]:
    """A concurrency that is None or NaN is not stated, which is what 0 stands for inside."""
    array = np.asarray(values)
    if array.dtype.kind == "O":
        return np.array([0 if _unknown(v) else v for v in array.reshape(-1).tolist()], dtype=object).reshape(
            array.shape
        )
    return np.where(np.isnan(array), 0.0, array) if array.dtype.kind == "f" else array


def _counts(name: str, values: Any, n: int, *, zero: bool = False) -> NDArray[np.int64]:
    found = positive_numbers(name, values, n, zero=zero)
    whole = (found == np.floor(found)) & (found <= 2**31)
    if not np.all(whole):
        raise PointError(
            "must be a whole number", field=name, value=float(found[~whole][0]), remedy="correct the point"
        )
    return found.astype(np.int64)


def _balance(values: NDArray[Any], n: int) -> Array:
    found = positive_numbers("balance_factor", values, n)
    if np.any(found > 1.0):
        raise PointError(
            "must lie in (0, 1]", field="balance_factor", value=float(found.max()), remedy="correct the point"
        )
    return found
