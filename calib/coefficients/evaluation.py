"""One distinct configuration against a coefficient file: what it resolves to, and the factor that gives. numpy only."""

from __future__ import annotations

import msgspec
import numpy as np

from calib.arrays import Array
from calib.coefficients.extrapolation import Location, locate
from calib.coefficients.forms import ResidualForm
from calib.coefficients.points import PointKey
from calib.coefficients.records import Coefficient
from calib.coefficients.selection import Allowed, Lookup
from calib.errors import RefusedCoefficientError

NOWHERE = Location(1.0, 0.0)


class Resolved(msgspec.Struct, frozen=True):
    """What one distinct configuration resolves to."""

    key: PointKey
    flag: str
    coefficient: Coefficient | None = None
    balance: float = 1.0  # times the fill factor, where the file has a fill rule
    place: Location = NOWHERE


def resolve(lookup: Lookup, key: PointKey, row: int, allowed: Allowed, *, own_balance: bool) -> Resolved:
    """What a configuration resolves to; ``row`` is its point in messages, ``own_balance`` whether the caller gives one.

    Raises
    ------
    UnknownKeyError, OutsideDomainError, RefusedCoefficientError, MissingBalanceError, MissingConcurrencyError
        It cannot be predicted, and why.
    """
    if key.pp == 1:  # every factor is exactly 1 there, whatever the model
        return Resolved(key, "identity")
    coefficient = lookup.coefficient(key, allowed)
    flag = "exact" if coefficient.model is not None else "pooled"
    if coefficient.verdict == "REFUSED" and key.model not in allowed.refused:
        raise RefusedCoefficientError(
            f"point {row}: the form of the {coefficient.backend} coefficient for {key.model} is refused "
            f"({'; '.join(coefficient.reasons)})",
            remedy="measure this configuration, or name the model in allow_refused (--allow-refused) to apply it anyway",
        )
    at = locate(coefficient, key, row, lookup.form_of(coefficient), allowed.extrapolate)
    if at.doublings > 0:
        flag = "extrapolated"
    if coefficient.verdict == "REFUSED":
        flag = "refused"
    return Resolved(key, flag, coefficient, 1.0 if own_balance else lookup.balance_factor(key, row, allowed), at)


def evaluate(lookup: Lookup, resolved: list[Resolved]) -> tuple[Array, Array, Array]:
    """Factor, its standard error and the half width of its interval [1] of each distinct configuration."""
    value, stderr, spread = np.ones(len(resolved)), np.zeros(len(resolved)), np.zeros(len(resolved))
    groups: dict[int, list[int]] = {}
    for i, r in enumerate(resolved):
        if r.coefficient is not None:
            groups.setdefault(id(r.coefficient), []).append(i)
    for members in groups.values():
        own = [resolved[i] for i in members]
        c = own[0].coefficient
        assert c is not None
        form = lookup.form_of(c)
        balance, outside = np.array([r.balance for r in own]), np.array([r.place.doublings for r in own])
        here = _curve(form, c, [(float(r.key.pp), float(r.key.concurrency)) for r in own])
        edge = _curve(form, c, [(r.place.pp, r.place.concurrency) for r in own]) if outside.any() else here
        value[members] = balance * here[0]
        stderr[members] = balance * np.where(outside > 0, edge[1] * (1.0 + outside), here[1])
        quantile = np.nan if c.estimate.t_quantile is None else c.estimate.t_quantile
        spread[members] = quantile * stderr[members]
    return value, stderr, spread


def _curve(form: ResidualForm, c: Coefficient, at: list[tuple[float, float]]) -> tuple[Array, Array]:
    """Residual [1] and standard error of one new residual at (pp, C): parameter error, and scatter relative to the curve."""
    pp, load = (np.array(x) for x in zip(*at, strict=True))
    concurrency = load if form.needs_concurrency else None
    residual = form.residual(pp, c.estimate.values, concurrency)
    if c.estimate.covariance is None or c.estimate.scatter is None:
        return residual, np.full(len(pp), np.nan)
    slope = form.jacobian(pp, c.estimate.values, concurrency)
    variance: Array = np.einsum("ij,jk,ik->i", slope, np.asarray(c.estimate.covariance), slope)
    return residual, np.hypot(np.sqrt(variance), c.estimate.scatter * residual)
