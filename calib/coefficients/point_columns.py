"""The columns of a table of operating points: checked, coded, and grouped into distinct configurations. numpy only."""

from __future__ import annotations

import numbers
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from calib.arrays import Array
from calib.errors import PointError
from calib.names import unknown_value

TEXT_FIELDS = ("model", "system", "backend", "backend_version")
SMALL = 1 << 16  # whole numbers up to here are coded by a look-up table
MOST_KEYS = 1 << 62


class Codes(msgspec.Struct, frozen=True):
    """A text column as a prediction service holds it: ``categories[codes[i]]`` is the text of point i.

    ``codes`` are whole numbers of shape (n,), or one for all points; -1 stands for "not stated". A pandas ``Categorical``, or
    any object with ``codes`` and ``categories``, is taken the same way.
    """

    codes: Any
    categories: Sequence[str]


def common_length(columns: Mapping[str, NDArray[Any]]) -> int:
    """The common length of columns of shape (), (1,) or (n,)."""
    try:
        (n,) = np.broadcast_shapes(*(a.shape for a in columns.values()), (1,))
    except ValueError:
        sizes = ", ".join(f"{k}: {v.shape}" for k, v in columns.items() if v.ndim)
        raise PointError(f"the columns differ in length ({sizes})", remedy="give arrays of one length") from None
    return int(n)


def labels_of(values: NDArray[np.int64]) -> tuple[list[int], NDArray[Any]]:
    """The distinct whole numbers of a column and the code of each point."""
    top = int(values.max(initial=0))
    if values.ndim == 0 or top > SMALL:
        labels, codes = np.unique(values, return_inverse=True)
        return labels.tolist(), codes.reshape(values.shape)
    present = np.zeros(top + 1, dtype=np.bool_)  # a look-up table is ten times faster than sorting
    present[values] = True
    labels = np.flatnonzero(present)
    code = np.zeros(top + 1, dtype=np.int32)
    code[labels] = np.arange(len(labels))
    return labels.tolist(), code[values]


def grouped(columns: list[tuple[int, NDArray[Any]]], n: int) -> tuple[NDArray[np.intp], NDArray[Any]]:
    """First row of every distinct combination of codes, in the order of rows, and the combination of each row."""
    key: NDArray[np.intp] = np.zeros(n, dtype=np.intp)
    size = 1
    for count, codes in columns:
        if count == 1:
            continue
        if size * count > MOST_KEYS:  # never more combinations than rows
            labels, key = np.unique(key, return_inverse=True)
            size = len(labels)
        key *= count
        key += codes
        size *= count
    if size > max(4 * n, SMALL):
        labels, key = np.unique(key, return_inverse=True)
        size = len(labels)
    first = np.full(size, n, dtype=np.intp)
    first[key[::-1]] = np.arange(n - 1, -1, -1)  # of several rows the one assigned last stays: the first
    present = np.flatnonzero(first < n)
    order = present[np.argsort(first[present], kind="stable")]
    number = np.empty(size, dtype=np.int32)
    number[order] = np.arange(len(order))
    return first[order], number[key]


def raw_column(name: str, values: Any) -> NDArray[Any]:
    """One column as an array of shape () or (n,)."""
    if (masked := sys.modules.get("numpy.ma")) is not None and masked.isMaskedArray(
        values
    ):  # a look at np.ma imports it
        raise PointError("is a masked array", field=name, remedy="fill it, or leave the masked points out")
    try:  # text stays Python text: numpy's own would drop a trailing NUL, and match another name
        array = np.asarray(values, dtype=object if name in (*TEXT_FIELDS, "precision") else None)
    except ValueError:
        raise PointError("is ragged", field=name, value=values, remedy="give one value a point") from None
    if array.ndim > 1:
        raise PointError("has more than one dimension", field=name, value=array.shape, remedy="give one value a point")
    return array


