"""Estimates of the residual form per model, partially pooled, per backend and per system, and their intervals.

Standard errors are scaled by the scatter that is really seen (chi-square over its degrees of freedom), intervals use the t
quantile of those degrees of freedom; see `calib.curve` for the estimator, `calib.verdict` for the right to refuse and
`calib.pooling` for what is known of a model that was not measured.

The module is called ``fitting``, since ``calib.fit`` is the function.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pandas as pd

from calib.coefficients import Deviation, Estimate, FormTest, Span
from calib.curve import Curve, fit_curve
from calib.display import fit_html
from calib.efficiency import Decomposition, decompose
from calib.errors import NothingToFitError, UsageError
from calib.names import BACKEND_KEY, Array, Verdict
from calib.pooling import Pool, pool
from calib.residual import FREE, ResidualForm, get_form
from calib.verdict import (
    MIN_LEVELS,
    ConcurrencyFit,
    deciding,
    detect,
    deviations,
    drift_warning,
    falling_warning,
    fit_each_concurrency,
    form_verdict,
    series_warnings,
)

KEY = ("system", "backend", "backend_version", "model", "precision")
Pooling = Literal["none", "partial"]
POOLINGS: tuple[Pooling, ...] = ("none", "partial")


@dataclass(frozen=True)
class SeriesFit:
    """The published outcome for one key; ``model`` is None for a backend pool.

    ``by_concurrency`` holds, for matched series at several concurrencies, the fit of each on its own.
    """

    key: dict[str, str | None]
    form: ResidualForm
    estimate: Estimate
    form_test: FormTest | None
    verdict: Verdict
    reasons: tuple[str, ...]
    warnings: tuple[str, ...]
    points: pd.DataFrame
    curve: Curve
    by_concurrency: tuple[ConcurrencyFit, ...] = ()
    detectors: tuple[FormTest, ...] = ()
    deviations: tuple[Deviation, ...] = ()
    pool: Pool | None = None


@dataclass(frozen=True, repr=False)
class FitResult:
    """All coefficients of one decomposition.

    ``series`` per model, ``pools`` per backend, ``systems`` over the backends of a system (for information: nothing falls
    back to it), ``flat`` the published alternative without balance.
    """

    decomposition: Decomposition
    form: ResidualForm
    series: tuple[SeriesFit, ...]
    pools: tuple[SeriesFit, ...]
    flat: tuple[SeriesFit, ...] = field(default=())
    systems: tuple[SeriesFit, ...] = field(default=())
    pooling: Pooling = "none"

    def __repr__(self) -> str:
        found = ", ".join(f"{s.key['model']} {s.verdict}" for s in self.series[:9])
        return f"<FitResult of form {self.form.name}, {len(self.series)} models: {found}>"

    def _repr_html_(self) -> str:
        return fit_html(self)

    def table(self) -> pd.DataFrame:
        """One row a coefficient: its first parameter with the interval [1], n, dof, verdict and reasons."""
        kinds = (("model", self.series), ("backend", self.pools), ("system", self.systems), ("flat", self.flat))
        return pd.DataFrame([_table_row(kind, s) for kind, members in kinds for s in members])

    def unmeasured(self, backend: str, *, size_b: float, model_sizes_b: Mapping[str, float] | None = None) -> Estimate:
        """The parameters of a model of ``size_b`` billion parameters that was not measured, with their prediction interval.

        From the models of the backend that are not refused, with a slope in the logarithm of the size (of the campaign's
        ``model_sizes_b`` where none are given); the t quantile has k - 3 degrees of freedom for k models.

        Raises
        ------
        UsageError
            Sizes are unknown, or the models are too few for a slope and an interval.
        """
        sizes = model_sizes_b or self.decomposition.campaign.config.model_sizes_b
        members = [s for s in self.series if s.key["backend"] == backend and s.verdict != "REFUSED"]
        found = pool_of(members, sizes)
        if found is None or len(found.mean) < 2 or found.quantile is None:
            raise UsageError(
                f"has {len(members)} models that fit, too few of known size for a slope and its interval", field="backend",
                value=backend, remedy="measure four models or more of different sizes, and state model_sizes_b",
            )  # fmt: skip
        values, covariance = found.new(np.array([1.0, math.log10(size_b)]))
        n = sum(m.curve.n for m in members)
        return make_estimate(members[0].form, values, covariance, None, dof=found.dof, n=n, quantile=found.quantile)

    def deviations(self) -> pd.DataFrame:
        """How far each (tp, pp) of each series lies off the curve through its other levels [%], with stderr and p-value."""
        rows = [
            {
                "backend": s.key["backend"], "model": s.key["model"], "tp": d.tp, "pp": d.pp,
                "deviation_pct": 100 * d.size, "stderr_pct": 100 * d.stderr, "p_value": d.p_value,
            }
            for s in self.series for d in s.deviations
        ]  # fmt: skip
        names = ["backend", "model", "tp", "pp", "deviation_pct", "stderr_pct", "p_value"]
        return pd.DataFrame(rows, columns=names).astype({"tp": "Int64"})


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
    pools, flat = [], []
    for key, group in groups(table, BACKEND_KEY):
        name = {**dict.fromkeys(KEY), **dict(zip(BACKEND_KEY, key, strict=True))}
        members = [s for s in series if all(s.key[k] == name[k] for k in BACKEND_KEY)]
        pools.append(_fit_pool(chosen, name, group, members, sizes))
        if not chosen.needs_concurrency:
            flat.append(_fit_flat(chosen, name, group))
    if pooling == "partial":
        series = tuple(_partially_pooled(s, pools) for s in series)
    systems = tuple(_fit_system(chosen, str(name), pools) for name in dict.fromkeys(p.key["system"] for p in pools))
    return FitResult(decomposition, chosen, series, tuple(pools), tuple(flat), systems, pooling)


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


def make_estimate(
    form: ResidualForm,
    values: Array,
    covariance: Array | None,
    scatter: float | None,
    *,
    dof: int,
    n: int,
    quantile: float | None,
) -> Estimate:
    """An `Estimate` with its interval, or without one where ``covariance`` or ``quantile`` is None."""
    if covariance is None or quantile is None:
        return Estimate(
            parameters=form.parameters, values=tuple(map(float, values)), stderr=None, covariance=None,
            interval95=None, t_quantile=None, scatter=None, dof=dof, n=n,
        )  # fmt: skip
    errors = np.sqrt(np.diag(covariance))
    return Estimate(
        parameters=form.parameters,
        values=tuple(map(float, values)),
        stderr=tuple(map(float, errors)),
        covariance=tuple(tuple(map(float, row)) for row in covariance),
        interval95=tuple(
            Span(low=float(v - quantile * e), high=float(v + quantile * e)) for v, e in zip(values, errors, strict=True)
        ),
        t_quantile=quantile,
        scatter=scatter,
        dof=dof,
        n=n,
    )


def pool_of(members: list[SeriesFit], sizes: Mapping[str, float] | None = None) -> Pool | None:
    """The random-effects pool of the members with an interval; None under two of them, or of different parameters.

    Their errors are the stated ones scaled by the lack of fit of all of them together, which has more degrees of freedom
    than that of each.
    """
    known = [m for m in members if m.estimate.covariance is not None]
    if len(known) < 2 or len({m.form.parameters for m in known}) > 1:
        return None
    dof = sum(m.curve.dof for m in known)
    scale = sum(m.curve.chi_square for m in known) / dof if dof else 1.0
    covariances = [scale * m.curve.stated_covariance for m in known]
    covariates = _covariates([str(m.key["model"]) for m in known], sizes)
    return pool(np.array([m.curve.values for m in known]), np.array(covariances), covariates)


def _covariates(models: list[str], sizes: Mapping[str, float] | None) -> Array | None:
    """A column of ones and the decimal logarithm of the size; None where a size is not known or all are the same."""
    if not sizes or any(m not in sizes for m in models):
        return None
    logs = np.log10([sizes[m] for m in models])
    return None if np.ptp(logs) == 0 or len(models) < 3 else np.column_stack([np.ones(len(logs)), logs])


def _fit_pool(
    form: ResidualForm,
    key: dict[str, Any],
    group: pd.DataFrame,
    members: list[SeriesFit],
    sizes: Mapping[str, float] | None,
) -> SeriesFit:
    """The coefficient of a model of this backend that was not measured.

    From the models that are not refused (of all, and refused itself, where every one is), by random effects; under three
    models its error is unknown.
    """
    good = [m for m in members if m.verdict != "REFUSED"]
    used = pd.concat([m.points for m in good]) if good else group
    curve = fit_curve(form, used)
    found = pool_of(good)
    known = [m for m in good if m.estimate.stderr is not None]
    warnings = [f"fitted on {len(good)} of {len(members)} models" + ("" if good else ", all refused")]
    values, covariance, quantile, dof = curve.values, None, None, 0
    if found is not None and found.quantile is not None:
        values, covariance = found.new()
        quantile, dof = found.quantile, found.dof
    else:
        warnings.append(f"{len(known)} models with an interval: the error for an unmeasured model is unknown")
    slope = _slope(good, sizes)
    warnings += [slope] if slope else []
    estimate = make_estimate(curve.form, values, covariance, curve.scatter, dof=dof, n=curve.n, quantile=quantile)
    verdict: Verdict = "FIT" if covariance is not None else "WARN"
    reasons: tuple[str, ...] = () if covariance is not None else ("no interval for an unmeasured model",)
    if len(good) < 2:
        verdict = "REFUSED"
        reasons = ("only one model could be fitted: nothing is known of others",)
        if not good:
            reasons = ("the form is refused for every model of this backend",)
    return SeriesFit(key, curve.form, estimate, None, verdict, reasons, tuple(warnings), used, curve, pool=found)


def _slope(members: list[SeriesFit], sizes: Mapping[str, float] | None) -> str | None:
    """The covariate in words."""
    found = pool_of(members, sizes) if sizes else None
    if found is None or len(found.mean) < 2:
        return None
    q = found.between.shape[0]
    error = math.sqrt(found.covariance[q, q])
    return f"{members[0].form.parameters[0]} changes by {found.mean[1, 0]:+.3f} +- {error:.3f} a tenfold model size"


def _partially_pooled(s: SeriesFit, pools: list[SeriesFit]) -> SeriesFit:
    """The series with its estimate drawn towards its backend's models; as it is where there is nothing to draw to."""
    own = next(p for p in pools if all(p.key[k] == s.key[k] for k in BACKEND_KEY))
    if own.pool is None or s.verdict == "REFUSED" or s.estimate.covariance is None:
        return s
    values, covariance = own.pool.shrunk(s.curve.values, s.curve.covariance)
    estimate = make_estimate(
        s.form, values, covariance, s.estimate.scatter, dof=s.curve.dof, n=s.curve.n, quantile=s.curve.quantile
    )
    changes = {"estimate": estimate, "warnings": (*s.warnings, f"partially pooled over {own.pool.k} models")}
    return SeriesFit(**{**{f: getattr(s, f) for f in s.__dataclass_fields__}, **changes})


