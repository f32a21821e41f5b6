"""Estimates of the residual form per model and backend, and their intervals.

Standard errors are scaled by the scatter that is really seen (chi-square over its degrees of freedom), intervals use the t
quantile of those degrees of freedom; see `calib.curve` for the estimator and `calib.verdict` for the right to refuse.

The module is called ``fitting``, since ``calib.fit`` is the function.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from calib.coefficients import Estimate, FormTest, Span, Verdict
from calib.curve import Array, Curve, fit_curve
from calib.efficiency import Decomposition
from calib.errors import NothingToFitError
from calib.residual import ResidualForm, get_form
from calib.verdict import MIN_LEVELS, ConcurrencyFit, fit_each_concurrency, form_test, form_verdict, series_warnings

KEY = ("system", "backend", "backend_version", "model", "precision")
POOL_KEY = ("system", "backend", "backend_version")
CONFIDENCE = 0.95


@dataclass(frozen=True)
class SeriesFit:
    """The published outcome for one key; ``model`` is None for a backend pool.

    ``by_concurrency`` holds, for matched series at several concurrencies, the fit of each on its own.
    """

    key: dict[str, str | None]
    estimate: Estimate
    form_test: FormTest | None
    verdict: Verdict
    reasons: tuple[str, ...]
    warnings: tuple[str, ...]
    points: pd.DataFrame
    by_concurrency: tuple[ConcurrencyFit, ...] = ()


@dataclass(frozen=True)
class FitResult:
    """All coefficients of one decomposition."""

    decomposition: Decomposition
    form: ResidualForm
    series: tuple[SeriesFit, ...]
    pools: tuple[SeriesFit, ...]
    flat: tuple[SeriesFit, ...] = field(default=())

    def table(self) -> pd.DataFrame:
        """One row a coefficient: the estimate with its interval [1], n, dof, verdict and reasons."""
        rows = [_table_row("model", s) for s in self.series] + [_table_row("backend", s) for s in self.pools]
        return pd.DataFrame(rows + [_table_row("flat", s) for s in self.flat])


def fit(decomposition: Decomposition, *, form: str = "log2") -> FitResult:
    """Fit the residual form per (model, backend), per backend, and the flat coefficient without balance.

    Parameters
    ----------
    decomposition
        From `decompose`; its measurement errors weight the fit.
    form
        Name of the residual form.

    Raises
    ------
    NothingToFitError
        There is no usable efficiency at pp > 1.
    """
    table, chosen = decomposition.table, get_form(form)
    if table.empty:
        raise NothingToFitError(
            f"no usable efficiency at pp > 1 is left in campaign '{decomposition.campaign.name}'",
            remedy="see the reasons listed by `calib ingest`",
        )
    matched = decomposition.matching == "matched"
    series = tuple(_fit_series(chosen, dict(zip(KEY, key, strict=True)), g, matched) for key, g in _groups(table, KEY))
    pools, flat = [], []
    for key, group in _groups(table, POOL_KEY):
        name = {**dict.fromkeys(KEY), **dict(zip(POOL_KEY, key, strict=True))}
        members = [s for s in series if all(s.key[k] == name[k] for k in POOL_KEY)]
        pools.append(_fit_pool(chosen, name, group, members))
        flat.append(_fit_flat(chosen, name, group))
    return FitResult(decomposition, chosen, series, tuple(pools), tuple(flat))


def _groups(table: pd.DataFrame, by: tuple[str, ...]) -> list[tuple[tuple[Any, ...], pd.DataFrame]]:
    groups = table.groupby(list(by), dropna=False, sort=False)  # the table is in order already
    return [(tuple(None if k != k else k for k in tuple(key)), group) for key, group in groups]


def _fit_series(form: ResidualForm, key: dict[str, Any], group: pd.DataFrame, matched: bool) -> SeriesFit:
    curve = fit_curve(form, group)
    several = group["concurrency"].notna().all() and group["concurrency"].nunique() > 1
    by_concurrency = fit_each_concurrency(form, group) if matched and several else ()
    tested = form_test(group, curve, by_concurrency)
    verdict, reasons = form_verdict(form, tested, group)
    test = tested.test if tested else None
    return SeriesFit(
        key, _estimate(form, curve, group), test, verdict, reasons, series_warnings(group), group, by_concurrency
    )


def _estimate(form: ResidualForm, curve: Curve, group: pd.DataFrame) -> Estimate:
    """The estimate; without an interval where the levels are too few to claim one."""
    known = group["pp"].nunique() >= MIN_LEVELS and curve.dof > 0
    return make_estimate(
        form,
        curve.values,
        curve.covariance if known else None,
        curve.scatter if known else None,
        curve.dof,
        curve.n,
    )


def make_estimate(
    form: ResidualForm, values: Array, covariance: Array | None, scatter: float | None, dof: int, n: int
) -> Estimate:
    """An `Estimate` with its t interval, or without one where ``covariance`` is None."""
    if covariance is None:
        return Estimate(
            parameters=form.parameters, values=tuple(map(float, values)), stderr=None, covariance=None,
            interval95=None, t_quantile=None, scatter=None, dof=dof, n=n,
        )  # fmt: skip
    t = float(stats.t.ppf(0.5 + CONFIDENCE / 2, dof))
    errors = np.sqrt(np.diag(covariance))
    return Estimate(
        parameters=form.parameters,
        values=tuple(map(float, values)),
        stderr=tuple(map(float, errors)),
        covariance=tuple(tuple(map(float, row)) for row in covariance),
        interval95=tuple(
            Span(low=float(v - t * e), high=float(v + t * e)) for v, e in zip(values, errors, strict=True)
        ),
        t_quantile=t,
        scatter=scatter,
        dof=dof,
        n=n,
    )


def _fit_pool(form: ResidualForm, key: dict[str, Any], group: pd.DataFrame, members: list[SeriesFit]) -> SeriesFit:
    """One ``s`` for the backend, and the error it has for a model that was not measured.

    Fitted on the points of the models that are not refused (of all, and refused itself, where every one is). The error for
    a new model is the spread between k models, ``sd*sqrt(1 + 1/k)`` on k-1 degrees of freedom; under three models it
    is unknown.
    """
    good = [m for m in members if m.verdict != "REFUSED"]
    used = pd.concat([m.points for m in good]) if good else group
    curve = fit_curve(form, used)
    known = [m for m in good if m.estimate.stderr is not None]
    k = len(known)
    warnings = [f"fitted on {len(good)} of {len(members)} models" + ("" if good else ", all refused")]
    covariance = scatter = None
    if k >= 3 and len(form.parameters) == 1:
        spread = float(np.std([m.estimate.values[0] for m in known], ddof=1))
        covariance, scatter = np.array([[spread**2 * (1 + 1 / k)]]), curve.scatter
    else:
        warnings.append(f"{k} models with an interval: the error for an unmeasured model is unknown")
    estimate = make_estimate(form, curve.values, covariance, scatter, max(k - 1, 0), curve.n)
    if len(good) < 2:
        reason = (
            "only one model could be fitted: nothing is known of others"
            if good
            else "the form is refused for every model of this backend"
        )
        return SeriesFit(key, estimate, None, "REFUSED", (reason,), tuple(warnings), used)
    verdict: Verdict = "FIT" if covariance is not None else "WARN"
    reasons = () if covariance is not None else ("no interval for an unmeasured model",)
    return SeriesFit(key, estimate, None, verdict, reasons, tuple(warnings), used)


def _fit_flat(form: ResidualForm, key: dict[str, Any], group: pd.DataFrame) -> SeriesFit:
    """The published alternative ``1 - c*log2(pp)`` on the efficiency itself, without balance; for comparison only."""
    curve = fit_curve(form, group, column="efficiency")
    return SeriesFit(key, _estimate(form, curve, group), None, "WARN", ("comparison only: not published",), (), group)


def _table_row(kind: str, s: SeriesFit) -> dict[str, object]:
    e = s.estimate
    return {
        "kind": kind,
        **{name: s.key[name] for name in KEY},
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
