"""Decision accuracy: upside down before, right after."""

from __future__ import annotations

import numpy as np
import pytest

from calib import decompose, load_campaign
from calib.judging.decisions import (
    CALIBRATED,
    CALIBRATED_BY_OTHERS,
    OWN_OPTIMUM,
    UNCALIBRATED,
    decide,
    rank_decisions,
    summarize_decisions,
)

MODELS = ("Qwen/Qwen3-0.6B", "Qwen/Qwen3-8B", "Qwen/Qwen3-14B", "Qwen/Qwen3-32B-FP8")


@pytest.fixture(scope="module")
def vllm():
    return rank_decisions(decompose(load_campaign("h200-vllm-pp")))


def test_tau_goes_from_minus_one_to_plus_one_for_all_four_models(vllm):
    own = vllm[vllm["at"] == OWN_OPTIMUM].set_index(["approach", "model"])
    for model in MODELS:
        before = own.loc[(UNCALIBRATED, model)]
        assert (before["tau"], before["chosen"], before["best"]) == (-1.0, "TP1/PP8", "TP8/PP1")
        assert 65 < before["regret_pct"] < 70
        for approach in (CALIBRATED, CALIBRATED_BY_OTHERS):
            after = own.loc[(approach, model)]
            assert (after["tau"], after["chosen"], after["regret_pct"]) == (1.0, "TP8/PP1", 0.0)


def test_at_matched_concurrency_the_ideal_model_is_right_for_one_model_only(vllm):
    """At each model's highest concurrency."""
    matched = vllm[vllm["at"] == "matched concurrency"]
    top = matched[matched["concurrency"] == matched.groupby("model")["concurrency"].transform("max")]
    hits = top[top["approach"] == UNCALIBRATED].set_index("model")["hit"]
    assert {m for m in MODELS if hits[m]} == {"Qwen/Qwen3-14B"}
    assert top[top["approach"] == CALIBRATED_BY_OTHERS]["hit"].all()


def test_the_summary_is_over_rankings(vllm):
    table = summarize_decisions(vllm).set_index(["at", "approach", "model"])
    row = table.loc[("matched concurrency", UNCALIBRATED, "Qwen/Qwen3-0.6B")]
    assert row["rankings"] == 7
    each = vllm[(vllm["at"] == "matched concurrency") & (vllm["approach"] == UNCALIBRATED)]
    assert row["regret_pct"] == pytest.approx(each[each["model"] == "Qwen/Qwen3-0.6B"]["regret_pct"].mean())


def test_a_choice_costs_what_it_loses():
    d = decide(predicted=np.array([1.0, 3.0, 2.0]), measured=np.array([100.0, 60.0, 90.0]), names=["a", "b", "c"])
    assert (d.chosen, d.best, d.hit) == ("b", "a", False)
    assert d.regret_pct == pytest.approx(40)
    assert d.tau == pytest.approx(-1)


def test_ratios_have_no_throughput_to_choose_by():
    for name in ("h20-trtllm-pp", "h200-sglang-trtllm-pp"):
        assert rank_decisions(decompose(load_campaign(name))).empty
