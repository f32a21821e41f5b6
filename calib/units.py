"""The metric registry: one name, one unit, one direction, one plausible range.

Units are converted once, where a file is parsed; everything inside uses the unit given here, and the unit is
part of the name.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Metric:
    """One measured quantity.

    ``low`` and ``high`` bound what a working measurement can show (inclusive, in ``unit``); outside them a value is
    a fault of the measurement, not a result.
    """

    name: str
    unit: str
    higher_is_better: bool
    low: float
    high: float

    def plausible(self, value: float) -> bool:
        """Whether ``value`` [``unit``] is finite and within the range."""
        return math.isfinite(value) and self.low <= value <= self.high


# The ranges are wide on purpose: they catch a unit mix-up or a clock error (a TTFT of -1.7e12 ms), not a slow server.
METRICS: dict[str, Metric] = {
    m.name: m
    for m in (
        Metric("output_tokens_per_s", "tok/s", True, 1e-6, 1e9),
        Metric("output_tokens_per_s_stderr", "tok/s", False, 0.0, 1e9),
        Metric("requests_per_s", "req/s", True, 1e-9, 1e7),
        Metric("ttft_p50_ms", "ms", False, 0.0, 3.6e6),
        Metric("itl_p50_ms", "ms", False, 0.0, 3.6e6),
        Metric("tpot_mean_ms", "ms", False, 0.0, 3.6e6),
        Metric("completed_requests", "requests", True, 0, 1e9),
        Metric("failed_requests", "requests", False, 0, 1e9),
        Metric("duration_s", "s", False, 1e-6, 1e7),
        # More than 4x the baseline per GPU has never been seen, and would be a mistaken column.
        Metric("efficiency", "1", True, 1e-6, 4.0),
    )
}
