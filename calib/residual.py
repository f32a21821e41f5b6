"""The residual forms: what is left of the efficiency after stage balance, as a function of pp.

Each form is exactly 1 at pp = 1. ``residual`` is dimensionless: observed efficiency / balance factor.
Only numpy is imported here, since the prediction service evaluates these functions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calib.errors import UsageError

Array = NDArray[np.float64]


@dataclass(frozen=True)
class ResidualForm:
    """A form that is linear in its parameters: ``residual = 1 - design(pp) @ parameters``."""

    name: str
    parameters: tuple[str, ...]
    formula: str

    def design(self, pp: ArrayLike) -> Array:
        """Regressors at ``pp``, shape ``(n, len(parameters))``; a row of zeros at pp = 1."""
        return np.log2(np.asarray(pp, dtype=np.float64)).reshape(-1, 1)

    def residual(self, pp: ArrayLike, parameters: ArrayLike) -> Array:
        """The residual [1] at ``pp``, shape ``(n,)``."""
        return 1.0 - self.design(pp) @ np.asarray(parameters, dtype=np.float64)

    def positivity_limit_pp(self, parameters: ArrayLike) -> float | None:
        """The pp [stages] from which the residual is no longer positive: ``2**(1/s)``; None where it never is."""
        (s,) = np.asarray(parameters, dtype=np.float64)
        if s <= 0.0 or 1.0 / s > 1000.0:  # 2**1000 stages is "never", and stays a finite float
            return None
        return float(2.0 ** (1.0 / s))


LOG2 = ResidualForm("log2", ("s",), "1 - s*log2(pp)")
FORMS: dict[str, ResidualForm] = {LOG2.name: LOG2}


def get_form(name: str) -> ResidualForm:
    """The form called ``name``.

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
