"""Change points of each coefficient over the nights, in words."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from calib.nightly.alarms.changepoints import change_points
from calib.nightly.alarms.gates import describe
from calib.nightly.alarms.monitor import Limits
from calib.nightly.alarms.series import together
from calib.nightly.history import entries, latest, measurements
from calib.nightly.record import NightRecord


def trends(records: Sequence[NightRecord], limits: Limits) -> list[str]:
    """Where the level of a coefficient changed; nothing under ten nights of it."""
    words = []
    found = latest(entries(records))
    newest = {scope: e for e in found for scope in e.scopes}
    same = [e for e in found if any(newest[s].agrees(e) for s in e.scopes)]
    for (series, parameter), rows in measurements(same).items():
        nights = [together(list(own)) for _, own in itertools.groupby(rows, key=lambda m: m.night)]
        if series[3] is None or len(nights) < limits.changepoint_nights:
            continue
        values, errors = np.array([m.value for m in nights]), np.array([m.stderr for m in nights])
        for place in change_points(values, errors, at_least=limits.changepoint_nights):
            before, after = values[max(0, place - 5) : place].mean(), values[place : place + 5].mean()
            words.append(
                f"{parameter} of {describe(series)}: level changes at night {nights[place].night}, "
                f"from {before:.4f} to {after:.4f} (means of up to 5 nights)"
            )
    return words
