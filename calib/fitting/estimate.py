"""Estimates of the residual form per model, partially pooled, per backend and per system, and their intervals.

Standard errors are scaled by the scatter that is really seen (chi-square over its degrees of freedom), intervals use the t
quantile of those degrees of freedom; see `fitted_curve` for the estimator, `verdict` for the right to refuse and `pooling` for
what is known of a model that was not measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from calib.coefficients import FREE, Estimate, ResidualForm, get_form
from calib.errors import NothingToFitError, UsageError
from calib.fitting.efficiency import Decomposition, decompose
from calib.fitting.fitted_curve import Curve, fit_curve
from calib.fitting.pooling import fit_pool, fit_system, partially_pooled
from calib.fitting.results import KEY, POOLINGS, FitResult, Pooling, SeriesFit, make_estimate
from calib.fitting.verdict import (
    MIN_LEVELS,
    deciding,
    detect,
    deviations,
    fit_each_concurrency,
    form_verdict,
)
from calib.fitting.warnings import drift_warning, falling_warning, series_warnings
from calib.names import BACKEND_KEY


def fit(
    decomposition: Decomposition,
    *,
    form: str = "log2",
    pooling: Pooling = "none",
    model_sizes_b: Mapping[str, float] | None = None,
    extra_warnings: Mapping[tuple[str, str], str] | None = None,
    drift: bool = True,
) -> FitResult:
    """Fit the residual form per (model, backend), per backend, and the flat coefficient without balance.

    Parameters
    ----------
    decomposition
        From `decompose`; its measurement errors weight the fit.
    form
        Name of the residual form.
    pooling
        ``partial`` draws the estimate of each model towards the other models of its backend, as far as their spread and its
        own error say.
    model_sizes_b
        Billions of parameters by model name, those of the campaign where left out; with them the pool has a slope in the
        logarithm of the size.
    extra_warnings
        By (model, backend), to stand beside the verdict: what is known of the pp = 1 prediction, say.
    drift
        Whether to look for drift with concurrency, which takes a second decomposition and never makes a verdict.

    Raises
    ------
    NothingToFitError
        There is no usable efficiency at pp > 1.
    UsageError
        No such form or pooling, or a form with a concurrency term where concurrencies are too few.
    """
    table, chosen = decomposition.table, get_form(form)
    sizes = decomposition.campaign.config.model_sizes_b if model_sizes_b is None else model_sizes_b
    if pooling not in POOLINGS:
        raise UsageError("is not a way to pool", field="pooling", value=pooling, remedy=f"use {', '.join(POOLINGS)}")
    if table.empty:
        raise NothingToFitError(
            f"no usable efficiency at pp > 1 is left in campaign '{decomposition.campaign.name}'",
            remedy="see the reasons listed by `calib ingest`",
        )
    if chosen.needs_concurrency:
        _check_concurrencies(table, chosen)
    matched, more = _matched(decomposition) if drift else table.iloc[:0], extra_warnings or {}
    loads = dict(groups(matched, KEY))
    series = tuple(
        _fit_series(chosen, dict(zip(KEY, key, strict=True)), g, loads.get(key, table.iloc[:0]), more)
        for key, g in groups(table, KEY)
    )
    pools, flat = _fit_backends(chosen, table, series, sizes)
    if pooling == "partial":
        series = tuple(partially_pooled(s, pools) for s in series)
    systems = tuple(fit_system(chosen, str(name), pools) for name in dict.fromkeys(p.key["system"] for p in pools))
    return FitResult(decomposition, chosen, series, tuple(pools), tuple(flat), systems, pooling)


def _fit_backends(
    form: ResidualForm, table: pd.DataFrame, series: tuple[SeriesFit, ...], sizes: Mapping[str, float]
) -> tuple[list[SeriesFit], list[SeriesFit]]:
    """The pool of each backend, and the flat coefficient without balance that stands beside it for comparison."""
    pools, flat = [], []
    for key, group in groups(table, BACKEND_KEY):
        name = {**dict.fromkeys(KEY), **dict(zip(BACKEND_KEY, key, strict=True))}
        members = [s for s in series if all(s.key[k] == name[k] for k in BACKEND_KEY)]
        pools.append(fit_pool(form, name, group, members, sizes))
        if not form.needs_concurrency:
            flat.append(_fit_flat(form, name, group))
    return pools, flat


def groups(table: pd.DataFrame, by: tuple[str, ...]) -> list[tuple[tuple[Any, ...], pd.DataFrame]]:
    """The groups of a decomposition's table in its own order; a missing key is None."""
    found = table.groupby(list(by), dropna=False, sort=False)  # the table is in order already
    return [(tuple(None if k != k else k for k in tuple(key)), group) for key, group in found]


def _check_concurrencies(table: pd.DataFrame, form: ResidualForm) -> None:
    few = table.groupby(list(KEY), dropna=False, sort=False)["concurrency"].nunique()
    if table["concurrency"].isna().any() or (few < 3).any():
        raise UsageError(
            "needs at least 3 concurrencies of every series, all of them stated", field="form", value=form.name,
            remedy="use matched concurrency, or another form",
        )  # fmt: skip


def _matched(decomposition: Decomposition) -> pd.DataFrame:
    """The same campaign at matched concurrency, which is where drift shows; empty where no concurrency is stated."""
    if decomposition.matching == "matched":
        return decomposition.table
    if decomposition.table["concurrency"].isna().any():
        return decomposition.table.iloc[:0]
    return decompose(
        decomposition.campaign, matching="matched", error_floor=decomposition.error_floor,
        balance=decomposition.balance, reference=decomposition.reference,
    ).table  # fmt: skip


def _fit_series(
    form: ResidualForm,
    key: dict[str, Any],
    group: pd.DataFrame,
    matched: pd.DataFrame,
    more: Mapping[tuple[str, str], str],
) -> SeriesFit:
    curve = fit_curve(form, group)
    by_concurrency = fit_each_concurrency(form, group)
    off = deviations(form, group)
    found = detect(form, group, curve, by_concurrency, off)
    verdict, reasons = form_verdict(found, group, form)
    beside = (
        drift_warning(form, matched),
        falling_warning(matched),
        more.get((str(key["model"]), str(key["backend"]))),
    )
    return SeriesFit(
        key=key,
        form=curve.form,
        estimate=_estimate(curve, group),
        form_test=deciding(found),
        verdict=verdict,
        reasons=reasons,
        warnings=(*series_warnings(group), *(w for w in beside if w)),
        points=group,
        curve=curve,
        by_concurrency=by_concurrency,
        detectors=tuple(d.test() for d in found),
        deviations=off,
    )


def _estimate(curve: Curve, group: pd.DataFrame) -> Estimate:
    """The estimate; without an interval where the levels are too few to claim one."""
    known = curve.form.name == FREE.name or (group["pp"].nunique() >= MIN_LEVELS and curve.dof > 0)
    return make_estimate(
        curve.form,
        curve.values,
        curve.covariance if known else None,
        curve.scatter if known else None,
        dof=curve.dof,
        n=curve.n,
        quantile=curve.quantile,
    )


def _fit_flat(form: ResidualForm, key: dict[str, Any], group: pd.DataFrame) -> SeriesFit:
    """The published alternative ``1 - c*log2(pp)`` on the efficiency itself, without balance; for comparison only."""
    curve = fit_curve(form, group, column="efficiency")
    reasons = ("comparison only: not published",)
    return SeriesFit(key, curve.form, _estimate(curve, group), None, "WARN", reasons, (), group, curve)
