"""Estimates: the truth is recovered, intervals cover it, and a form the data reject is refused."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from scipy import stats

from calib import decompose, fit, load_campaign
from calib.coefficients.forms import LOG2, get_form
from calib.errors import NothingToFitError, UsageError
from calib.fitting.fitted_curve import fit_curve
from calib.workflow import Options


def points(residual, pp=(2, 4, 8), error=0.02, base=0.02, baseline="a") -> pd.DataFrame:
    return pd.DataFrame(
        {"pp": pp, "residual": residual, "rel_error": error, "baseline_rel_error": base, "baseline_id": baseline}
    )


def by_model(result):
    return {s.key["model"]: s for s in result.series}


@pytest.mark.parametrize("s", [0.0, 0.05, 0.2, 0.32, -0.1])
def test_an_exact_curve_is_recovered_exactly(s):
    curve = fit_curve(LOG2, points(1 - s * np.log2([2, 4, 8])))
    assert curve.values[0] == pytest.approx(s, abs=1e-12)
    assert curve.chi_square == pytest.approx(0, abs=1e-18)
    assert curve.dof == 2


def test_known_coefficients_are_recovered_from_a_simulated_campaign(simulated):
    truth = {"small-0.6B": 0.12, "mid-8B": 0.2, "big-70B": 0.3}
    result = fit(decompose(load_campaign(simulated(truth))))
    for model, series in by_model(result).items():
        assert series.estimate.values[0] == pytest.approx(truth[model], abs=1e-12)
        assert series.verdict == "FIT"
    noisy = fit(decompose(load_campaign(simulated(truth, noise=0.01, seed=3, name="noisy"))))
    for model, series in by_model(noisy).items():
        assert series.estimate.values[0] == pytest.approx(truth[model], abs=0.03)


def test_the_pool_is_the_spread_between_models_on_k_minus_2_degrees_of_freedom(simulated):
    truth = {"a": 0.1, "b": 0.2, "c": 0.3, "d": 0.2}
    (pool,) = fit(decompose(load_campaign(simulated(truth)))).pools
    spread = np.std([0.1, 0.2, 0.3, 0.2], ddof=1) * np.sqrt(1 + 1 / 4)
    assert pool.estimate.values[0] == pytest.approx(0.2, rel=1e-9)
    assert pool.estimate.stderr[0] == pytest.approx(spread, rel=1e-9)
    assert pool.estimate.dof == 2
    assert pool.estimate.t_quantile == pytest.approx(stats.t.ppf(0.975, 2))


def test_under_three_models_the_error_for_another_one_is_unknown(simulated):
    (pool,) = fit(decompose(load_campaign(simulated({"a": 0.1, "b": 0.2})))).pools
    assert pool.estimate.stderr is None
    assert pool.verdict == "WARN"


def test_the_estimate_is_the_generalised_least_squares_of_statsmodels_at_its_own_covariance():
    data = points([0.82, 0.58, 0.41], error=[0.02, 0.03, 0.07])
    curve = fit_curve(LOG2, data)
    design = np.log2([[2.0], [4.0], [8.0]])
    f = 1 - design[:, 0] * curve.values[0]
    v = np.diag((np.array([0.02, 0.03, 0.07]) * f) ** 2) + 0.02**2 * np.outer(f, f)
    reference = sm.GLS((1 - data["residual"]).to_numpy(), design, sigma=v).fit()
    assert curve.values[0] == pytest.approx(reference.params[0], rel=1e-10)
    assert curve.covariance[0, 0] == pytest.approx(reference.cov_params()[0, 0], rel=1e-9)


def test_chi_square_uses_the_baselines_shared_error():
    data = points([0.82, 0.58, 0.41])
    curve = fit_curve(LOG2, data)
    f = 1 - np.log2([2, 4, 8]) * curve.values[0]
    v = np.diag((0.02 * f) ** 2) + np.outer(0.02 * f, 0.02 * f)
    w, x, y = np.linalg.inv(v), np.log2([2.0, 4.0, 8.0]), 1 - data["residual"].to_numpy()
    s = (x @ w @ y) / (x @ w @ x)
    assert curve.chi_square == pytest.approx((y - s * x) @ w @ (y - s * x), rel=1e-9)
    # Points of different baselines do not share it: then it is a plain weighted sum of squares.
    apart = fit_curve(LOG2, points([0.82, 0.58, 0.41], baseline=["a", "b", "c"]))
    assert apart.chi_square != pytest.approx(curve.chi_square, rel=1e-3)


def test_h200_vllm_fits_with_s_near_a_fifth(calibrated):
    result = calibrated("h200-vllm-pp").fit
    assert {m: round(s.estimate.values[0], 3) for m, s in by_model(result).items()} == {
        "Qwen/Qwen3-0.6B": pytest.approx(0.2056, abs=0.0006),
        "Qwen/Qwen3-8B": pytest.approx(0.1998, abs=0.0006),
        "Qwen/Qwen3-14B": pytest.approx(0.2052, abs=0.0006),
        "Qwen/Qwen3-32B-FP8": pytest.approx(0.2213, abs=0.0006),
    }
    assert {s.verdict for s in result.series} == {"FIT"}
    assert all(s.estimate.dof == 2 and s.estimate.n == 3 for s in result.series)
    assert all(any(w.startswith("peak_at_edge at 3 of 3") for w in s.warnings) for s in result.series)
    assert all(any(w.startswith("drifts with concurrency: s = ") for w in s.warnings) for s in result.series)


@pytest.mark.parametrize(
    ("campaign", "backend", "model", "words"),
    [
        # The curve through PP=2 and PP=4 is negative at PP=8: that PP=4 is the odd one out is what can be said in figures.
        ("h200-sglang-trtllm-pp", "trtllm", "Qwen/Qwen3-0.6B", "pp=4 is measured at 0.14"),
        ("h200-sglang-trtllm-pp", "trtllm", "Qwen/Qwen3-0.6B", "TP2/PP4 lies -67 % off"),
        ("h200-sglang-trtllm-pp", "trtllm", "Qwen/Qwen3-8B", "pp=4 is measured at 0.19"),
        ("h200-sglang-trtllm-pp", "trtllm", "Qwen/Qwen3-8B", "TP2/PP4 lies -52 % off"),
        ("h200-sglang-trtllm-pp", "trtllm", "Qwen/Qwen3-14B", "pp=4 is measured at 0.30"),
        ("h200-sglang-trtllm-pp", "trtllm", "Qwen/Qwen3-32B-FP8", "pp=4 is measured at 0.56"),
        ("h200-sglang-trtllm-pp", "sglang", "Qwen/Qwen3-0.6B", "pp=2 is measured at 0.99"),
        ("h20-trtllm-pp", "trtllm", "Qwen/Qwen3-32B", "rises from pp=2 (0.38) to pp=4 (0.54) at C=128: not monotone"),
    ],
)
def test_series_whose_form_the_data_reject_are_refused_with_the_reason(campaign, backend, model, words, calibrated):
    result = calibrated(campaign).fit
    series = next(s for s in result.series if (s.key["backend"], s.key["model"]) == (backend, model))
    assert series.verdict == "REFUSED"
    assert words in "; ".join(series.reasons)


def test_every_concurrency_of_h20_is_rejected_although_s_is_stable(calibrated):
    (series,) = calibrated("h20-trtllm-pp").fit.series
    assert [f.concurrency for f in series.by_concurrency] == [1, 8, 32, 64, 128]
    assert all(f.p_value < 1e-6 for f in series.by_concurrency)
    for f in series.by_concurrency:
        verdict, reasons = f.verdict()
        assert verdict == "REFUSED"
        assert f"1 - s*log2(pp) misses the points at C={f.concurrency} by more than their error" in reasons[0]
    plain = [LOG2.start(f.points["pp"], f.points["residual"])[0] for f in series.by_concurrency]
    assert max(plain) - min(plain) < 0.05  # by plain least squares, which is how a stable s hid the wrong form


def test_a_parameter_that_drifts_with_concurrency_is_no_lack_of_fit_in_pp(calibrated):
    """At matched concurrency s of 8B goes from 0.12 to 0.20 with C; each concurrency by itself fits."""
    result = calibrated("h200-vllm-pp", Options(matching="matched")).fit
    series = by_model(result)["Qwen/Qwen3-8B"]
    values = {f.concurrency: f.curve.values[0] for f in series.by_concurrency}
    assert values[64] - values[1] > 0.05
    assert series.verdict == "FIT"


def test_under_three_levels_no_interval_is_pretended(calibrated):
    series = by_model(calibrated("h200-sglang-trtllm-pp").fit)
    one = next(
        s for s in calibrated("h200-sglang-trtllm-pp").fit.series if s.key["backend"] == "sglang" and s.estimate.n == 1
    )
    assert one.estimate.stderr is None
    assert one.estimate.interval95 is None
    assert one.estimate.t_quantile is None
    assert one.verdict == "WARN"
    assert "only pp = 2 measured" in one.reasons[0]
    assert series


def test_two_levels_have_no_interval_either(simulated):
    (series,) = fit(decompose(load_campaign(simulated({"m": 0.2}, levels=(2, 4))))).series
    assert series.estimate.values[0] == pytest.approx(0.2)
    assert series.estimate.stderr is None
    assert series.verdict == "WARN"


def test_assumed_and_derived_balance_is_a_warning_beside_the_verdict(calibrated):
    warnings = [w for s in calibrated("h20-trtllm-pp").fit.series for w in s.warnings]
    assert "balance factor derived at 10 of 15 points" in warnings
    warnings = [w for s in calibrated("h200-sglang-trtllm-pp").fit.series for w in s.warnings]
    assert "balance factor assumed at 3 of 3 points" in warnings


def test_nothing_left_is_an_error(simulated):
    folder = simulated({"m": 0.2})
    lines = (folder / "points.csv").read_text().splitlines()
    (folder / "points.csv").write_text("\n".join(lines[:2]) + "\n")
    with pytest.raises(NothingToFitError, match="pp > 1"):
        fit(decompose(load_campaign(folder)))


def test_an_unknown_form_is_an_error():
    with pytest.raises(UsageError, match="use one of log2"):
        get_form("cubic")


@pytest.mark.parametrize(("s", "limit"), [(0.25, 16.0), (0.5, 4.0), (0.0, None), (-0.1, None), (1e-9, None)])
def test_the_form_is_meaningless_from_two_to_the_one_over_s(s, limit):
    assert LOG2.positivity_limit_pp([s]) == limit
    assert LOG2.residual([1], [s])[0] == 1.0


def test_levels_that_peak_at_different_concurrencies_are_one_curve(campaign_points):
    from calib.fitting.verdict import detect, deviations, fit_each_concurrency, form_verdict

    data = campaign_points(1 - 0.2 * np.log2([2, 4, 8]), concurrency=[32, 64, 64])
    assert fit_each_concurrency(LOG2, data) == ()
    found = detect(LOG2, data, fit_curve(LOG2, data), (), deviations(LOG2, data))
    assert form_verdict(found, data, LOG2) == ("FIT", ())
