"""What to measure next: found by simulation, the same every time, and right where the answer is known."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from calib import decompose, fit, load_campaign
from calib.errors import UsageError
from calib.judging.planning import PlanOptions, _design, _error, plan_runs, repeats_for_drift


@pytest.fixture(scope="module")
def vllm():
    return fit(decompose(load_campaign("h200-vllm-pp")), drift=False)


def test_it_finds_out_by_itself_that_no_run_separates_tp_scaling(vllm):
    for series in vllm.series:
        best = plan_runs(vllm, model=series.key["model"]).candidates.iloc[0]
        assert best["what"].startswith("TP scaling alone")
        assert (best["pp"], best["gpus"]) == (1, best["tp"])
        assert best["gpus"] < 8
        assert best["half_width_after"] < best["half_width_before"]


def test_one_stage_alone_runs_at_its_own_microbatch(vllm):
    table = plan_runs(vllm, model="Qwen/Qwen3-8B").candidates
    alone = table[table["what"].str.startswith("TP scaling")].set_index("tp")["concurrency"]
    assert alone.to_dict() == {4: 32, 2: 16, 1: 8}  # 64 requests over 2, 4, 8 stages


def test_where_tp_scaling_is_known_repeats_are_worth_more(vllm):
    found = plan_runs(vllm, model="Qwen/Qwen3-8B", options=PlanOptions(tp_spread=0.0))
    assert not found.candidates.iloc[0]["what"].startswith("TP scaling")
    assert found.candidates[found.candidates["what"].str.startswith("TP")]["narrowing_per_gpu_hour"].abs().max() < 1e-12


def test_the_simulated_error_is_the_analytic_one(vllm):
    """With TP scaling known it is that of generalised least squares with V."""
    design, s = _design(vllm.series[1]), 0.2
    f = 1 - s * design.x
    v = np.diag((design.own * f) ** 2) + design.shared**2 * np.outer(f, f)
    exact = 1 / math.sqrt(design.x @ np.linalg.inv(v) @ design.x)
    assert _error(design, s, 0.0, PlanOptions(draws=20_000)) == pytest.approx(exact, rel=0.03)


def test_more_repeats_never_hurt_and_halve_the_error_fourfold(vllm):
    design = _design(vllm.series[0])
    errors = [
        _error(
            replace(design, own=design.own / math.sqrt(n), shared=design.shared / math.sqrt(n)), 0.2, 0.0, PlanOptions()
        )
        for n in (1, 4)
    ]
    assert errors[1] == pytest.approx(errors[0] / 2, rel=0.02)


def test_the_repeats_for_a_drift_are_those_of_the_normal_distribution(vllm):
    """3.5 combined standard errors with 95 % probability need a change of 3.5 + 1.645 of them."""
    design, options = _design(vllm.series[0]), PlanOptions(draws=20_000)
    error = _error(design, 0.2, 0.0, options) * math.sqrt(2)
    drift = 0.02
    expected = math.ceil((5.145 * error / drift) ** 2)
    assert abs(repeats_for_drift(design, 0.2, drift, options) - expected) <= 1
    assert repeats_for_drift(design, 0.2, 1e-4, options) is None


def test_the_same_seed_gives_the_same_plan(vllm):
    a, b = (plan_runs(vllm, model="Qwen/Qwen3-14B").candidates for _ in range(2))
    assert a.equals(b)


def test_what_cannot_be_planned_is_an_error(vllm):
    with pytest.raises(UsageError, match="names 0 series"):
        plan_runs(vllm, model="llama")
    with pytest.raises(UsageError, match="only with the form log2"):
        plan_runs(fit(decompose(load_campaign("h200-vllm-pp")), form="power", drift=False), model="Qwen/Qwen3-8B")
    for bad in ({"repeats": 0}, {"run_minutes": 0}, {"tp_spread": 1.0}, {"drift": 0.0}, {"power": 1.0}):
        with pytest.raises(UsageError, match="out of range"):
            PlanOptions(**bad)


def test_calib_plan_prints_and_answers_in_json(cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")  # nothing folds
    shown = cli("plan", "h200-vllm-pp", "--model", "Qwen/Qwen3-0.6B")
    assert shown.code == 0
    assert "TP scaling alone, on 1 GPU" in shown.out
    assert "the model's own TP scaling is off by this at C=1" in shown.out
    (found,) = json.loads(cli("plan", "h200-vllm-pp", "--model", "Qwen/Qwen3-0.6B", "--json").out)
    assert found["candidates"][0]["gpus"] == 1
    refused = cli("plan", "h200-sglang-trtllm-pp", "--model", "Qwen/Qwen3-8B", "--backend", "trtllm")
    assert "the form is refused for Qwen/Qwen3-8B: more runs will not make it fit" in refused.err
    assert cli("plan", "h200-vllm-pp", "--model", "x").code == 2