def text_column(name: str, values: Any) -> tuple[list[str], NDArray[np.intp]]:
    """The distinct words of a column and the code of each point. An empty precision is an unstated one."""
    values = getattr(values, "cat", values)  # a pandas Series of categories
    if hasattr(values, "codes") and hasattr(values, "categories"):
        return _categories(name, values)
    column = raw_column(name, values)
    words = column.astype(object).reshape(-1).tolist()
    if name == "precision":
        words = ["" if unknown_value(w) else w for w in words]
    distinct = dict.fromkeys(words)
    for word in distinct:
        _require_word(name, word)
    labels = sorted(distinct)
    code = {w: i for i, w in enumerate(labels)}
    return labels, np.array([code[w] for w in words], dtype=np.intp).reshape(column.shape)


def _categories(name: str, values: Any) -> tuple[list[str], NDArray[np.intp]]:
    """The same from codes and categories; categories that no point has are not looked at."""
    codes, words = np.asarray(values.codes), list(values.categories)
    if codes.dtype.kind not in "iu" or codes.ndim > 1:
        raise PointError(
            "must be whole numbers in one dimension", field=f"{name}.codes", remedy="give one code a point"
        )
    low, high = int(codes.min(initial=0)), int(codes.max(initial=-1))
    if low < -1 or high >= len(words):
        bad = low if low < -1 else high
        raise PointError("is no code of a category", field=f"{name}.codes", value=bad, remedy="correct the point")
    if low == -1:
        if name != "precision":
            raise PointError("is empty", field=name, remedy="state it for every point")
        codes, words = np.where(codes < 0, len(words), codes), [*words, ""]
    for i in np.flatnonzero(np.bincount(codes.reshape(-1), minlength=len(words))).tolist():
        _require_word(name, words[i])
    return words, codes


def _require_word(name: str, word: object) -> None:
    if unknown_value(word) or (word == "" and name != "precision"):
        raise PointError("is empty", field=name, remedy="state it for every point")
    if not isinstance(word, str):
        raise PointError("is not text", field=name, value=word, remedy="give plain text")


def positive_numbers(name: str, values: Any, n: int) -> Array:
    """A column as float64 of shape (n,), finite and positive; `PointError` with the first that is not."""
    plain = _positive(name, values)
    try:
        return np.broadcast_to(plain, (n,))
    except ValueError:
        raise PointError(
            f"has {plain.size} values for {n} points", field=name, remedy="give one value a point"
        ) from None


def _positive(name: str, values: Any, *, zero: bool = False) -> Array:
    array = raw_column(name, values)
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
    return plain


def unstated_as_zero(values: Any) -> NDArray[Any]:
    """A concurrency that is None or NaN is not stated, which is what 0 stands for inside."""
    array = np.asarray(values)
    if array.dtype.kind == "O":
        return np.array([0 if unknown_value(v) else v for v in array.reshape(-1).tolist()], dtype=object).reshape(
            array.shape
        )
    return np.where(np.isnan(array), 0.0, array) if array.dtype.kind == "f" else array


def count_column(name: str, values: Any, *, zero: bool = False) -> NDArray[np.int64]:
    """Whole numbers of at least 1 (or 0, where ``zero``), in the shape they came in."""
    array = np.asarray(values)
    if array.dtype.kind in "iu" and array.size and int(array.min()) >= (not zero) and int(array.max()) <= 2**31:
        return array.astype(np.int64, copy=False)
    found = _positive(name, values, zero=zero)
    whole = (found == np.floor(found)) & (found <= 2**31)
    if not np.all(whole):
        bad = float(found.reshape(-1)[~whole.reshape(-1)][0])
        raise PointError("must be a whole number", field=name, value=bad, remedy="correct the point")
    return found.astype(np.int64)


def balance_column(values: NDArray[Any], n: int) -> Array:
    """The caller's own balance factors (n,) [1], each above 0 and at most 1."""
    found = positive_numbers("balance_factor", values, n)
    if np.any(found > 1.0):
        raise PointError(
            "must lie in (0, 1]", field="balance_factor", value=float(found.max()), remedy="correct the point"
        )
    return found
