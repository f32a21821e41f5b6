"""Observed efficiency and decomposition against the published figures and by hand."""

from __future__ import annotations

import csv

import numpy as np
import pandas as pd
import pytest

from calib import decompose, load_campaign
from calib.errors import CampaignError, UsageError
from calib.fitting.matching import _error

# Efficiency against TP8/PP1 at each side's peak, as published for the campaign (three decimals).
PUBLISHED_EFFICIENCY = {
    "Qwen/Qwen3-0.6B": (0.791, 0.563, 0.349),
    "Qwen/Qwen3-8B": (0.798, 0.559, 0.315),
    "Qwen/Qwen3-14B": (0.763, 0.517, 0.308),
    "Qwen/Qwen3-32B-FP8": (0.783, 0.525, 0.308),
}
# (model, pp) -> total penalty [%], from the published decomposition table.
PUBLISHED_PENALTY = {
    ("Qwen/Qwen3-8B", 2): 20.2,
    ("Qwen/Qwen3-8B", 8): 68.5,
    ("Qwen/Qwen3-14B", 8): 69.2,
    ("Qwen/Qwen3-32B-FP8", 8): 69.2,
}


@pytest.fixture(scope="module")
def vllm():
    return load_campaign("h200-vllm-pp")


def test_published_efficiencies_of_h200_vllm(vllm):
    table = decompose(vllm).table
    found = {m: tuple(round(e, 3) for e in g.sort_values("pp")["efficiency"]) for m, g in table.groupby("model")}
    assert found == PUBLISHED_EFFICIENCY


def test_published_total_penalties_of_h200_vllm(vllm):
    table = decompose(vllm).table.set_index(["model", "pp"])
    for key, penalty in PUBLISHED_PENALTY.items():
        assert round(table.loc[key, "total_penalty_pp"], 1) == penalty


def test_the_shares_add_up_to_the_total(vllm):
    for matching in ("peak", "matched"):
        t = decompose(vllm, matching=matching).table
        np.testing.assert_allclose(t["balance_share_pp"] + t["scheduling_share_pp"], t["total_penalty_pp"], atol=1e-10)
        np.testing.assert_allclose(t["residual"] * t["balance_factor"], t["efficiency"], rtol=1e-12)


def test_models_are_listed_by_size(vllm):
    assert list(dict.fromkeys(decompose(vllm).table["model"])) == list(PUBLISHED_EFFICIENCY)


def test_matched_efficiencies_use_the_same_concurrency_on_both_sides(vllm):
    table = decompose(vllm, matching="matched").table
    assert len(table) == 78
    assert (table["concurrency"] == table["baseline_concurrency"]).all()
    # 0.6B at C=1, worked out from the two lines of points.csv.
    row = table[(table["model"] == "Qwen/Qwen3-0.6B") & (table["pp"] == 8) & (table["concurrency"] == 1)].iloc[0]
    assert row["efficiency"] == 196.617 / 565.099


def test_the_error_of_a_throughput_is_the_wave_quantisation_above_the_floor(vllm):
    table = decompose(vllm).table.set_index(["model", "pp"])
    row = table.loc[("Qwen/Qwen3-32B-FP8", 8)]
    assert row["rel_error"] == pytest.approx(32 / (129 * 12**0.5))  # 129 completed requests at C=32
    assert table.loc[("Qwen/Qwen3-0.6B", 2), "rel_error"] == 0.02  # 64 / (1602*sqrt(12)) = 1.2 %, below the floor


def test_a_stated_error_wins_over_the_quantisation(vllm_folder):
    points = vllm_folder / "points.csv"
    frame = pd.read_csv(points)
    frame["output_tokens_per_s_stderr"] = frame["output_tokens_per_s"] * 0.05
    frame.to_csv(points, index=False)
    assert decompose(load_campaign(vllm_folder)).table["rel_error"].to_numpy() == pytest.approx(0.05)


def test_published_ratios_are_taken_as_they_are():
    table = decompose(load_campaign("h20-trtllm-pp")).table
    by = table.set_index(["concurrency", "pp"])["efficiency"]
    assert by[(128, 2)] == 0.38
    assert by[(128, 4)] == 0.54
    balance = table.set_index(["concurrency", "pp"])["balance_factor"]
    assert round(balance[(64, 8)], 3) == 0.832
    assert set(table.loc[table["pp"] < 8, "balance_status"]) == {"derived"}


def test_ratios_at_several_concurrencies_have_no_peak():
    with pytest.raises(CampaignError, match="no common peak"):
        decompose(load_campaign("h20-trtllm-pp"), matching="peak")


def test_a_gain_stays_visible(simulated):
    folder = simulated({"m": -0.05})
    table = decompose(load_campaign(folder)).table
    assert (table["scheduling_share_pp"] < 0).all()


