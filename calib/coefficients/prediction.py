"""What a prediction returns, and the guard against correcting twice."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from calib.arrays import Array
from calib.coefficients.points import (
    NOT_APPLIED,
)
from calib.errors import (
    AlreadyAppliedError,
    PointError,
)
from calib.files import SHORT

Correction = Literal["on", "off"]


class Prediction(msgspec.Struct, frozen=True):
    """Predicted values, one an operating point.

    Attributes
    ----------
    value, stderr, low, high : ndarray, shape (n,)
        In ``unit``. ``stderr`` is that of one new measurement (parameter error and scatter about the curve), ``low`` and
        ``high`` bound its 95 % prediction interval; NaN where the fit had too few points to know. The arrays remember that
        they are calibrated (`CalibratedArray`).
    flags : ndarray of str, shape (n,)
        ``identity`` (pp = 1), ``exact`` (the model's own coefficient), ``pooled`` (the backend's), ``extrapolated`` (outside
        the domain, because the caller allowed it), ``refused`` (a rejected form, applied because the caller named it), or
        ``uncorrected`` (correction is off). The gravest one, where several hold: refused, extrapolated, pooled.
    unit : str
        ``1`` for a factor, ``tok/s`` for a throughput.
    reference : str
        What the factor multiplies: ``baseline`` or ``model``.
    applied : str
        Digest of the coefficient file that was applied; ``none`` where correction is off.
    source : str
        That file, where it was loaded from one.
    """

    value: Array
    stderr: Array
    low: Array
    high: Array
    flags: NDArray[np.str_]
    unit: str
    reference: str
    applied: str
    source: str = ""

    def describe(self) -> str:
        """One sentence: whether a coefficient file was applied, and which."""
        if self.applied == NOT_APPLIED:
            return "no correction was applied: it is turned off"
        file = f" ({self.source})" if self.source else ""
        return f"corrected by coefficient file {self.applied[:SHORT]}{file}, reference '{self.reference}'"


def require_not_applied(field: str, given: Any) -> None:
    """Raise where what is to be multiplied has been corrected before."""
    applied = given.applied if isinstance(given, Prediction) else getattr(given, "calib_applied", "")
    if applied and applied != NOT_APPLIED:
        raise AlreadyAppliedError(
            f"is already corrected, by the coefficient file {applied[:SHORT]}",
            field=field,
            remedy="give the throughput as it was before the correction",
        )
    if isinstance(given, Prediction):
        raise PointError("is a prediction without correction", field=field, remedy="give its value")
