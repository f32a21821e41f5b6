"""One coefficient through the nights: its baseline, its moves, and what an acknowledgement does to them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from calib.fitting import chi_square_sf
from calib.nightly.alarms.monitor import Limits, Monitor

MISFIT = 0.01  # probability of the pooled chi-square below which the stated errors are taken to be too small


@dataclass(frozen=True)
class Measured:
    """What one night says of one coefficient: value and stated standard error [1], chi-square on ``dof``."""

    night: int
    value: float
    stderr: float
    chi_square: float = 0.0
    dof: int = 0


@dataclass(frozen=True)
class Level:
    """Where a baseline begins: the released value and its stated error [1], or the first night's; ``night`` is its own."""

    value: float
    stderr: float
    night: int
    name: str


@dataclass(frozen=True)
class Move:
    """Where a coefficient stands tonight.

    ``opened`` is the night since which it is off, None where it is not; ``acknowledged`` the id whose level is
    the baseline now, if any.
    """

    opened: int | None
    value: float
    baseline: float
    z: float
    limit: float
    nights: int
    acknowledged: str | None


def together(found: Sequence[Measured]) -> Measured:
    """Independent measurements of one night as one: the inverse-variance mean."""
    weights = np.array([m.stderr**-2.0 for m in found])
    mean = float(np.sum(weights * [m.value for m in found]) / np.sum(weights))
    chi = sum(m.chi_square for m in found)
    return Measured(found[0].night, mean, float(np.sum(weights) ** -0.5), chi, sum(m.dof for m in found))


def scale(history: Sequence[Measured]) -> float:
    """What stated errors are to be multiplied by [1]: 1, unless the scatter pooled over the nights says they are too small."""
    chi, dof = sum(m.chi_square for m in history), sum(m.dof for m in history)
    if dof < 1 or chi_square_sf(chi, dof) >= MISFIT:
        return 1.0
    return max(1.0, math.sqrt(chi / dof))


def follow(
    start: Level,
    history: Sequence[Measured],
    *,
    limits: Limits,
    limit: float,
    acks: Mapping[int, str] | None = None,
) -> Move | None:
    """Follow a coefficient from its baseline through every night after it; None where there is no night after it.

    Parameters
    ----------
    history
        In order of nights, one entry a night; nights up to that of ``start`` are skipped.
    limit
        `calib.nightly.alarms.monitor.family_limit` [combined standard errors].
    acks
        Night after which an acknowledgement was given -> its id. The level measured since the alarm opened is the
        new baseline: it is silent until the next change.
    """
    nights = [m for m in history if m.night > start.night]
    if not nights:
        return None
    factor, known = scale(nights), dict(acks or {})

    def monitor(level: Level) -> Monitor:
        error = np.array(level.stderr * factor)
        return Monitor(np.array(level.value), error, limit=limit, baseline_nights=limits.baseline_nights)

    watching, opened, acknowledged, count, z = monitor(start), None, None, 0, 0.0
    ends = [*(n.night for n in nights[1:]), math.inf]
    for m, end in zip(nights, ends, strict=True):
        seen = watching.step(np.array(m.value), np.array(m.stderr * factor))
        z = float(seen.z if abs(seen.z) >= abs(seen.z_two) else seen.z_two)
        baseline = float(watching.baseline[0])
        opened = (m.night if opened is None else opened) if bool(seen.alarm) else None
        count += 1
        given = next((i for night, i in sorted(known.items()) if m.night <= night < end), None)
        if given is not None and opened is not None:
            since = together([n for n in nights if opened <= n.night <= m.night])
            watching = monitor(Level(since.value, since.stderr, m.night, given))
            acknowledged, opened = given, None
        elif opened is not None:
            acknowledged = None
    return Move(opened, nights[-1].value, baseline, z, limit, count, acknowledged)
