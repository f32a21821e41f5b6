"""Where a coefficient may be applied, and what it costs to leave that place. numpy only.

The default is to refuse. A caller who names a field in ``extrapolate`` may leave the domain in it, and pays with the interval:
the standard error is that at the nearest covered point, times ``1 + D``, where D adds up the doublings (``|log2(value/limit)|``)
by which each field lies outside, and 1 for another engine version. It never shrinks with distance, and for ``log2`` it
grows at least as fast as the parameter's own error does. pp from which the residual is no longer positive stays refused.
"""

from __future__ import annotations

import math
from collections.abc import Collection

import msgspec

from calib.coefficients.forms import FREE, ResidualForm
from calib.coefficients.points import PointKey
from calib.coefficients.records import Coefficient, Span
from calib.errors import MissingConcurrencyError, OutsideDomainError, UsageError

EXTRAPOLATABLE = ("backend_version", "tp", "pp", "gpus", "isl", "osl", "concurrency")


class Location(msgspec.Struct, frozen=True):
    """The nearest covered point, and how far outside the asked one lies: ``doublings`` [1], 0 inside."""

    pp: float
    concurrency: float
    doublings: float = 0.0


def fields_to_extrapolate(asked: bool | Collection[str]) -> frozenset[str]:
    """The fields a caller may leave the domain in: none, all, or those named.

    Raises
    ------
    UsageError
        A name that is not one of `EXTRAPOLATABLE`.
    """
    if isinstance(asked, bool):
        return frozenset(EXTRAPOLATABLE if asked else ())
    names = (asked,) if isinstance(asked, str) else tuple(asked)
    for name in names:
        if name not in EXTRAPOLATABLE:
            raise UsageError(
                "cannot be extrapolated",
                field="extrapolate",
                value=name,
                remedy=f"use {', '.join(EXTRAPOLATABLE)}, or all",
            )
    return frozenset(names)


def locate(c: Coefficient, key: PointKey, row: int, form: ResidualForm, allowed: frozenset[str]) -> Location:
    """Where a point lies with respect to a coefficient's domain.

    Raises
    ------
    OutsideDomainError
        Outside in a field that is not ``allowed``, with the limit; or pp where the residual is not positive.
    MissingConcurrencyError
        The form needs a concurrency, and none is stated.
    """
    point = _Checked(c, key, row, allowed)
    domain = c.domain
    if form.needs_concurrency and not key.concurrency:
        raise MissingConcurrencyError(
            f"point {row} needs a concurrency: the coefficient depends on it",
            field="concurrency",
            remedy="state it for every point",
        )
    _require_positive(point, form)
    outside = 0.0
    for name, value, span in (("pp", key.pp, domain.pp), ("isl", key.isl, domain.isl), ("osl", key.osl, domain.osl)):
        outside += point.distance(name, value, span)
    if form.name == FREE.name and key.pp not in domain.pp_levels:
        raise point.error("pp", key.pp, f"one value at each of {_list(domain.pp_levels)} and nothing between")
    outside += point.nearest("tp", "tp", key.tp, domain.tp, f"one of {_list(domain.tp)}")
    gpus = f"{_list(domain.gpus)} GPUs a replica without data parallelism"
    if key.dp != 1:
        raise point.error("dp", key.dp, gpus)
    outside += point.nearest("gpus", "tp*pp", key.tp * key.pp, domain.gpus, gpus)
    if key.concurrency:
        if domain.concurrency is None:
            raise point.error("concurrency", key.concurrency, "whose campaign states none")
        outside += point.distance("concurrency", key.concurrency, domain.concurrency)
    if not c.backend_versions.covers(key.backend_version):
        outside += 1.0
    return Location(
        _clamp(key.pp, domain.pp), _clamp(key.concurrency, domain.concurrency) if key.concurrency else 0.0, outside
    )


class _Checked(msgspec.Struct, frozen=True):
    """One point against one domain, field by field."""

    c: Coefficient
    key: PointKey
    row: int
    allowed: frozenset[str]

    def distance(self, name: str, value: int, span: Span) -> float:
        """Doublings outside a span [1]."""
        if span.covers(value):
            return 0.0
        if name not in self.allowed:
            raise self.error(name, value, f"{span.low:g} to {span.high:g}")
        return abs(math.log2(value / _clamp(value, span)))

    def nearest(self, name: str, said: str, value: int, levels: tuple[int, ...], limit: str) -> float:
        """Doublings to the nearest level [1]."""
        if value in levels:
            return 0.0
        if name not in self.allowed:
            raise self.error(said, value, limit)
        return min(abs(math.log2(value / level)) for level in levels)

    def error(self, field: str, value: object, limit: str, remedy: str = "") -> OutsideDomainError:
        """The refusal that says which limit was met."""
        return OutsideDomainError(
            f"point {self.row} ({self.key.describe()}) lies outside what the coefficient was fitted on, {limit}",
            field=field,
            value=value,
            remedy=remedy
            or "measure there, choose a covered configuration, or accept a wider interval with extrapolate",
        )


def _require_positive(point: _Checked, form: ResidualForm) -> None:
    """The stored limit holds inside the domain; beyond its concurrencies it is worked out again."""
    c, key = point.c, point.key
    limits = [c.positivity_limit_pp]
    if form.needs_concurrency:
        limits.append(form.positivity_limit_pp(c.estimate.values, float(key.concurrency)))
    limit = min((x for x in limits if x is not None), default=None)
    if limit is not None and key.pp >= limit:
        raise point.error(
            "pp", key.pp, f"and its residual is not positive from pp = {limit:.1f} on",
            "choose fewer stages: no interval makes up for a throughput below 0",
        )  # fmt: skip


def _clamp(value: float, span: Span | None) -> float:
    return float(value) if span is None else min(max(float(value), span.low), span.high)


def _list(values: tuple[int, ...]) -> str:
    return ", ".join(map(str, values))
