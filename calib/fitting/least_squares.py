"""Generalised least squares, one problem or thousands at once.

``solve_gls`` is the linear step: whitening by the Cholesky factor of V, then an orthogonal decomposition of the column-scaled
design, so that badly scaled designs (NIST's Longley data) keep their digits. ``fit_gls`` iterates it for a curve whose
covariance is relative to the curve itself (Gauss-Newton with V re-evaluated at every step, i.e. iteratively reweighted GLS).

All arrays may have leading batch dimensions; numpy is the only import.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calib.arrays import Array
from calib.coefficients import ResidualForm

FLOOR = 0.05  # residual below which relative weights would let one point rule the fit
_STEPS, _HALVINGS, _TOLERANCE = 100, 30, 1e-12


@dataclass(frozen=True)
class Solution:
    """``values`` (..., k), their ``covariance`` (..., k, k) under the stated errors, and ``chi_square`` (...)."""

    values: Array
    covariance: Array
    chi_square: Array


@dataclass(frozen=True)
class Errors:
    """Relative measurement errors [1] of efficiencies: ``own`` (..., n), ``shared`` (..., n) of the baseline, ``blocks`` (n,).

    Points with the same block are divided by the same baseline measurement, so they share its error.
    """

    own: Array
    shared: Array
    blocks: NDArray[np.intp]

    def covariance(self, fitted: Array) -> Array:
        """``V = diag((sigma*f)^2) + sigma0^2 * f f'``, one block of the second term a baseline; shape (..., n, n)."""
        f = np.maximum(fitted, FLOOR)
        common = self.shared * f
        v: Array = common[..., :, None] * common[..., None, :] * (self.blocks[:, None] == self.blocks[None, :])
        n = v.shape[-1]
        v[..., np.arange(n), np.arange(n)] += (self.own * f) ** 2
        return v


def solve_gls(design: Array, y: Array, v: Array) -> Solution:
    """Minimise ``(y - design @ b)' V^-1 (y - design @ b)``; shapes (..., n, k), (..., n), (..., n, n)."""
    root = np.linalg.cholesky(v)
    whitened = np.linalg.solve(root, np.concatenate([design, y[..., None]], axis=-1))
    a, b = whitened[..., :-1], whitened[..., -1:]
    size = np.sqrt(np.sum(a**2, axis=-2, keepdims=True))
    size = np.where(size > 0, size, 1.0)
    q, r = np.linalg.qr(a / size)
    scaled = np.linalg.solve(r, np.swapaxes(q, -1, -2) @ b)
    inverse = np.linalg.inv(r) / np.swapaxes(size, -1, -2)
    left = b - (a / size) @ scaled
    return Solution(
        values=scaled[..., 0] / size[..., 0, :],
        covariance=inverse @ np.swapaxes(inverse, -1, -2),
        chi_square=np.sum(left**2, axis=(-2, -1)),
    )


def fit_gls(form: ResidualForm, pp: Array, y: Array, errors: Errors, concurrency: Array | None = None) -> Solution:
    """Fit a residual form to residuals ``y`` (..., n) at ``pp`` (n,) [stages]; the batch is one call.

    V follows the fitted curve; steps are halved where a curve would turn negative, which only a nonlinear form can do.
    """
    values = form.start(pp, y, concurrency)
    for _ in range(_STEPS):
        solution = _step(form, pp, y, errors, concurrency, values)
        moved = np.max(np.abs(solution.values - values), initial=0.0)
        values = solution.values
        if moved <= _TOLERANCE:
            break
    return solution


def _step(
    form: ResidualForm, pp: Array, y: Array, errors: Errors, concurrency: Array | None, values: Array
) -> Solution:
    f, jacobian = form.residual(pp, values, concurrency), form.jacobian(pp, values, concurrency)
    step = solve_gls(jacobian, y - f, errors.covariance(f))
    move = step.values
    for _ in range(_HALVINGS if form.nonlinear else 0):
        f = form.residual(pp, values + move, concurrency)
        beyond = np.any(~np.isfinite(f) | (f <= 0.0), axis=-1)
        if not np.any(beyond):
            break
        move = np.where(beyond[..., None], move / 2.0, move)
    return Solution(values + move, step.covariance, step.chi_square)
