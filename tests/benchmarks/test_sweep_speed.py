"""Speed of the stage model, as ratios within one run. `pytest -m slow -n 0 -s tests/benchmarks`."""

from __future__ import annotations

import time

import numpy as np
import pytest
from support.sweep import PlacedSteps, sweep

from calib.measure.shipped import load_campaign
from calib.pipeline.workload import steady_state_of


def best_of(function, times: int = 5) -> float:
    """The shortest of several runs [s]: what the code needs, without what else the machine did."""
    found = []
    for _ in range(times):
        start = time.perf_counter()
        function()
        found.append(time.perf_counter() - start)
    return min(found)


@pytest.mark.slow
def test_a_sweep_of_10000_points_against_a_loop_over_describe():
    placed = PlacedSteps.of(load_campaign("h200-vllm-pp").breakdowns)
    rng = np.random.default_rng(0)
    index, concurrency = rng.integers(0, len(placed.steps), 10_000), rng.integers(1, 65, 10_000)

    def loop():
        for i, c in zip(index[:500], concurrency[:500], strict=True):
            steady_state_of(placed.steps[i], "vllm", int(c)).describe()

    one = best_of(loop, 3) / 500
    vectorised = best_of(lambda: sweep(placed, index, concurrency, partition="vllm"))
    ratio = 10_000 * one / vectorised
    print(
        f"\ndescribe() {1e3 * one:.3f} ms; 10,000 points {1e3 * vectorised:.2f} ms vectorised: {ratio:.0f} times the loop"
    )
    assert ratio >= 100
    assert one < 0.005
