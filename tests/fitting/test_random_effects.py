"""Models within a backend: what is known of one that was not measured, and how a measured one is drawn to the others."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.meta_analysis import combine_effects

from calib import decompose, fit, load_campaign
from calib.errors import UsageError
from calib.fitting.random_effects import pool


def test_at_equal_errors_it_is_the_random_effects_mean_of_statsmodels():
    """The moment estimators differ only in weights, which are equal here."""
    values, error = np.array([0.18, 0.2, 0.23, 0.21, 0.25]), 0.01
    theirs = combine_effects(values, np.full(5, error**2), method_re="dl")
    ours = pool(values[:, None], np.full((5, 1, 1), error**2))
    assert ours.mean[0, 0] == pytest.approx(theirs.mean_effect_re, rel=1e-12)
    assert ours.between[0, 0] == pytest.approx(theirs.tau2, rel=1e-9)
    assert ours.covariance[0, 0] == pytest.approx(theirs.var_eff_w_re, rel=1e-9)


@pytest.mark.parametrize("k", [4, 6, 8])
def test_the_prediction_interval_covers_a_new_model(k):
    """Where models differ by more than their errors; binomial 99.9 % limits about 95 %. A plug-in z covers far less."""
    rng, hits, plug_in, n = np.random.default_rng(k), 0, 0, 2000
    for _ in range(n):
        truth = 0.2 + 0.02 * rng.standard_normal(k + 1)
        found = pool((truth[:k] + 0.004 * rng.standard_normal(k))[:, None], np.full((k, 1, 1), 0.004**2))
        value, variance = found.new()
        off = abs(value[0] - truth[-1])
        hits += off <= found.quantile * np.sqrt(variance[0, 0])
        plug_in += off <= 1.96 * np.sqrt(variance[0, 0])
    assert 0.93 <= hits / n <= 0.985
    assert plug_in / n < 0.93


def test_degrees_of_freedom_are_k_minus_2_and_under_three_models_there_is_no_interval():
    for k in (2, 3, 5):
        found = pool(np.linspace(0.1, 0.3, k)[:, None], np.full((k, 1, 1), 1e-6))
        assert found.dof == k - 2
        assert found.quantile == (pytest.approx(stats.t.ppf(0.975, k - 2)) if k > 2 else None)


def test_a_well_known_model_keeps_its_value_and_a_poorly_known_one_goes_to_the_others():
    found = pool(np.array([[0.18], [0.2], [0.22], [0.3]]), np.array([1e-8, 1e-8, 1e-8, 1e-8]).reshape(4, 1, 1))
    sharp, _ = found.shrunk(np.array([0.3]), np.array([[1e-10]]))
    vague, error = found.shrunk(np.array([0.3]), np.array([[1.0]]))
    assert sharp[0] == pytest.approx(0.3, abs=1e-6)
    assert vague[0] == pytest.approx(found.mean[0, 0], abs=1e-3)
    assert error[0, 0] < 1.0


def test_models_that_do_not_differ_have_no_variance_between_them():
    found = pool(np.full((4, 1), 0.2), np.full((4, 1, 1), 0.01**2))
    assert found.between[0, 0] == 0.0
    assert found.new()[1][0, 0] == pytest.approx(0.01**2 / 4)


def test_two_parameters_are_pooled_with_their_correlation():
    rng = np.random.default_rng(0)
    b = np.array([[1e-3, -2e-4], [-2e-4, 1e-4]])
    values = rng.multivariate_normal([0.1, 0.02], b, size=4000)
    found = pool(values, np.broadcast_to(np.zeros((2, 2)), (4000, 2, 2)))
    np.testing.assert_allclose(found.between, b, rtol=0.12)
    np.testing.assert_allclose(found.mean[0], [0.1, 0.02], atol=2e-3)


def test_a_size_covariate_is_a_slope_and_predicts_by_size(simulated):
    sizes = {"a": 1.0, "b": 10.0, "c": 100.0, "d": 1000.0}
    truth = {m: 0.1 + 0.05 * np.log10(x) for m, x in sizes.items()}
    result = fit(decompose(load_campaign(simulated(truth))), model_sizes_b=sizes)
    (pool_fit,) = result.pools
    assert any(w.startswith("s changes by +0.050 +- 0.000 a tenfold model size") for w in pool_fit.warnings)
    values = np.array([[truth[m]] for m in sizes])
    x = np.column_stack([np.ones(4), np.log10(list(sizes.values()))])
    found = pool(values, np.full((4, 1, 1), 1e-8), x)
    value, _ = found.new(np.array([1.0, 1.5]))
    assert value[0] == pytest.approx(0.1 + 0.05 * 1.5)
    assert found.dof == 1
    estimate = result.unmeasured("vllm", size_b=10**1.5, model_sizes_b=sizes)
    assert estimate.values[0] == pytest.approx(0.1 + 0.05 * 1.5)
    assert estimate.t_quantile == pytest.approx(stats.t.ppf(0.975, 1))
    with pytest.raises(UsageError, match="too few of known size"):
        result.unmeasured("sglang", size_b=8.0, model_sizes_b=sizes)


def test_partial_pooling_draws_measured_models_together(simulated):
    truth = {"a": 0.17, "b": 0.2, "c": 0.23, "d": 0.2}
    decomposition = decompose(load_campaign(simulated(truth, noise=0.02, seed=5)))
    apart, together = fit(decomposition), fit(decomposition, pooling="partial")
    spread = [np.std([s.estimate.values[0] for s in r.series]) for r in (apart, together)]
    assert spread[1] < spread[0]
    assert any("partially pooled over 4 models" in s.warnings for s in together.series)
    with pytest.raises(UsageError, match="'pooling' = 'full'"):
        fit(decomposition, pooling="full")


def test_an_unmeasured_backend_is_never_predicted():
    result = fit(decompose(load_campaign("h200-sglang-trtllm-pp")))
    (system,) = result.systems
    assert system.verdict == "REFUSED"
    assert system.reasons == ("0 of 2 backends have a pool: an unmeasured backend is not predicted",)