def test_options_that_do_not_exist_are_errors(vllm):
    with pytest.raises(UsageError, match="'baseline' or 'model'"):
        decompose(vllm, reference="silicon")
    for floor in (0.0, 1e-300, 1.0):  # under a millionth the covariance is not positive in double precision
        with pytest.raises(UsageError, match="between 1e-06 and 1"):
            decompose(vllm, error_floor=floor)
    with pytest.raises(UsageError, match="'peak' or 'matched'"):
        decompose(vllm, matching="best")


def test_the_order_of_the_file_changes_nothing(vllm_folder, vllm):
    points = vllm_folder / "points.csv"
    rows = list(csv.reader(points.read_text().splitlines()))
    with points.open("w", newline="") as stream:
        csv.writer(stream).writerows([rows[0], *rows[:0:-1]])
    a, b = decompose(vllm).table, decompose(load_campaign(vllm_folder)).table
    pd.testing.assert_frame_equal(a.drop(columns="baseline_id"), b.drop(columns="baseline_id"), check_exact=True)


def test_a_series_without_its_baseline_is_set_aside_and_the_rest_goes_on(vllm_folder):
    points = vllm_folder / "points.csv"
    frame = pd.read_csv(points)
    frame[~((frame["model"] == "Qwen/Qwen3-8B") & (frame["pp"] == 1))].to_csv(points, index=False)
    found = decompose(load_campaign(vllm_folder))
    assert set(found.table["model"]) == set(PUBLISHED_EFFICIENCY) - {"Qwen/Qwen3-8B"}
    assert {f.rule for f in found.findings} == {"no_baseline"}
    assert len(found.findings) == 3  # one a configuration: TP4/PP2, TP2/PP4, TP1/PP8
    assert "TP8/PP1" in found.findings[0].reason


def test_a_point_without_a_breakdown_is_set_aside(vllm_folder, edit):
    edit(vllm_folder / "breakdowns.json", '"tp":1,"pp":8,"concurrency":64,', '"tp":1,"pp":8,"concurrency":63,')
    found = decompose(load_campaign(vllm_folder))
    assert len(found.table) == 11
    assert [f.rule for f in found.findings] == ["no_balance_factor"]


def test_data_parallel_runs_are_set_aside(vllm_folder):
    points = vllm_folder / "points.csv"
    frame = pd.read_csv(points)
    frame.loc[(frame["tp"] == 4) & (frame["pp"] == 2), "tp"] = 2
    frame.to_csv(points, index=False)
    found = decompose(load_campaign(vllm_folder))
    assert set(found.table["pp"]) == {4, 8}
    assert {f.rule for f in found.findings} == {"data_parallel"}
    assert len(found.findings) == 26


def test_an_efficiency_no_pipeline_has_is_set_aside(vllm_folder, edit):
    edit(vllm_folder / "points.csv", ",13354.108,", ",1e9,")
    found = decompose(load_campaign(vllm_folder))
    assert [f.rule for f in found.findings] == ["implausible_efficiency"]
    assert len(found.table) == 11


def test_baselines_without_a_pp_run_are_listed(vllm_folder):
    points = vllm_folder / "points.csv"
    frame = pd.read_csv(points)
    frame[~((frame["model"] == "Qwen/Qwen3-8B") & (frame["pp"] > 1))].to_csv(points, index=False)
    (finding,) = decompose(load_campaign(vllm_folder)).findings
    assert (finding.rule, finding.verdict) == ("no_pp_run", "WARN")
    assert "7 pp = 1 runs" in finding.reason


def test_an_unknown_op_is_a_finding_and_no_python_warning(vllm_folder):
    path = vllm_folder / "breakdowns.json"
    path.write_text(path.read_text().replace("generation_act_gate", "generation_mystery"))
    found = decompose(load_campaign(vllm_folder))
    assert {f.rule for f in found.findings} == {"unknown_op"}
    assert len(found.table) == 12


def test_one_run_without_a_concurrency_is_set_aside_alone(vllm_folder):
    points = vllm_folder / "points.csv"
    frame = pd.read_csv(points).astype({"concurrency": "Int64"})
    best = frame[(frame["model"] == "Qwen/Qwen3-8B") & (frame["pp"] == 8)]["output_tokens_per_s"].idxmax()
    frame.loc[best, "concurrency"] = pd.NA
    frame.to_csv(points, index=False)
    found = decompose(load_campaign(vllm_folder))
    assert len(found.table) == 11
    assert "states no concurrency" in found.findings[0].reason


