"""The same pipeline for many engines at once: the recursion of `calib.emulator.engine`, one array operation a stage visit.

For steps of one kind and a constant number of microbatches nothing is left of an engine but its busy times, so thousands of
campaigns run side by side. Tests hold it against the event-driven engine.
"""

from __future__ import annotations

import numpy as np

from calib.arrays import Array


def step_ends_ms(busy_ms: Array, microbatches: int, steps: int, factors: Array | None = None) -> Array:
    """When each step leaves the last stage [ms], shape (steps, microbatches, engines).

    Parameters
    ----------
    busy_ms
        Time each stage is taken by one microbatch [ms], shape (engines, pp).
    microbatches, steps
        In flight, and steps of each of them.
    factors
        Jitter of each step [1], shape (steps, microbatches, engines); 1 where left out.
    """
    engines, pp = busy_ms.shape
    stages = np.ascontiguousarray(busy_ms.T)
    free = np.zeros((pp, engines))
    ends = np.zeros((steps, microbatches, engines))
    for step in range(steps):
        for m in range(microbatches):
            time = ends[step - 1, m] if step else np.zeros(engines)
            factor = 1.0 if factors is None else factors[step, m]
            for i in range(pp):
                time = np.maximum(time, free[i]) + stages[i] * factor
                free[i] = time
            ends[step, m] = time
    return ends


def steps_per_ms(busy_ms: Array, microbatches: int, steps: int = 24, factors: Array | None = None) -> Array:
    """Rate at which microbatches leave a pipe in its steady state [1/ms], shape (engines,): over the later half of the steps."""
    ends = step_ends_ms(busy_ms, microbatches, steps, factors)
    half = steps // 2
    rate: Array = (steps - half) * microbatches / (ends[-1, -1] - ends[half - 1, -1])
    return rate
