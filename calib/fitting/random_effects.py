"""Models within a backend within a system: what is known of one that was not measured.

Random effects: the parameters of model i are ``b_i = X_i @ m + a_i`` with ``a_i`` of covariance B between models, and are
estimated with covariance ``V_i``. B is the moment estimator ``S - mean(V_i)`` (Hedges and Olkin 1985, for each element;
projected onto what a covariance can be), ``m`` weighted by ``(V_i + B)^-1``. A new model has the prediction variance
``B + var(m)`` on ``k - p - 1`` degrees of freedom for k models and p coefficients, k - 2 without covariates (Higgins, Thompson
and Spiegelhalter 2009): a plug-in normal quantile covers a new model far too seldom at the k that campaigns have.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from calib.arrays import Array
from calib.fitting.quantiles import t_quantile


@dataclass(frozen=True)
class Pool:
    """The distribution that k models come from.

    ``mean`` (p, q): one row a covariate column, one column a parameter; ``covariance`` (p*q, p*q) of its entries, row by row;
    ``between`` (q, q) between models; ``dof`` of a prediction, below 1 where nothing can be said.
    """

    mean: Array
    covariance: Array
    between: Array
    dof: int
    k: int

    def new(self, covariates: Array | None = None) -> tuple[Array, Array]:
        """Parameters (q,) of a model that was not measured, and their prediction covariance (q, q)."""
        x = np.ones(1) if covariates is None else np.asarray(covariates, dtype=np.float64)
        spread = np.kron(x[None, :], np.eye(len(self.between)))
        return x @ self.mean, self.between + spread @ self.covariance @ spread.T

    def shrunk(self, values: Array, covariance: Array, covariates: Array | None = None) -> tuple[Array, Array]:
        """The partially pooled parameters of a measured model (best linear unbiased prediction), and their covariance."""
        x = np.ones(1) if covariates is None else np.asarray(covariates, dtype=np.float64)
        spread = np.kron(x[None, :], np.eye(len(self.between)))
        keep = self.between @ np.linalg.pinv(self.between + covariance)
        rest = np.eye(len(self.between)) - keep
        left = rest @ spread
        return (
            keep @ values + rest @ (x @ self.mean),
            keep @ covariance + left @ self.covariance @ left.T,
        )

    @property
    def quantile(self) -> float | None:
        """The t quantile of a 95 % prediction interval, None where the models are too few for one."""
        return t_quantile(0.975, self.dof) if self.dof >= 1 else None


def pool(values: Array, covariances: Array, covariates: Array | None = None) -> Pool:
    """Random effects of estimates ``values`` (k, q) with ``covariances`` (k, q, q).

    ``covariates`` (k, p) include the column of ones; only that where it is None. Needs k > p.
    """
    k, q = values.shape
    x = np.ones((k, 1)) if covariates is None else np.asarray(covariates, dtype=np.float64)
    p = x.shape[1]
    left = values - x @ np.linalg.lstsq(x, values, rcond=None)[0]
    hat = np.eye(k) - x @ np.linalg.pinv(x)
    # E[left' left] = sum_i hat_ii V_i + (k-p) B, so that the mean error is weighted by what the regression leaves.
    noise = np.einsum("i,iab->ab", np.diag(hat), covariances)
    between = _positive((left.T @ left - noise) / (k - p)) if k > p else np.zeros((q, q))
    weight = np.linalg.pinv(covariances + between, hermitian=True)
    information = np.einsum("ka,kb,kij->aibj", x, x, weight).reshape(p * q, p * q)
    score = np.einsum("ka,kij,kj->ai", x, weight, values).reshape(p * q)
    inverse = np.linalg.pinv(information, hermitian=True)
    return Pool((inverse @ score).reshape(p, q), inverse, between, k - p - 1, k)


def _positive(matrix: Array) -> Array:
    """The nearest covariance matrix: negative variances are no variance."""
    eigenvalues, vectors = np.linalg.eigh(matrix)
    nearest: Array = (vectors * np.maximum(eigenvalues, 0.0)) @ vectors.T
    return nearest
