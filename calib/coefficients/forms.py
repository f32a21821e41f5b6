"""The residual forms: what is left of the efficiency after stage balance, as a function of pp.

Each form is exactly 1 at pp = 1. ``residual`` is dimensionless: observed efficiency / balance factor (or, with
``reference = "model"``, what K, balance and fill leave of it). Only numpy is imported here, since the prediction service
evaluates these functions. Every function takes parameters of shape ``(..., k)`` and answers in shape ``(..., n)``, so that
thousands of simulated fits are one call.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from calib.arrays import Array
from calib.errors import UsageError


@dataclass(frozen=True)
class ResidualForm(ABC):
    """One form: its name in coefficient files, its parameters and its formula in words.

    ``needs_concurrency`` says whether the concurrency [requests in flight] of a point enters. A form adds methods and no
    fields, so it needs no dataclass of its own, which a prediction service would wait a millisecond for.
    """

    name: str
    parameters: tuple[str, ...]
    formula: str
    needs_concurrency: bool = False
    nonlinear: bool = False

    @abstractmethod
    def residual(self, pp: ArrayLike, parameters: ArrayLike, concurrency: ArrayLike | None = None) -> Array:
        """The residual [1] at ``pp`` [stages], shape ``(..., n)``."""

    @abstractmethod
    def jacobian(self, pp: ArrayLike, parameters: ArrayLike, concurrency: ArrayLike | None = None) -> Array:
        """Derivatives of the residual by the parameters, shape ``(..., n, k)``; zero at pp = 1."""

    @abstractmethod
    def start(self, pp: ArrayLike, residual: ArrayLike, concurrency: ArrayLike | None = None) -> Array:
        """A first guess from residuals of shape ``(..., n)``, exact where they lie on the curve; shape ``(..., k)``."""

    def positivity_limit_pp(self, parameters: ArrayLike, concurrency: float | None = None) -> float | None:
        """The pp [stages] from which the residual is no longer positive; None where it always is."""
        return None


class Log2(ResidualForm):
    """The published form ``1 - s*log2(pp)``."""

    def residual(self, pp: ArrayLike, parameters: ArrayLike, concurrency: ArrayLike | None = None) -> Array:
        value: Array = 1.0 + np.einsum(
            "...k,...nk->...n", real_array(parameters), self.jacobian(pp, parameters, concurrency)
        )
        return value

    def jacobian(self, pp: ArrayLike, parameters: ArrayLike, concurrency: ArrayLike | None = None) -> Array:
        terms = -self._terms(np.log2(real_array(pp)), concurrency)
        return np.broadcast_to(terms, (*np.shape(parameters)[:-1], *terms.shape))

    def start(self, pp: ArrayLike, residual: ArrayLike, concurrency: ArrayLike | None = None) -> Array:
        design = self._terms(np.log2(real_array(pp)), concurrency)
        first: Array = (1.0 - real_array(residual)) @ np.linalg.pinv(design).T
        return first

    def positivity_limit_pp(self, parameters: ArrayLike, concurrency: float | None = None) -> float | None:
        """``2**(1/s)``."""
        slope = float(self._terms(np.ones(1), concurrency or 1.0)[0] @ real_array(parameters))
        if slope <= 0.0 or 1.0 / slope > 1000.0:  # 2**1000 stages is "never", and stays a finite float
            return None
        return float(2.0 ** (1.0 / slope))

    def _terms(self, x: Array, concurrency: ArrayLike | None) -> Array:
        return x[..., None]


class Log2Concurrency(Log2):
    """``1 - (s + u*log2(C))*log2(pp)``: a scheduling cost that grows with load."""

    def _terms(self, x: Array, concurrency: ArrayLike | None) -> Array:
        if concurrency is None:
            raise UsageError("is needed by this form at every point", field="concurrency", value=None)
        return np.stack(np.broadcast_arrays(x, x * np.log2(real_array(concurrency))), axis=-1)


class Power(ResidualForm):
    """``pp**-a``."""

    def residual(self, pp: ArrayLike, parameters: ArrayLike, concurrency: ArrayLike | None = None) -> Array:
        return real_array(pp) ** -real_array(parameters)[..., 0:1]

    def jacobian(self, pp: ArrayLike, parameters: ArrayLike, concurrency: ArrayLike | None = None) -> Array:
        return (-np.log(real_array(pp)) * self.residual(pp, parameters))[..., None]

    def start(self, pp: ArrayLike, residual: ArrayLike, concurrency: ArrayLike | None = None) -> Array:
        x, y = np.log(real_array(pp)), -np.log(np.maximum(real_array(residual), 1e-3))
        return _through_origin(x, y)


class Hyperbolic(ResidualForm):
    """``1/(1 + k*(pp - 1))``: a constant cost a microbatch and stage."""

    def residual(self, pp: ArrayLike, parameters: ArrayLike, concurrency: ArrayLike | None = None) -> Array:
        return 1.0 / (1.0 + real_array(parameters)[..., 0:1] * (real_array(pp) - 1.0))

    def jacobian(self, pp: ArrayLike, parameters: ArrayLike, concurrency: ArrayLike | None = None) -> Array:
        return (-(real_array(pp) - 1.0) * self.residual(pp, parameters) ** 2)[..., None]

    def start(self, pp: ArrayLike, residual: ArrayLike, concurrency: ArrayLike | None = None) -> Array:
        return _through_origin(real_array(pp) - 1.0, 1.0 / np.maximum(real_array(residual), 1e-3) - 1.0)


class Free(ResidualForm):
    """One value per measured pp level, and nothing in between: the fallback where no curve fits.

    Parameters are named ``pp2``, ``pp4``, ... after their level. NaN at a level that was not measured.
    """

    def residual(self, pp: ArrayLike, parameters: ArrayLike, concurrency: ArrayLike | None = None) -> Array:
        p, indicator = real_array(pp), self.jacobian(pp, np.zeros(len(self.parameters)))
        value: Array = np.einsum("...k,nk->...n", real_array(parameters), indicator)
        return np.where(p == 1.0, 1.0, np.where(indicator.any(axis=-1), value, np.nan))

    def jacobian(self, pp: ArrayLike, parameters: ArrayLike, concurrency: ArrayLike | None = None) -> Array:
        hit = (real_array(pp)[..., None] == np.array(self.levels, dtype=np.float64)).astype(np.float64)
        return np.broadcast_to(hit, (*np.shape(parameters)[:-1], *hit.shape))

    def start(self, pp: ArrayLike, residual: ArrayLike, concurrency: ArrayLike | None = None) -> Array:
        hit = self.jacobian(pp, np.zeros(len(self.parameters)))
        mean: Array = real_array(residual) @ hit / hit.sum(axis=0)
        return mean

    @property
    def levels(self) -> tuple[int, ...]:
        """The pp levels [stages] that have a value."""
        return tuple(int(name.removeprefix("pp")) for name in self.parameters)


LOG2 = Log2("log2", ("s",), "1 - s*log2(pp)")
LOG2_CONCURRENCY = Log2Concurrency(
    "log2_concurrency", ("s", "u"), "1 - (s + u*log2(C))*log2(pp)", needs_concurrency=True
)
POWER = Power("power", ("a",), "pp**-a", nonlinear=True)
HYPERBOLIC = Hyperbolic("hyperbolic", ("k",), "1/(1 + k*(pp-1))", nonlinear=True)
FREE = Free("free", (), "one value per pp level")
FORMS: dict[str, ResidualForm] = {f.name: f for f in (LOG2, POWER, HYPERBOLIC, FREE, LOG2_CONCURRENCY)}


def free_form(levels: Sequence[int]) -> Free:
    """The ``free`` form of the given pp levels (each > 1) [stages]."""
    return Free(FREE.name, tuple(f"pp{p}" for p in sorted({int(p) for p in levels} - {1})), FREE.formula)


def get_form(name: str) -> ResidualForm:
    """The form called ``name``; ``free`` still without its levels.

    Raises
    ------
    UsageError
        No such form.
    """
    try:
        return FORMS[name]
    except KeyError:
        raise UsageError(
            "is not a known residual form", field="form", value=name, remedy=f"use one of {', '.join(FORMS)}"
        ) from None


def real_array(values: ArrayLike) -> Array:
    """Anything array-like as an array of doubles."""
    return np.asarray(values, dtype=np.float64)


def _through_origin(x: Array, y: Array) -> Array:
    at = float(x @ x)
    slope: Array = np.asarray((y @ x) / at if at > 0 else np.zeros(y.shape[:-1]))
    return slope[..., None]
