"""Errors: their sign, their averages, and what is left out."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

from calib import Predictor, decompose, fit, load_campaign
from calib.fitting.to_coefficients import to_coefficient_set
from calib.judging.accuracy import PER_MODEL, UNWEIGHTED, error_pp, judge_accuracy, predict_points
from calib.names import IN_SAMPLE, ONE_PP


@pytest.fixture(scope="module")
def vllm(calibrated):
    return calibrated("h200-vllm-pp")


def row(found, backend, approach, scheme):
    t = found.summary
    return t[(t["backend"] == backend) & (t["approach"] == approach) & (t["scheme"] == scheme)].iloc[0]


def test_an_error_is_predicted_minus_measured_and_the_arguments_are_named():
    assert error_pp(predicted=[0.5], measured=[0.4]) == pytest.approx([10.0])
    assert all(p.kind is p.KEYWORD_ONLY for p in inspect.signature(error_pp).parameters.values())


def test_in_sample_error_of_the_per_model_model_on_h200_vllm(vllm):
    """1.0 pp mean and 2.0 pp worst by the published estimator; weighing the shared baseline moves one point to 2.14 pp."""
    for approach in (UNWEIGHTED, PER_MODEL):
        r = row(vllm.accuracy, "vllm", approach, IN_SAMPLE)
        assert r["predicted"] == r["points"] == 12
        assert r["mean_abs_error_pp"] <= 1.0
    assert row(vllm.accuracy, "vllm", UNWEIGHTED, IN_SAMPLE)["max_abs_error_pp"] <= 2.0
    assert r["max_abs_error_pp"] == pytest.approx(2.14, abs=0.01)
    assert r["worst_point"] == "Qwen/Qwen3-14B TP2/PP4"


def test_the_in_sample_predictions_are_the_predictors_bit_for_bit(vllm):
    points = vllm.accuracy.points
    shown = points[(points["approach"] == PER_MODEL) & (points["scheme"] == IN_SAMPLE)]
    t = vllm.decomposition.table
    columns = ("model", "system", "backend", "backend_version", "tp", "pp", "isl", "osl", "concurrency")
    made = Predictor(vllm.coefficients).factor({c: t[c].to_numpy() for c in columns})
    assert shown["predicted"].to_numpy().tobytes() == made.value.tobytes()
    assert predict_points(vllm.coefficients, t).tobytes() == made.value.tobytes()


def test_averages_are_over_points(vllm):
    points = vllm.accuracy.points
    for r in vllm.accuracy.summary.to_dict("records"):
        here = points[(points["approach"] == r["approach"]) & (points["scheme"] == r["scheme"])]
        size = np.abs(here["predicted"] - here["measured"]) * 100
        assert r["mean_abs_error_pp"] == pytest.approx(size.mean(), rel=1e-12)
        assert r["max_abs_error_pp"] == pytest.approx(size.max(), rel=1e-12)


def test_a_left_out_level_is_predicted_from_the_others_only(simulated):
    """Two levels on a line with s = 0.2, the third broken: it must be predicted at s = 0.2, whatever was measured there."""
    folder = simulated({"m": 0.2})
    lines = (folder / "points.csv").read_text().splitlines()
    lines[-1] = ",".join([*lines[-1].split(",")[:-1], "50.0"])
    (folder / "points.csv").write_text("\n".join(lines) + "\n")
    result = fit(decompose(load_campaign(folder)))
    found = judge_accuracy(result, to_coefficient_set(result)).points
    left = found[(found["scheme"] == ONE_PP) & (found["approach"] == PER_MODEL) & (found["pp"] == 8)].iloc[0]
    balance = result.decomposition.table.set_index("pp").loc[8, "balance_factor"]
    assert left["predicted"] == pytest.approx(balance * (1 - 0.2 * 3), rel=1e-9)


def test_what_cannot_be_predicted_lowers_the_coverage_and_not_the_error(calibrated):
    found = calibrated("h200-sglang-trtllm-pp").accuracy
    r = row(found, "sglang", PER_MODEL, ONE_PP)
    assert (r["predicted"], r["points"]) == (3, 4)  # 8B has one level: nothing is left to fit it on
    assert np.isfinite(r["mean_abs_error_pp"])


def test_left_out_is_worse_than_in_sample_where_each_model_has_its_own_s(vllm):
    inside, outside = (row(vllm.accuracy, "vllm", PER_MODEL, s)["mean_abs_error_pp"] for s in (IN_SAMPLE, ONE_PP))
    assert outside > inside
