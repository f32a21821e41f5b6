"""The stage formulas against published figures, by hand, and by their properties."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import assume, given, strategies as st

from calib.errors import UsageError
from calib.measure.shipped import find_campaign
from calib.pipeline.layout import PipelineLayout
from calib.pipeline.steady_state import PipelineSteadyState, microbatch_size

times = st.floats(0.01, 100.0)


def state(layers, per_layer=1.0, first=0.0, last=0.0, link=0.0, **more) -> PipelineSteadyState:
    return PipelineSteadyState(PipelineLayout(tuple(layers), per_layer, first, last, link), **more)


def published() -> dict:
    return json.loads((find_campaign("h20-trtllm-pp") / "stage-times-qwen3-32b.json").read_text())


def test_published_stage_times_of_qwen3_32b_on_h20():
    p = published()
    middle = p["stage_times_ms"][1]
    qwen = state(
        [8] * 8,
        per_layer=middle / 8,
        first=p["stage_times_ms"][0] - middle,
        last=p["stage_times_ms"][-1] - middle,
    )
    np.testing.assert_allclose(qwen.layout.stage_times_ms, p["stage_times_ms"], rtol=1e-12)
    assert round(qwen.ideal_cycle_ms, 3) == p["ideal_cycle_ms"] == 3.244
    assert qwen.cycle_ms == pytest.approx(p["realised_cycle_ms"], rel=1e-12)
    assert round(qwen.balance_factor, 3) == p["balance_factor"] == 0.832
    assert round(8 * qwen.balance_factor, 2) == p["speedup_of_8"] == 6.65
    assert qwen.critical_stage == 7


def test_64_layers_over_6_stages_cost_11_of_64_sixths():
    p = state([11, 11, 11, 11, 10, 10])
    assert 1 / p.balance_factor == pytest.approx(11 / (64 / 6), rel=1e-12)


def test_pp_1_gives_exactly_one_from_every_factor():
    p = state([40], per_layer=0.1234567, first=0.377, last=0.7531, link=9.9, concurrency=3)
    assert p.balance_factor == 1.0
    assert p.fill_factor == 1.0
    assert p.occupancy == 1.0
    assert p.efficiency("occupancy") == p.efficiency("linear") == p.efficiency("none") == 1.0


def test_the_last_stage_sends_nothing_on_so_cycle_and_traversal_differ():
    # Stages of 2, 2, 3.5 ms and hops of 1 ms: stage 1 is busy for 3 ms with its hop, the last for 3.5 ms without one.
    p = state([2, 2, 2], last=1.5, link=2.0)
    assert p.cycle_ms == 3.5
    assert p.traversal_ms == 2 + 2 + 3.5 + 2
    assert p.step_total_ms == 9.5
    assert p.balance_factor == 9.5 / 3 / 3.5
    # A hop that outlasts the bottleneck moves the critical stage to one that sends.
    slow = state([2, 2, 2], last=1.5, link=4.0)
    assert slow.cycle_ms == 4.0
    assert slow.critical_stage == 0


def test_overlapping_transfers_leave_the_cycle_alone():
    assert state([2, 2], link=1.0).cycle_ms == 3.0
    assert state([2, 2], link=1.0, overlap=True).cycle_ms == 2.0


def test_fill_and_occupancy_of_a_starved_pipe():
    p = state([2, 2, 2, 2], last=2.0, concurrency=1)
    assert p.microbatches == 1
    assert p.fill_factor == 0.25
    assert p.occupancy == 4.0 / 10.0
    # Balance times occupancy is M*(step_total/pp)/traversal: a starved pipe does not suffer the imbalance.
    assert p.efficiency("occupancy") == pytest.approx(1 * (10.0 / 4) / 10.0)
    assert state([2, 2, 2, 2], concurrency=64).occupancy == 1.0


@pytest.mark.parametrize(("c", "pp", "expected"), [(64, 8, 8), (1, 8, 1), (9, 8, 2), (8, 1, 8)])
def test_the_microbatch_is_the_concurrency_over_pp_rounded_up(c, pp, expected):
    assert microbatch_size(c, pp) == expected


@given(st.lists(times, min_size=1, max_size=12), st.floats(0, 50), st.integers(1, 200))
def test_factors_lie_in_the_unit_interval_and_traversal_covers_the_stages(stage_ms, hop, concurrency):
    p = from_times(stage_ms, hop, concurrency)
    assert 0 < p.balance_factor <= 1
    assert 0 < p.occupancy <= 1
    assert 0 < p.fill_factor <= 1
    assert p.traversal_ms >= sum(stage_ms) * (1 - 1e-12)
    assert p.cycle_ms >= max(stage_ms) * (1 - 1e-12)


@given(st.integers(1, 12), times)
def test_even_stages_with_free_links_are_perfectly_balanced(pp, ms):
    assert from_times([ms] * pp, 0.0, 64).balance_factor == pytest.approx(1.0, rel=1e-12)


@given(st.lists(times, min_size=2, max_size=8), st.floats(0, 10), st.integers(0, 7), st.floats(0.01, 50))
def test_a_slower_stage_never_shortens_cycle_or_traversal(stage_ms, hop, where, more):
    where %= len(stage_ms)
    slower = [*stage_ms]
    slower[where] += more
    a, b = from_times(stage_ms, hop, 8), from_times(slower, hop, 8)
    assert b.cycle_ms >= a.cycle_ms
    assert b.traversal_ms > a.traversal_ms


@given(st.lists(times, min_size=2, max_size=8), st.floats(0.01, 50))
def test_balance_never_improves_when_the_slowest_stage_slows(stage_ms, more):
    slow = [*stage_ms]
    slow[stage_ms.index(max(stage_ms))] += more
    before, after = from_times(stage_ms, 0.0, 8).balance_factor, from_times(slow, 0.0, 8).balance_factor
    assert after <= before * (1 + 1e-12)


@given(st.lists(times, min_size=1, max_size=8), st.floats(0.1, 10))
def test_balance_does_not_depend_on_the_clock(stage_ms, scale):
    assume(scale != 1)
    a, b = from_times(stage_ms, 0.5, 8), from_times([t * scale for t in stage_ms], 0.5 * scale, 8)
    assert a.balance_factor == pytest.approx(b.balance_factor, rel=1e-9)


def test_describe_names_the_critical_stage_and_the_factors():
    text = state([2, 2, 2], last=1.5, link=2.0, concurrency=2).describe()
    assert "2       2        3.5000         3.5000   100.0%  <- critical" in text
    assert "balance 0.9048: 2.71x of 3" in text
    assert "2 microbatches in flight: linear fill 0.6667, occupancy 0.7368" in text


def test_an_unknown_fill_rule_and_a_concurrency_of_zero_are_errors():
    with pytest.raises(UsageError, match="use occupancy, linear, none"):
        state([1, 1]).efficiency("full")
    with pytest.raises(UsageError, match="at least 1"):
        state([1, 1], concurrency=0)


class _Stages(PipelineLayout):
    """Stage times given one by one."""

    def __init__(self, stage_ms, hop):
        super().__init__(tuple([1] * len(stage_ms)), 1.0, 0.0, 0.0, hop * (len(stage_ms) - 1))
        object.__setattr__(self, "_times", np.array(stage_ms))

    @property
    def stage_times_ms(self):
        return self._times.copy()


def from_times(stage_ms, hop, concurrency) -> PipelineSteadyState:
    return PipelineSteadyState(_Stages(stage_ms, hop), concurrency)
