"""Tails and quantiles of the normal, Student's t and chi-square distributions.

The same functions as those of `scipy.stats`, whose import alone takes longer than a calibration of a small campaign.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from calib.arrays import Array


def normal_sf(z: ArrayLike) -> Array:
    """Probability [1] that a standard normal number exceeds ``z`` [1]."""
    return np.asarray(special.ndtr(-np.asarray(z, dtype=np.float64)))


def normal_quantile(p: float) -> float:
    """The number [1] that a standard normal one stays below with probability ``p`` [1]."""
    return float(special.ndtri(p))


def t_quantile(p: float, dof: int) -> float:
    """The same for Student's t with ``dof`` degrees of freedom."""
    return float(special.stdtrit(dof, p))


def chi_square_sf(x: ArrayLike, dof: int) -> Array:
    """Probability [1] that chi-square with ``dof`` degrees of freedom exceeds ``x`` [1]."""
    return np.asarray(special.chdtrc(dof, np.asarray(x, dtype=np.float64)))


def kendall_tau(a: Array, b: Array) -> float:
    """Kendall's tau-b [1] of two rankings (n,); NaN where all of one are equal."""
    x, y = np.sign(a[:, None] - a[None, :]), np.sign(b[:, None] - b[None, :])
    pairs = np.sqrt(float(np.sum(x * x)) * float(np.sum(y * y)))
    return float(np.sum(x * y)) / pairs if pairs > 0 else float("nan")
