"""Which stage does which work."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, strategies as st

from calib.errors import BreakdownError
from calib.pipeline.layout import PARTITION_RULES, PipelineLayout, UnknownOpWarning, check_op_counts, partition_layers


@pytest.mark.parametrize(
    ("layers", "pp", "expected"),
    [(64, 6, (11, 11, 11, 11, 10, 10)), (36, 8, (5, 5, 5, 5, 4, 4, 4, 4)), (40, 4, (10, 10, 10, 10)), (7, 1, (7,))],
)
def test_even_partition_puts_the_remainder_on_the_leading_stages(layers, pp, expected):
    assert partition_layers(layers, pp, "even") == expected


@pytest.mark.parametrize(
    ("layers", "pp", "expected"),
    [
        (61, 4, (15, 15, 16, 15)),
        (94, 4, (23, 24, 24, 23)),
        (63, 4, (16, 16, 16, 15)),
        (64, 8, (8,) * 8),
        (28, 1, (28,)),
    ],
)
def test_vllm_partition_spares_the_last_stage(layers, pp, expected):
    assert partition_layers(layers, pp, "vllm") == expected


@given(st.integers(1, 200), st.integers(1, 64), st.sampled_from(["even", "vllm"]))
def test_every_rule_places_every_layer_and_differs_by_at_most_one(layers, pp, rule):
    if pp > layers:
        with pytest.raises(BreakdownError, match="cannot split"):
            partition_layers(layers, pp, rule)
        return
    parts = partition_layers(layers, pp, rule)
    assert sum(parts) == layers
    assert len(parts) == pp
    assert max(parts) - min(parts) <= 1


def test_an_explicit_partition_is_taken_as_stated():
    assert partition_layers(10, 3, [5, 0, 5]) == (5, 0, 5)


@pytest.mark.parametrize("parts", [[5, 5], [5, 5, 1], [11, -1, 0], [5.0, 5, 0], [True, 9, 0], []])
def test_an_impossible_explicit_partition_is_an_error_that_names_it(parts):
    with pytest.raises(BreakdownError, match="3 non-negative whole numbers with the sum 10"):
        partition_layers(10, 3, parts)


def test_an_unknown_rule_is_an_error_that_lists_the_known_ones():
    with pytest.raises(BreakdownError, match="use one of even, vllm"):
        partition_layers(10, 2, "fastest")


OPS = {
    "generation_embedding": 0.5,
    "generation_embedding_ar": 0.25,
    "generation_qkv_gemm": 8.0,
    "generation_attention": 16.0,
    "generation_ar_1": 8.0,
    "generation_logits_gemm": 2.0,
    "generation_p2p": 3.0,
}


def test_ops_are_placed_by_name():
    layout = PipelineLayout.from_ops(OPS, num_layers=8, pp=4)
    assert layout.first_ms == 0.75
    assert layout.last_ms == 2.0
    assert layout.per_layer_ms == 4.0
    assert layout.hop_ms == 1.0
    np.testing.assert_array_equal(layout.stage_times_ms, [8.75, 8.0, 8.0, 10.0])


def test_at_pp_1_there_is_no_link():
    layout = PipelineLayout.from_ops(OPS, num_layers=8, pp=1)
    assert layout.hop_ms == 0.0
    np.testing.assert_array_equal(layout.stage_times_ms, [34.75])


@given(st.permutations(sorted(OPS)))
def test_the_order_of_ops_changes_nothing(names):
    shuffled = {n: OPS[n] / 3 for n in names}
    assert PipelineLayout.from_ops(shuffled, 8, 4) == PipelineLayout.from_ops(
        {n: OPS[n] / 3 for n in sorted(OPS)}, 8, 4
    )


@pytest.mark.parametrize("name", ["generation_mystery", "context_mystery"])
def test_an_op_of_no_known_kind_is_spread_over_the_layers_with_a_warning(name):
    with pytest.warns(UnknownOpWarning, match=name):
        layout = PipelineLayout.from_ops(OPS | {name: 8.0}, num_layers=8, pp=4)
    assert layout.per_layer_ms == 5.0


@pytest.mark.parametrize(
    ("counts", "warned"),
    [
        ({"generation_ffn2_gemm": 36.0, "generation_logits_gemm": 1.0, "generation_p2p": 7.0}, False),
        ({"context_ffn2_gemm": 72.0, "context_embedding": 1.0}, False),
        ({"generation_ffn2_gemm": 35.0}, True),  # not once a layer
        ({"context_logits_gemm": 36.0}, True),  # a head in every layer
    ],
)
def test_an_ops_place_is_checked_against_how_often_it_runs(counts, warned):
    if warned:
        with pytest.warns(UnknownOpWarning, match="times a step of 36 layers"):
            check_op_counts(counts, 36)
    else:
        check_op_counts(counts, 36)  # a warning would be an error here


def test_the_rules_say_which_engine_they_hold_for():
    assert "0.24" in PARTITION_RULES["vllm"].holds_for


def test_the_ops_of_the_shipped_breakdowns_are_all_known():
    from calib.measure.shipped import load_campaign, shipped_campaigns

    assert len(shipped_campaigns()) == 3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in shipped_campaigns():
            steps = load_campaign(name).breakdowns.steps
            assert steps
            for step in steps:
                PipelineLayout.from_ops(step.ops_ms, step.num_layers, step.pp)


@pytest.mark.parametrize("bad", [-1.0, float("nan"), float("inf")])
def test_an_impossible_latency_is_an_error(bad):
    with pytest.raises(BreakdownError, match="generation_attention"):
        PipelineLayout.from_ops(OPS | {"generation_attention": bad}, 8, 4)


def test_a_step_without_per_layer_time_is_an_error():
    with pytest.raises(BreakdownError, match="no per-layer time"):
        PipelineLayout.from_ops({"generation_logits_gemm": 1.0}, 8, 4)
