"""The estimator: certified numbers, another implementation, and one call for thousands of fits."""

from __future__ import annotations

import numpy as np
import pytest
import statsmodels.api as sm
from hypothesis import given, settings, strategies as st

from calib.coefficients.forms import FORMS, HYPERBOLIC, LOG2, LOG2_CONCURRENCY, POWER, free_form
from calib.fitting.least_squares import Errors, fit_gls, solve_gls
from calib.fitting.level_break import WithLevel

# NIST Statistical Reference Datasets, linear regression (public domain): data and certified values.
NORRIS_TEXT = """
    0.1 0.2 338.8 337.4 118.1 118.2 888.0 884.6 9.2 10.1 228.1 226.5 668.5 666.3 998.5 996.3 449.1 448.6 778.9 777.0
    559.2 558.2 0.3 0.4 0.1 0.6 778.1 775.5 668.8 666.9 339.3 338.0 448.9 447.5 10.8 11.6 557.7 556.0 228.3 228.1 998.0
    995.8 888.8 887.6 119.6 120.2 0.3 0.3 0.6 0.3 557.6 556.8 339.3 339.1 888.0 887.2 998.5 999.0 778.9 779.0 10.2 11.1
    117.6 118.3 228.9 229.2 668.4 669.1 449.2 448.9 0.2 0.5"""
NORRIS = np.fromstring(NORRIS_TEXT, sep=" ").reshape(-1, 2)
NO_INTERCEPT_1 = (np.arange(60.0, 71.0), np.arange(130.0, 141.0))  # x, y
NO_INTERCEPT_2 = (np.array([4.0, 5.0, 6.0]), np.array([3.0, 4.0, 4.0]))
LONGLEY_TEXT = """
    60323 83.0 234289 2356 1590 107608 1947 61122 88.5 259426 2325 1456 108632 1948 60171 88.2 258054 3682 1616 109773 1949
    61187 89.5 284599 3351 1650 110929 1950 63221 96.2 328975 2099 3099 112075 1951 63639 98.1 346999 1932 3594 113270 1952
    64989 99.0 365385 1870 3547 115094 1953 63761 100.0 363112 3578 3350 116219 1954 66019 101.2 397469 2904 3048 117388 1955
    67857 104.6 419180 2822 2857 118734 1956 68169 108.4 442769 2936 2798 120445 1957 66513 110.8 444546 4681 2637 121950 1958
    68655 112.6 482704 3813 2552 123366 1959 69564 114.2 502601 3931 2514 125368 1960 69331 115.7 518173 4806 2572 127852 1961
    70551 116.9 554894 4007 2827 130081 1962"""
LONGLEY = np.fromstring(LONGLEY_TEXT, sep=" ").reshape(-1, 7)


def with_intercept(*columns: np.ndarray) -> np.ndarray:
    return np.column_stack([np.ones(len(columns[0])), *columns])


