"""H20 at concurrency 1: what the ideal model forgets is that one request cannot fill a pipe."""

from __future__ import annotations

import csv

import pytest

from calib.measure.shipped import find_campaign, load_campaign
from calib.pipeline.steady_state import PipelineSteadyState
from calib.pipeline.workload import steady_state_of


@pytest.fixture(scope="module")
def points():
    """(pp, ideal over measured) at C=1, and the pipe of each configuration."""
    path = find_campaign("h20-trtllm-pp") / "ratios.csv"
    rows = [r for r in csv.DictReader(path.read_text().splitlines()) if r["concurrency"] == "1"]
    steps = {s.pp: s for s in load_campaign("h20-trtllm-pp").breakdowns.steps}
    return [
        (1 + float(r["ideal_model_over_prediction_pct"]) / 100, steady_state_of(steps[int(r["pp"])], "even", 1))
        for r in rows
    ]


def after(ideal: float, factor: float) -> float:
    return 100 * (ideal * factor - 1)


def test_microbatches_in_flight_turn_the_published_errors_into_the_published_remainders(points):
    assert [round(100 * (ideal - 1)) for ideal, _ in points] == [144, 333, 645]
    found = [after(ideal, pipe.fill_factor) for ideal, pipe in points]
    assert found == [pytest.approx(x, abs=1) for x in (22, 8, -7)]


def test_occupancy_does_not_charge_the_imbalance_to_a_starved_pipe(points):
    """Balance times linear fill takes the slow last stage off once more, although one microbatch never waits for it.

    With M = 1 balance times occupancy is (step_total/pp)/traversal, here exactly 1/pp: what the fill alone says.
    """
    linear = [after(ideal, pipe.efficiency("linear")) for ideal, pipe in points]
    bound = [after(ideal, pipe.efficiency("occupancy")) for ideal, pipe in points]
    assert bound == [pytest.approx(x, abs=1) for x in (22, 8, -7)]
    assert linear == [pytest.approx(x, abs=1) for x in (19, 0, -22)]
    for _, pipe in points:
        assert isinstance(pipe, PipelineSteadyState)
        assert pipe.efficiency("occupancy") == pytest.approx(1 / pipe.pp, rel=1e-12)
