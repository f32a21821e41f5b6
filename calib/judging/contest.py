"""The contest of forms: every form, pooled in three ways, by how it predicts points it has not seen.

A way to fit is a form, a scope (each ``model`` its own; ``partial``: partially pooled over the models of a backend; ``backend``:
one curve for all) and a balance (as computed, or 1). It is judged on points that were left out: one pp level, one (model, tp,
pp), one model; a backend left out is reported and never judged, since nothing falls back across backends. Where the way
itself is chosen by left-out error, the honest error is that of the nested scheme: chosen on the other models, judged on the
one left out. Chi-square + 2k stands beside it; the AICc is undefined at three points and R^2 says nothing through a fixed
point.
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from calib.arrays import Array
from calib.coefficients import FORMS, LOG2, ContestRow
from calib.fitting import Decomposition
from calib.judging.left_out import (
    NESTED,
    ONE_BACKEND,
    ONE_CONFIGURATION,
    ONE_MODEL,
    SCOPES,
    Data,
    Way,
    leave_out,
    left_out,
    mape,
    shaped_form,
    thinned,
)
from calib.names import BACKEND_KEY, IN_SAMPLE, ONE_PP, BalanceKind

JUDGED = (ONE_PP, ONE_CONFIGURATION, ONE_MODEL)


def ways(balance: BalanceKind, *, concurrency: bool) -> tuple[Way, ...]:
    """Every way there is, with the balance as computed and with 1; forms with a concurrency term only where there are some."""
    forms = [f for f in FORMS.values() if concurrency or not f.needs_concurrency]
    balances: tuple[BalanceKind, ...] = (balance,) if balance == "none" else (balance, "none")
    return tuple(Way(f.name, scope, b) for f in forms for scope in SCOPES for b in balances)


def contest_forms(decomposition: Decomposition) -> tuple[ContestRow, ...]:
    """Every way to fit, backend by backend, with its error in sample and left out; winners marked, losers kept.

    Over at most `MOST_MODELS` models a backend; the number of points of each row says so.
    """
    rows: list[ContestRow] = []
    table = thinned(decomposition.table)
    for key, group in table.groupby(list(BACKEND_KEY), dropna=False, sort=False):
        backend = str(key[1])
        rows += _contest(backend, Data.of(group), group["balance_factor"].to_numpy(), decomposition.balance)
    rows += _across_backends(table, decomposition.balance)
    return tuple(rows)


def _contest(backend: str, data: Data, balance: Array, kind: BalanceKind) -> list[ContestRow]:
    several = not np.isnan(data.concurrency).any() and len(np.unique(data.concurrency)) >= 3
    one = data.without_balance(balance)
    found: dict[tuple[Way, str], Array] = {}
    every = ways(kind, concurrency=several)
    for way in every:
        for scheme in (IN_SAMPLE, *JUDGED):
            found[way, scheme] = left_out(way.predict, data if way.balance == kind else one, scheme)
    rows = []
    for scheme in (IN_SAMPLE, *JUDGED):
        errors = {way: mape(predicted=found[way, scheme], measured=data.eta) for way in every}
        known = {w: e for w, e in errors.items() if e is not None and not np.isnan(found[w, scheme]).any()}
        # Ties, as those of equal forms on two models, go to the way that was listed first: the simpler one.
        winner = min(known, key=lambda w: known[w]) if known and scheme in JUDGED else None
        for way in every:
            cost = _chi_square_2k(way, data if way.balance == kind else one) if scheme == IN_SAMPLE else None
            rows.append(_row(backend, way, scheme, found[way, scheme], data, cost, won=way == winner))
    nested = _nested(every, data, one, kind)
    if nested is not None:
        rows.append(_row(backend, None, NESTED, nested, data, None, won=False, kind=kind))
    return rows


def _nested(every: tuple[Way, ...], data: Data, one: Data, kind: BalanceKind) -> Array | None:
    """Each model predicted by the way that predicts the other models best, when each of those is left out in turn."""
    if len(np.unique(data.model)) < 3:
        return None
    predicted = np.full(len(data.pp), np.nan)
    for out in leave_out(data, ONE_MODEL):
        best: tuple[float, Way] | None = None
        for way in every:
            use = (data if way.balance == kind else one).where(~out)
            inner = left_out(way.predict, use, ONE_MODEL)
            error = mape(predicted=inner, measured=use.eta)
            if error is not None and not np.isnan(inner).any() and (best is None or error < best[0]):
                best = (error, way)
        if best is not None:
            use = data if best[1].balance == kind else one
            predicted[out] = best[1].predict(use.where(~out), use.where(out))
    return predicted


def _across_backends(table: pd.DataFrame, kind: BalanceKind) -> list[ContestRow]:
    """One backend from the others, for information."""
    data, rows = Data.of(table), []
    if len(np.unique(data.backend)) < 2:
        return []
    way = Way(LOG2.name, "backend", kind)
    predicted = left_out(way.predict, data, ONE_BACKEND)
    for backend, group in table.reset_index(drop=True).groupby("backend", sort=False):
        mask = np.zeros(len(table), dtype=np.bool_)
        mask[group.index] = True
        rows.append(_row(str(backend), way, ONE_BACKEND, predicted[mask], data.where(mask), None, won=False))
    return rows


def _chi_square_2k(way: Way, data: Data) -> float | None:
    """Chi-square + 2k of all curves of a way, in sample; None for partial pooling, whose k is no whole number."""
    form = FORMS[way.form]
    parts = [data] if way.scope == "backend" else [data.where(data.model == m) for m in np.unique(data.model)]
    if way.scope == "partial":
        return None
    total = 0.0
    for part in parts:
        shaped = shaped_form(form, part)
        if shaped is None:
            return None
        total += float(part.fit(shaped).chi_square) + 2 * len(shaped.parameters)
    return total


def _row(
    backend: str,
    way: Way | None,
    scheme: str,
    predicted: Array,
    data: Data,
    cost: float | None,
    *,
    won: bool,
    kind: BalanceKind = "decode",
) -> ContestRow:
    known = np.flatnonzero(~np.isnan(predicted))
    relative = np.abs(predicted[known] / data.eta[known] - 1)
    points = 100 * np.abs(predicted[known] - data.eta[known])
    worst = int(known[int(np.argmax(relative))]) if len(known) else -1
    where = ""
    if len(known):
        where = f"{data.label[worst]}: {100 * (predicted[worst] / data.eta[worst] - 1):+.1f} %"
    return ContestRow(
        backend=backend,
        form="selected" if way is None else way.form,
        scope="nested" if way is None else way.scope,
        balance=kind if way is None else way.balance,
        scheme=scheme,
        points=len(predicted),
        predicted=len(known),
        mape_pct=float(100 * relative.mean()) if len(known) else None,
        mean_abs_error_pp=float(points.mean()) if len(known) else None,
        max_abs_error_pp=float(points.max()) if len(known) else None,
        worst_point=where,
        chi_square_2k=None if cost is None or not math.isfinite(cost) else cost,
        winner=won,
    )
