"""One curve through (pp = 1, residual = 1), with the covariance that a shared baseline gives it.

Least squares weighted by the measurement error of each efficiency, whose two parts are the error of the PP run and that of
the baseline it is divided by. The baseline is shared by a whole series, so the covariance of the estimate, and chi-square,
use

    V = diag((sigma*f)^2) + sigma0^2 * f f'        f = fitted residual, one block a baseline

and never independent errors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd
import statsmodels.api as sm
from numpy.typing import NDArray

from calib.residual import ResidualForm

Array = NDArray[np.float64]

_FLOOR = 0.05  # residual below which relative weights would let one point rule the fit


@dataclass(frozen=True)
class Curve:
    """A fitted curve through (1, 1), before anything is said about it.

    ``values`` (k,), ``covariance`` (k, k) scaled by the scatter seen, ``chi_square`` under the stated errors on ``dof``
    degrees of freedom, ``fitted`` (n,) residuals.
    """

    values: Array
    covariance: Array
    chi_square: float
    dof: int
    n: int
    scatter: float
    fitted: Array


def fit_curve(form: ResidualForm, points: pd.DataFrame, *, column: str = "residual") -> Curve:
    """Weighted least squares of ``column`` through (1, 1); see the module's docstring.

    ``points`` has ``pp``, ``column``, ``rel_error``, ``baseline_rel_error`` [1] and ``baseline_id``.
    """
    design = form.design(points["pp"].to_numpy(dtype=np.float64))
    y = 1.0 - points[column].to_numpy(dtype=np.float64)
    own = points["rel_error"].to_numpy(dtype=np.float64)
    shared = points["baseline_rel_error"].to_numpy(dtype=np.float64)
    blocks = points["baseline_id"].to_numpy(dtype=object)
    values = sm.OLS(y, design).fit().params
    for _ in range(50):  # the errors are relative to the fitted curve, so the weights follow it
        f = np.maximum(1.0 - design @ values, _FLOOR)
        weights = 1.0 / ((own**2 + shared**2) * f**2)
        previous, values = values, sm.WLS(y, design, weights=weights).fit().params
        if np.allclose(previous, values, rtol=0, atol=1e-13):
            break
    same = blocks[:, None] == blocks[None, :]
    v = np.diag((own * f) ** 2) + same * np.outer(shared * f, shared * f)
    n, dof = len(y), len(y) - design.shape[1]
    gls = sm.GLS(y, design, sigma=v).fit()
    chi_square = float(gls.ssr) if dof > 0 else 0.0
    influence = np.linalg.solve(design.T @ (weights[:, None] * design), design.T * weights)
    scale = chi_square / dof if dof > 0 else np.nan
    fitted = 1.0 - design @ values
    left = points[column].to_numpy(dtype=np.float64) - fitted
    return Curve(
        values=values,
        covariance=scale * influence @ v @ influence.T,
        chi_square=chi_square,
        dof=dof,
        n=n,
        scatter=math.sqrt(float(left @ left) / dof) if dof > 0 else math.nan,
        fitted=fitted,
    )
