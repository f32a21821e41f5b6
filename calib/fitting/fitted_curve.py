"""One residual form fitted to the points of one series: `calib.fitting.least_squares` on a table of efficiencies.

The error of each efficiency has two parts, that of the PP run and that of the baseline it is divided by. The baseline is
shared by a whole series, so estimate, covariance and chi-square use

    V = diag((sigma*f)^2) + sigma0^2 * f f'        f = fitted residual, one block a baseline

and never independent errors. Where there are degrees of freedom the covariance is scaled by the scatter really seen
(chi-square over its degrees of freedom); where there are none (`free` at one point a level) only the stated errors are known.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from calib.arrays import Array
from calib.coefficients import FREE, ResidualForm, free_form
from calib.fitting.least_squares import Errors, fit_gls
from calib.fitting.quantiles import chi_square_sf, normal_quantile, t_quantile

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Curve:
    """A fitted curve through (1, 1), before anything is said about it.

    ``values`` (k,), ``covariance`` (k, k) scaled by the scatter seen and ``stated_covariance`` (k, k), which is not,
    ``chi_square`` under the stated errors on ``dof`` degrees of freedom, ``fitted``
    (n,) residuals; ``scatter`` is the relative standard deviation [1] of one new efficiency against a new baseline.
    """

    form: ResidualForm
    values: Array
    covariance: Array
    chi_square: float
    dof: int
    n: int
    scatter: float
    fitted: Array
    stated_covariance: Array

    @property
    def quantile(self) -> float:
        """Half width of a 95 % interval in standard errors: Student's t, or the normal one with stated errors only."""
        at = 0.5 + CONFIDENCE / 2
        return t_quantile(at, self.dof) if self.dof > 0 else normal_quantile(at)

    @property
    def p_value(self) -> float:
        """Probability of a larger chi-square, were the form right; 1 without degrees of freedom."""
        return float(chi_square_sf(self.chi_square, self.dof)) if self.dof > 0 else 1.0


def fit_curve(form: ResidualForm, points: pd.DataFrame, *, column: str = "residual") -> Curve:
    """Generalised least squares of ``column`` through (1, 1); see the module's docstring.

    ``points`` has ``pp``, ``column``, ``rel_error``, ``baseline_rel_error`` [1] and ``baseline_id``, and ``concurrency``
    where the form needs it. ``free`` gets the pp levels of the points.
    """
    form = for_points(form, points)
    pp, concurrency = coordinates(form, points)
    errors, y = stated_errors(points), points[column].to_numpy(dtype=np.float64)
    solution = fit_gls(form, pp, y, errors, concurrency)
    n, dof = len(y), len(y) - len(form.parameters)
    chi_square = float(solution.chi_square) if dof > 0 else 0.0
    scale = chi_square / dof if dof > 0 else 1.0
    return Curve(
        form=form,
        values=solution.values,
        covariance=scale * solution.covariance,
        chi_square=chi_square,
        dof=dof,
        n=n,
        scatter=math.sqrt(scale * float(np.mean(errors.own**2 + errors.shared**2))),
        fitted=form.residual(pp, solution.values, concurrency),
        stated_covariance=solution.covariance,
    )


def for_points(form: ResidualForm, points: pd.DataFrame) -> ResidualForm:
    """The form, ``free`` with the pp levels of the points."""
    return free_form(points["pp"].tolist()) if form.name == FREE.name else form


def coordinates(form: ResidualForm, points: pd.DataFrame) -> tuple[Array, Array | None]:
    """``pp`` [stages] and, where the form needs it, ``concurrency`` [requests] of the points."""
    pp = points["pp"].to_numpy(dtype=np.float64)
    return pp, points["concurrency"].to_numpy(dtype=np.float64) if form.needs_concurrency else None


def stated_errors(points: pd.DataFrame) -> Errors:
    """The measurement errors of the points, as `calib.fitting.least_squares` takes them."""
    return Errors(
        points["rel_error"].to_numpy(dtype=np.float64),
        points["baseline_rel_error"].to_numpy(dtype=np.float64),
        pd.factorize(points["baseline_id"])[0],
    )
