"""What a fit gives: estimates with their intervals, verdicts and warnings, by series and by pool."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pandas as pd

from calib.arrays import Array
from calib.coefficients import ESTIMATED, Deviation, Estimate, FormTest, ResidualForm, Span, estimated_row
from calib.errors import UsageError
from calib.fitting.efficiency import Decomposition
from calib.fitting.fitted_curve import Curve
from calib.fitting.random_effects import Pool, pool
from calib.fitting.regression import interval_table, regression_of, summary_of
from calib.fitting.verdict import (
    ConcurrencyFit,
)
from calib.names import Verdict
from calib.notebook import LEFT, ROWS, counts_text, html_block, html_table

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
        every = (*self.series, *self.pools)
        rows = [estimated_row(s.key["model"], s.key["backend"], s.estimate, s) for s in every[:ROWS]]
        return html_block(
            "Fit", f"Form {self.form.name} on the residual, fitted to {len(self.decomposition.table)} efficiencies; "
            f"{len(self.series)} models: {counts_text(s.verdict for s in self.series)}.",
            html_table(ESTIMATED | {"why": LEFT}, rows, len(every), "fit.table()"),
        )  # fmt: skip

    def table(self) -> pd.DataFrame:
        """One row a coefficient: its first parameter with the interval [1], n, dof, verdict and reasons."""
        kinds = (("model", self.series), ("backend", self.pools), ("system", self.systems), ("flat", self.flat))
        return pd.DataFrame([table_row(kind, s) for kind, members in kinds for s in members])

    @property
    def params(self) -> pd.Series[float]:
        """The estimates [1] by backend, model and parameter; NaN for a model whose form is refused: it is no estimate."""
        return self._intervals()["value"].rename("params")

    @property
    def bse(self) -> pd.Series[float]:
        """Their standard errors [1]; NaN where none is known."""
        return self._intervals()["stderr"].rename("bse")

    def conf_int(self, alpha: float = 0.05) -> pd.DataFrame:
        """The ``1 - alpha`` intervals [1], columns ``lower`` and ``upper``, by Student's t of the true degrees of freedom."""
        return self._intervals(alpha)[["lower", "upper"]]

    @property
    def _named_by(self) -> list[str]:
        """The fields that tell the series apart: backend and model, and what else differs."""
        return [
            "backend",
            "model",
            *(k for k in KEY if k not in ("backend", "model") and len({s.key[k] for s in self.series}) > 1),
        ]

    def _intervals(self, alpha: float = 0.05) -> pd.DataFrame:
        names = self._named_by
        rows = [(tuple(s.key[n] for n in names), s.estimate, s.curve.dof, s.verdict != "REFUSED") for s in self.series]
        return interval_table(rows, names, alpha)

    def regression(self, model: str, backend: str | None = None) -> Any:
        """One model's fit as the results of statsmodels' generalised least squares: ``.summary()``, ``.resid``, ``.t_test``.

        Also where the form is refused, since its diagnostics show why. The own fit of the model, before any partial pooling.

        Raises
        ------
        UsageError
            No such model, or several backends have it and none is named.
        """
        own = [s for s in self.series if s.key["model"] == model and backend in (None, s.key["backend"])]
        if len(own) != 1:
            known = ", ".join(sorted({f"{s.key['model']} on {s.key['backend']}" for s in self.series}))
            raise UsageError(
                "was not fitted" if not own else f"was fitted {len(own)} times",
                field="model", value=model, remedy=f"name one of {known}",
            )  # fmt: skip
        return regression_of(own[0].curve, own[0].points)

    def summary(self) -> Any:
        """All models in one ``statsmodels`` summary: estimate, standard error, interval, points and verdict."""
        table = self._intervals().reset_index()
        own = [s for s in self.series for _ in s.estimate.parameters]
        shown = table[self._named_by].astype(str).assign(parameter=table["parameter"])
        for name, column in {"coef": "value", "std err": "stderr", "[0.025": "lower", "0.975]": "upper"}.items():
            shown[name] = ["" if math.isnan(v) else f"{v:.4f}" for v in table[column]]
        shown = shown.assign(
            n=[str(s.estimate.n) for s in own], dof=[str(s.curve.dof) for s in own], verdict=[s.verdict for s in own]
        )
        notes = [
            f"{s.key['model']} has no estimate: {s.reasons[0]}"
            for s in self.series
            if s.verdict == "REFUSED" and s.reasons
        ]
        return summary_of(shown, f"Residual form {self.form.formula}", notes)

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


def table_row(kind: str, s: SeriesFit) -> dict[str, object]:
    """One row of `FitResult.table`."""
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
