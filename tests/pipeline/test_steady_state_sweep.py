"""Many configurations at once give what each gives alone."""

from __future__ import annotations

import numpy as np
import pytest
from support.sweep import PlacedSteps, step_index, sweep

from calib.errors import BreakdownError
from calib.measure.shipped import load_campaign
from calib.pipeline.workload import steady_state_of


@pytest.fixture(scope="module")
def placed():
    return PlacedSteps.of(load_campaign("h200-vllm-pp").breakdowns)


@pytest.mark.parametrize("partition", ["even", "vllm"])
@pytest.mark.parametrize("overlap", [False, True])
def test_a_sweep_is_every_steady_state(placed, partition, overlap):
    rng = np.random.default_rng(1)
    index, concurrency = rng.integers(0, len(placed.steps), 300), rng.integers(1, 65, 300)
    found = sweep(placed, index, concurrency, partition=partition, overlap=overlap)
    for k, (i, c) in enumerate(zip(index, concurrency, strict=True)):
        alone = steady_state_of(placed.steps[i], partition, int(c))
        alone = type(alone)(alone.layout, int(c), overlap)
        for name in ("cycle_ms", "ideal_cycle_ms", "traversal_ms", "balance_factor", "fill_factor", "occupancy"):
            assert getattr(found, name)[k] == pytest.approx(getattr(alone, name), rel=1e-12), name


def test_pp_1_is_exactly_one(placed):
    index = [i for i, s in enumerate(placed.steps) if s.pp == 1]
    found = sweep(placed, index, [7] * len(index))
    assert (found.balance_factor == 1.0).all()
    assert (found.occupancy == 1.0).all()
    assert (found.fill_factor == 1.0).all()


def test_steps_are_found_by_key(placed):
    assert step_index(placed, [s.key for s in placed.steps[:5]]).tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(BreakdownError, match="no step for"):
        step_index(placed, [("decode", "nobody")])


@pytest.mark.parametrize(
    ("index", "concurrency"),
    [
        ([-1], [1]),
        ([10_000], [1]),
        ([0], [0]),
        ([0.7], [1]),
        ([0], [1.9]),
        ([0], [1, 2, 3]),
        (0, 1),
        ([[0]], [[1]]),
        ([True], [1]),
    ],
)
def test_points_that_are_none(placed, index, concurrency):
    with pytest.raises(BreakdownError, match="index"):
        sweep(placed, index, concurrency)