CERTIFIED = {
    "Norris": (
        with_intercept(NORRIS[:, 1]), NORRIS[:, 0],
        (-0.262323073774029, 1.00211681802045), (0.232818234301152, 0.429796848199937e-03), 0.884796396144373,
    ),
    "NoInt1": (
        NO_INTERCEPT_1[0][:, None], NO_INTERCEPT_1[1], (2.07438016528926,), (0.165289256198347e-01,), 3.56753034006338,
    ),
    "NoInt2": (
        NO_INTERCEPT_2[0][:, None], NO_INTERCEPT_2[1], (0.727272727272727,), (0.420827318078432e-01,), 0.369274472937998,
    ),
    "Longley": (
        with_intercept(*LONGLEY[:, 1:].T), LONGLEY[:, 0],
        (-3482258.63459582, 15.0618722713733, -0.358191792925910e-01, -2.02022980381683, -1.03322686717359,
         -0.511041056535807e-01, 1829.15146461355),
        (890420.383607373, 84.9149257747669, 0.334910077722432e-01, 0.488399681651699, 0.214274163161675, 0.226073200069370,
         455.478499142212),
        304.854073561965,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CERTIFIED)
def test_the_certified_values_of_nist_come_out_of_the_fitting_code(name):
    """Estimates, their standard errors and the residual standard deviation; Longley's columns differ by six orders."""
    design, y, values, errors, deviation = CERTIFIED[name]
    n, k = design.shape
    solution = solve_gls(design, y, np.eye(n))
    scale = solution.chi_square / (n - k)
    digits = 1e-8 if name == "Longley" else 1e-12
    np.testing.assert_allclose(solution.values, values, rtol=digits)
    np.testing.assert_allclose(np.sqrt(scale * np.diag(solution.covariance)), errors, rtol=digits)
    assert np.sqrt(scale) == pytest.approx(deviation, rel=digits)


def test_it_is_the_generalised_least_squares_of_statsmodels_at_any_covariance():
    rng = np.random.default_rng(1)
    design, y, root = rng.normal(size=(9, 3)), rng.normal(size=9), rng.normal(size=(9, 9))
    v = root @ root.T + np.eye(9)
    ours, theirs = solve_gls(design, y, v), sm.GLS(y, design, sigma=v).fit()
    np.testing.assert_allclose(ours.values, theirs.params, rtol=1e-10)
    np.testing.assert_allclose(ours.covariance, theirs.normalized_cov_params, rtol=1e-9)
    assert ours.chi_square == pytest.approx(theirs.ssr, rel=1e-10)


def test_thousands_of_fits_in_one_call_are_those_of_a_loop():
    rng, pp = np.random.default_rng(2), np.array([2.0, 4.0, 8.0])
    y = (1 - 0.2 * np.log2(pp)) * (1 + 0.03 * rng.standard_normal((50, 3)))
    own = rng.uniform(0.01, 0.05, (50, 3))
    blocks = np.zeros(3, dtype=int)
    for form in (LOG2, POWER, HYPERBOLIC, free_form([2, 4, 8])):
        at_once = fit_gls(form, pp, y, Errors(own, own[:, :1] + 0 * own, blocks))
        for i in (0, 17, 49):
            alone = fit_gls(form, pp, y[i], Errors(own[i], np.full(3, own[i, 0]), blocks))
            np.testing.assert_allclose(at_once.values[i], alone.values, rtol=1e-9)
            np.testing.assert_allclose(at_once.chi_square[i], alone.chi_square, rtol=1e-7, atol=1e-12)


def test_the_shared_baseline_is_one_error_and_not_many():
    """V written out by hand; points of different baselines do not share theirs."""
    f, own, shared = np.array([0.8, 0.6, 0.4]), np.array([0.02, 0.03, 0.04]), np.full(3, 0.05)
    v = Errors(own, shared, np.array([0, 0, 1])).covariance(f)
    assert v[0, 1] == pytest.approx(0.05**2 * 0.8 * 0.6)
    assert v[0, 2] == v[1, 2] == 0.0
    assert v[2, 2] == pytest.approx((0.04**2 + 0.05**2) * 0.4**2)


TRUTHS = {
    LOG2: (0.2,), POWER: (0.5,), HYPERBOLIC: (0.15,), free_form([2, 4, 8]): (0.8, 0.55, 0.4), LOG2_CONCURRENCY: (0.1, 0.02),
    WithLevel.of(LOG2, 4): (0.2, -0.3), WithLevel.of(HYPERBOLIC, 8): (0.1, 0.2),
}  # fmt: skip


@pytest.mark.parametrize("form", TRUTHS, ids=lambda f: f.formula)
def test_every_form_is_one_at_pp_1_and_its_slope_is_the_difference_quotient(form):
    truth = np.array(TRUTHS[form])
    pp, load = np.array([1.0, 2.0, 4.0, 8.0]), np.array([4.0, 1.0, 8.0, 64.0])
    assert form.residual(pp, truth, load)[0] == 1.0
    assert not form.jacobian(pp, truth, load)[0].any()
    for i in range(len(truth)):
        step = np.zeros(len(truth))
        step[i] = 1e-6
        slope = (form.residual(pp, truth + step, load) - form.residual(pp, truth - step, load)) / 2e-6
        np.testing.assert_allclose(form.jacobian(pp, truth, load)[:, i], slope, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("form", TRUTHS, ids=lambda f: f.formula)
def test_an_exact_curve_of_every_form_is_recovered(form):
    truth = np.array(TRUTHS[form])
    pp, load = np.tile([2.0, 4.0, 8.0], 3), np.repeat([1.0, 8.0, 64.0], 3)
    errors = Errors(np.full(9, 0.02), np.full(9, 0.02), np.repeat(np.arange(3), 3))
    solution = fit_gls(form, pp, form.residual(pp, truth, load), errors, load)
    np.testing.assert_allclose(solution.values, truth, atol=1e-10)
    assert solution.chi_square == pytest.approx(0, abs=1e-12)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(0.02, 1.4), min_size=3, max_size=3),
    st.sampled_from([f for f in FORMS.values() if f.name != "free" and not f.needs_concurrency]),
)
def test_any_efficiencies_have_a_finite_fit(y, form):
    pp = np.array([2.0, 4.0, 8.0])
    solution = fit_gls(form, pp, np.array(y), Errors(np.full(3, 0.02), np.full(3, 0.02), np.zeros(3, dtype=int)))
    assert np.isfinite(solution.values).all()
    assert np.isfinite(solution.covariance).all()
    assert solution.chi_square >= 0
