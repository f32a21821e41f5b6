"""The coefficient of a model, or a backend, that was not measured: random effects over those that were."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from calib.coefficients import ResidualForm
from calib.fitting.fitted_curve import fit_curve
from calib.fitting.random_effects import pool
from calib.fitting.results import KEY, SeriesFit, make_estimate, pool_of
from calib.names import BACKEND_KEY, Verdict


def fit_pool(
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


def partially_pooled(s: SeriesFit, pools: list[SeriesFit]) -> SeriesFit:
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


def fit_system(form: ResidualForm, system: str, pools: list[SeriesFit]) -> SeriesFit:
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