def _fit_system(form: ResidualForm, system: str, pools: list[SeriesFit]) -> SeriesFit:
    """The backends of one system as draws of their own; says how little is known of a backend that was not measured."""
    own = [p for p in pools if p.key["system"] == system]
    good = [p for p in own if p.verdict != "REFUSED" and p.pool is not None]
    first = good[0] if good else own[0]
    key: dict[str, str | None] = {**dict.fromkeys(KEY), "system": system}
    found = None
    if len(good) >= 3:
        means = [p.pool for p in good if p.pool]
        found = pool(np.array([m.mean[0] for m in means]), np.array([m.covariance for m in means]))
    values, covariance = found.new() if found else (first.curve.values, None)
    quantile, dof = (found.quantile, found.dof) if found else (None, 0)
    estimate = make_estimate(form if form.parameters else first.form, values, covariance, first.curve.scatter, dof=dof,
                             n=sum(p.estimate.n for p in good) or first.estimate.n, quantile=quantile)  # fmt: skip
    reason = f"{len(good)} of {len(own)} backends have a pool: an unmeasured backend is not predicted"
    return SeriesFit(key, first.form, estimate, None, "REFUSED", (reason,), (), first.points, first.curve, pool=found)


def _fit_flat(form: ResidualForm, key: dict[str, Any], group: pd.DataFrame) -> SeriesFit:
    """The published alternative ``1 - c*log2(pp)`` on the efficiency itself, without balance; for comparison only."""
    curve = fit_curve(form, group, column="efficiency")
    reasons = ("comparison only: not published",)
    return SeriesFit(key, curve.form, _estimate(curve, group), None, "WARN", reasons, (), group, curve)


def _table_row(kind: str, s: SeriesFit) -> dict[str, object]:
    e = s.estimate
    return {
        "kind": kind,
        **{name: s.key[name] for name in KEY},
        "parameter": e.parameters[0],
        "s": e.values[0],
        "stderr": e.stderr[0] if e.stderr else math.nan,
        "low95": e.interval95[0].low if e.interval95 else math.nan,
        "high95": e.interval95[0].high if e.interval95 else math.nan,
        "n": e.n,
        "dof": e.dof,
        "p_value": s.form_test.p_value if s.form_test else math.nan,
        "verdict": s.verdict,
        "reasons": "; ".join(s.reasons),
        "warnings": "; ".join(s.warnings),
    }
