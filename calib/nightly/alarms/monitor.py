"""Has a coefficient moved? One test a night, and one of the last two nights together, against a held baseline.

The baseline of a coefficient is the inverse-variance mean of the released value and of the first quiet nights after it, at
most `Limits.baseline_nights` of them: one release alone is known no better than one night, and with it a change of 10 % of
``s`` would be found in four cases of five. Then it is frozen, so that a slow drift is not followed. A night enters one night
late, since the last two are tested, and never while the coefficient is off: the baseline is held while regressed.

    z = (x - baseline) / sqrt(stderr(x)^2 + stderr(baseline)^2)      [combined standard errors]

Errors are those that the measurements state, not those scaled by each night's own scatter: on two degrees of freedom the
latter give Student's t, which exceeds 3.5 in 7 of 100 nights of pure noise.

The limit is 3.5, or more where a family of tests (coefficients x nights x 2) is so large that more than one false alarm in
it would have a probability above 1.8 %: for a Poisson mean of 0.2, P(N <= 1) = 0.982. The rest of 5 % is left to the errors,
which are not quite normal, to the baseline, which all nights share, and to the other alarms.

Everything has leading batch dimensions (histories, series); numpy, and scipy for one quantile.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from calib.arrays import Array
from calib.fitting import normal_quantile

Flags = NDArray[np.bool_]
FALSE_ALARMS = 0.2  # Poisson mean with P(N <= 1) = 0.982
CLOSES = 0.7  # part of the limit below which an open alarm closes: one that flickers is one alarm
WINDOWS = 2  # tonight, and the last two nights together


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What raises an alarm: ``[alarms]`` of the nightly configuration.

    Attributes
    ----------
    standard_errors : float
        Least move of a coefficient [combined standard errors].
    family_nights : int
        Nights over which at most one false alarm is wanted [1].
    baseline_nights : int
        Quiet nights after the release that make the baseline [1].
    mape_points, mape_relative_pct : float
        Rise of the mean absolute percentage error [percentage points] and [%]: both must be reached.
    mape_standard_errors : float
        How many of its standard errors the rise must be, so that a few noisy points raise no alarm; 0 switches this off. Five,
        since absolute errors are skew: with 3.5 one history of noise in ten would alarm twice.
    coverage_nights : int
        Nights, tonight's included, within which each released point is to be measured again [1].
    changepoint_nights : int
        Nights of history from which change points are looked for [1].
    """

    standard_errors: float = 3.5
    family_nights: int = 200
    baseline_nights: int = 20
    mape_points: float = 2.0
    mape_relative_pct: float = 10.0
    mape_standard_errors: float = 5.0
    coverage_nights: int = 1
    changepoint_nights: int = 10


def family_limit(limits: Limits, coefficients: int) -> float:
    """The limit [combined standard errors] for so many coefficients."""
    tests = max(1, coefficients) * limits.family_nights * WINDOWS
    return max(limits.standard_errors, -normal_quantile(FALSE_ALARMS / tests / 2))


@dataclass(frozen=True)
class Verdicts:
    """Of one night, each (...): z of tonight and of the last two nights [combined standard errors], and whether it alarms."""

    z: Array
    z_two: Array
    alarm: Flags


class Monitor:
    """Baselines of a batch of coefficients, fed with one night after another.

    Parameters
    ----------
    value, stderr
        (...): the released (or first) value [1] and its standard error [1].
    limit
        `family_limit` [combined standard errors].
    baseline_nights
        See `Limits`.
    """

    def __init__(self, value: Array, stderr: Array, *, limit: float, baseline_nights: int = 20) -> None:
        value, stderr = np.asarray(value, dtype=np.float64), np.asarray(stderr, dtype=np.float64)
        self._weight: Array = stderr**-2.0
        self._sum: Array = value * self._weight
        self._nights = np.zeros(value.shape, dtype=np.int64)
        self._last: Array = np.full(value.shape, np.nan)
        self._last_weight: Array = np.zeros(value.shape)
        self._last_quiet: Flags = np.zeros(value.shape, dtype=np.bool_)
        self._open: Flags = np.zeros(value.shape, dtype=np.bool_)
        self._limit, self._most = limit, baseline_nights

    @property
    def baseline(self) -> tuple[Array, Array]:
        """Value and standard error [1] of the baseline."""
        return self._sum / self._weight, self._weight**-0.5

    def step(self, value: Array, stderr: Array) -> Verdicts:
        """Judge a night; one without a measurement (NaN) changes nothing."""
        value, weight = np.asarray(value, dtype=np.float64), np.asarray(stderr, dtype=np.float64) ** -2.0
        seen = np.isfinite(value) & np.isfinite(weight)
        x, w = np.where(seen, value, 0.0), np.where(seen, weight, 1.0)
        base, variance = self._sum / self._weight, 1.0 / self._weight
        z = np.where(seen, (x - base) / np.sqrt(1.0 / w + variance), 0.0)
        before = np.isfinite(self._last)
        both = w + self._last_weight
        mean = (x * w + np.where(before, self._last, 0.0) * self._last_weight) / both
        z_two = np.where(seen & before, (mean - base) / np.sqrt(1.0 / both + variance), 0.0)
        size = np.maximum(np.abs(z), np.abs(z_two))
        alarm: Flags = seen & ((size > self._limit) | (self._open & (size > CLOSES * self._limit)))
        self._open = np.where(seen, alarm, self._open)
        # The night before enters the baseline once tonight is quiet as well.
        enters = seen & self._last_quiet & ~alarm & (self._nights < self._most)
        self._sum = self._sum + np.where(enters, np.nan_to_num(self._last) * self._last_weight, 0.0)
        self._weight = self._weight + np.where(enters, self._last_weight, 0.0)
        self._nights = self._nights + enters
        self._last = np.where(seen, x, self._last)
        self._last_weight = np.where(seen, w, self._last_weight)
        self._last_quiet = np.where(seen, ~alarm, self._last_quiet)
        return Verdicts(z, z_two, alarm)


def mape_rise(
    *, before: Array, now: Array, before_stderr: Array, now_stderr: Array, limits: Limits
) -> tuple[Array, Flags]:
    """Rise of a MAPE [percentage points], and whether it is one to tell: by points, relatively, and beyond its own noise.

    ``before`` and ``now`` (...) are means over the same points [%], their standard errors in [percentage points].
    """
    rise = np.asarray(now) - np.asarray(before)
    relative = np.where(before > 0, 100.0 * rise / np.where(before > 0, before, 1.0), np.inf)
    noise = limits.mape_standard_errors * np.hypot(before_stderr, now_stderr)
    slack = 1e-9  # so that exactly 2 points are 2 points
    told = (rise >= limits.mape_points - slack) & (relative >= limits.mape_relative_pct - slack) & (rise >= noise)
    return rise, told


def mape_stderr(rel_error: Array, baseline_rel_error: Array, blocks: NDArray[np.intp]) -> float:
    """Standard error [percentage points] of a MAPE over points whose errors [1] are stated.

    The absolute value of a normal error has sqrt(1 - 2/pi) of its standard deviation. Points that share a baseline
    measurement (``blocks``) share that part of the error.
    """
    if not len(rel_error):
        return 0.0
    own = float(np.sum(rel_error**2))
    shared = sum(float(np.sum(baseline_rel_error[blocks == b])) ** 2 for b in np.unique(blocks))
    return 100.0 * float(np.sqrt(1.0 - 2.0 / np.pi)) * float(np.sqrt(own + shared)) / len(rel_error)
