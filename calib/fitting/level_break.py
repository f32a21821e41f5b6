"""A form with one pp level set free: how far that level lies off the curve through the others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from calib.arrays import Array
from calib.coefficients import ResidualForm, real_array


@dataclass(frozen=True)
class WithLevel(ResidualForm):
    """A form times ``1 + d`` at one pp level: how far that level lies off the curve through the others.

    A diagnostic, never published; ``d`` is the last parameter.
    """

    base: ResidualForm | None = None
    level: float = 0.0

    @classmethod
    def of(cls, base: ResidualForm, level: float) -> WithLevel:
        """``base`` with a deviation at ``level`` [stages]."""
        formula = f"({base.formula}) * (1 + d at pp={level:g})"
        return cls(base.name, (*base.parameters, "d"), formula, base.needs_concurrency, True, base, level)

    def residual(self, pp: ArrayLike, parameters: ArrayLike, concurrency: ArrayLike | None = None) -> Array:
        p = real_array(parameters)
        value: Array = self._form.residual(pp, p[..., :-1], concurrency) * (1.0 + p[..., -1:] * self._hit(pp))
        return value

    def jacobian(self, pp: ArrayLike, parameters: ArrayLike, concurrency: ArrayLike | None = None) -> Array:
        p, hit = real_array(parameters), self._hit(pp)
        inner = self._form.jacobian(pp, p[..., :-1], concurrency) * (1.0 + p[..., -1:] * hit)[..., None]
        own = self._form.residual(pp, p[..., :-1], concurrency) * hit
        return np.concatenate([inner, own[..., None]], axis=-1)

    def start(self, pp: ArrayLike, residual: ArrayLike, concurrency: ArrayLike | None = None) -> Array:
        rest, y = ~self._hit(pp).astype(bool), real_array(residual)
        c = None if concurrency is None else real_array(concurrency)
        base = self._form.start(real_array(pp)[rest], y[..., rest], None if c is None else c[rest])
        curve = self._form.residual(pp, base, concurrency)[..., ~rest]
        ratio = y[..., ~rest] / np.where(np.abs(curve) > 1e-3, curve, 1e-3)
        return np.concatenate([base, np.maximum(ratio.mean(axis=-1, keepdims=True) - 1.0, -0.99)], axis=-1)

    @property
    def _form(self) -> ResidualForm:
        assert self.base is not None
        return self.base

    def _hit(self, pp: ArrayLike) -> Array:
        hit: Array = (real_array(pp) == self.level).astype(np.float64)
        return hit
