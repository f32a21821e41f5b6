"""Change points over the history of a coefficient."""

from __future__ import annotations

import numpy as np

from calib.arrays import Array

_PENALTY = 3.0  # times log(n): each change point adds a level and a place


def change_points(values: Array, stderr: Array, *, at_least: int = 10) -> list[int]:
    """Positions in ``values`` (n,) [1] where a new level begins, by PELT with a squared cost; none under ``at_least`` nights.

    ``values`` are whitened by their stated ``stderr`` (n,) [1] first, so that the penalty ``3 log(n)`` of one change is in
    units of chi-square.
    """
    if len(values) < at_least:
        return []
    import ruptures

    signal = (np.asarray(values) / np.asarray(stderr))[:, None]
    found = ruptures.Pelt(model="l2", min_size=2, jump=1).fit_predict(signal, pen=_PENALTY * np.log(len(values)))
    return [int(p) for p in found[:-1]]