def test_the_model_reference_reconciles_to_100_percent_line_by_line(vllm):
    found = decompose(vllm, matching="matched", reference="model")
    assert len(found.table) == 78
    assert found.findings == decompose(vllm, matching="matched").findings
    product = found.table[["k_model", "balance_factor", "fill_factor", "residual"]].prod(axis=1)
    np.testing.assert_allclose(product, found.table["efficiency"], rtol=1e-12)
    shares = found.log_shares()
    parts = ["k_model", "balance_factor", "fill_factor", "residual"]
    np.testing.assert_allclose(shares[parts].sum(axis=1), shares["total"], atol=1e-10)
    np.testing.assert_allclose(shares[[f"{p}_pct" for p in parts]].sum(axis=1), 100.0, atol=1e-8)


def test_the_scheduling_cost_appears_with_load_where_the_models_own_tp_scaling_is_right(vllm):
    """Figures of a first look: 0.97 to 1.1 up to C = 8 for 8B and 14B, and 0.78/0.65/0.52 for 8B at C = 64."""
    table = decompose(vllm, matching="matched", reference="model").table
    low = table[table["model"].isin(["Qwen/Qwen3-8B", "Qwen/Qwen3-14B"]) & (table["concurrency"] <= 2)]
    assert low["residual"].between(0.95, 1.15).all()
    full = table[(table["model"] == "Qwen/Qwen3-8B") & (table["concurrency"] == 64)].set_index("pp")["residual"]
    seen = {2: 0.78, 4: 0.65, 8: 0.52}
    assert full.to_dict() == {pp: pytest.approx(r, abs=0.03) for pp, r in seen.items()}


def test_the_ideal_model_is_as_far_off_as_was_seen(vllm):
    """Measured baseline times K: 161 % over all 78 points, 52 % where C >= pp; with balance and linear fill 39 %."""
    t = decompose(vllm, matching="matched", reference="model").table
    off = 100 * (t["k_model"] / t["efficiency"] - 1).abs()
    assert off.mean() == pytest.approx(161, abs=3)
    assert off[t["concurrency"] >= t["pp"]].mean() == pytest.approx(52, abs=3)
    fill = np.minimum(1, t["concurrency"].astype(float) / t["pp"].astype(float))
    explained = t["k_model"] * t["balance_factor"] * fill
    assert (100 * (explained / t["efficiency"] - 1).abs()).mean() == pytest.approx(39, abs=3)


def test_what_has_no_steps_of_the_model_has_no_model_reference():
    found = decompose(load_campaign("h200-sglang-trtllm-pp"), reference="model")
    assert found.table.empty
    assert "no_model_prediction" in {f.rule for f in found.findings}


def test_littles_law_throughput_corrects_the_end_of_a_run(vllm):
    plain, corrected = (decompose(vllm, matching="matched", end_effect=e).table for e in (False, True))
    assert len(corrected) == len(plain)
    row = corrected.iloc[-1]
    runs = vllm.runs[(vllm.runs["model"] == row["model"]) & (vllm.runs["pp"] == row["pp"])]
    measured = runs[runs["concurrency"] == row["concurrency"]].iloc[0]
    seconds = (measured["ttft_p50_ms"] + (measured["osl"] - 1) * measured["itl_p50_ms"]) / 1000
    assert row["output_tokens_per_s"] == pytest.approx(measured["concurrency"] * measured["osl"] / seconds)
    assert row["output_tokens_per_s"] > measured["output_tokens_per_s"]


def test_a_run_without_latencies_cannot_be_corrected_and_says_so(simulated):
    found = decompose(load_campaign(simulated({"m": 0.2})), end_effect=True)
    assert found.table.empty
    assert {f.rule for f in found.findings if f.verdict == "REJECT"} == {"no_latency"}


@pytest.mark.parametrize(
    ("facts", "row", "error", "method"),
    [
        ({"trials": 3}, {"output_tokens_per_s_stderr": 3.0}, 0.03 * 4.302652729 / 1.959963985, "between 3 repeats"),
        ({}, {"output_tokens_per_s_stderr": 3.0}, 0.03, "stated"),
        ({"steady_rel_error": 0.05}, {}, 0.05, "block bootstrap of the steady window"),
        ({"steady_rel_error": 0.001}, {}, 0.02, "floor, above block bootstrap of the steady window"),
        ({}, {"completed_requests": 10.0}, 8 / (10 * 12**0.5), "wave quantisation"),
        ({}, {"completed_requests": 1000.0}, 0.02, "floor, above wave quantisation"),
        ({}, {}, 0.02, "floor"),
    ],
)
def test_every_error_of_a_throughput_has_its_method(facts, row, error, method):
    stated = {"output_tokens_per_s": 100.0, "output_tokens_per_s_stderr": None, "completed_requests": None}
    found, name = _error(stated | {"concurrency": 8} | row, facts, 0.02)
    assert found == pytest.approx(error, rel=1e-8)
    assert name == method
