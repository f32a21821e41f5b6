"""Simulation-based calibration: campaigns with random truths in virtual time, fitted by calib's own code.

Pipes of thousands of engines run side by side (`calib.emulator.recursion`, which `test_engine` holds against the event-driven
engine). Each campaign draws layers, head share, hop, s, C and the noise of a throughput; the measured throughputs, that of the
one baseline included, get that noise, and calib is told its size.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy import stats
from support.recursion import steps_per_ms

from calib.coefficients.forms import LOG2
from calib.emulator.law import Log2Law
from calib.emulator.physics import EmulatedModel, EngineSpec, StageTimes, steady_state
from calib.fitting.fitted_curve import fit_curve
from calib.fitting.least_squares import Errors, fit_gls

Array = NDArray[np.float64]
DEGREES = ((8, 1), (4, 2), (2, 4), (1, 8))
LEVELS = (2, 4, 8)


@dataclass(frozen=True)
class Campaigns:
    """n campaigns: the true s (n,), the relative noise of a throughput (n,), and measured residuals at pp = 2, 4, 8 (n, 3)."""

    s: Array
    noise: Array
    residual: Array


def draw(n: int, seed: int, *, noisy: bool = True) -> Campaigns:
    """Random truths, run and measured."""
    rng = np.random.default_rng(seed)
    s, noise = rng.uniform(0.05, 0.3, n), rng.uniform(0.01, 0.05, n)
    models = [
        EmulatedModel(
            layers=int(rng.integers(16, 97)), layer_ms=float(rng.uniform(0.05, 1.0)),
            embedding_ms=float(rng.uniform(0.0, 0.1)), head_ms=float(rng.uniform(0.0, 3.0)),
            hop_ms=float(rng.uniform(0.0, 0.02)), knee=float(rng.uniform(8, 64)),
        )
        for _ in range(n)
    ]  # fmt: skip
    concurrency = 8 * rng.integers(1, 9, n)
    x = np.empty((n, len(DEGREES)))
    balance = np.empty_like(x)
    for j, (tp, pp) in enumerate(DEGREES):
        specs = [
            EngineSpec(model=m, law=Log2Law(float(t)), gpus=8, tp=tp, pp=pp) for m, t in zip(models, s, strict=True)
        ]
        sizes = (concurrency // pp).tolist()
        loads = concurrency.tolist()
        busy = np.array([StageTimes(e).busy_ms(b, 0, c) for e, b, c in zip(specs, sizes, loads, strict=True)])
        x[:, j] = 1000.0 * np.array(sizes) * steps_per_ms(busy, pp)
        balance[:, j] = [steady_state(e, b).balance_factor for e, b in zip(specs, sizes, strict=True)]
    if noisy:
        x *= 1.0 + noise[:, None] * rng.standard_normal(x.shape)
    eta = x[:, 1:] / x[:, :1]
    return Campaigns(s, noise, eta / balance[:, 1:])


def fit_all(campaigns: Campaigns) -> tuple[Array, Array, int]:
    """s and its standard error of every campaign (n,), and the degrees of freedom: calib's own fit of all of them at once.

    Scaled by the scatter seen, as `calib.fitting.fitted_curve` does; `test_a_campaign_by_itself_is_fitted_alike` holds the two
    together.
    """
    own = np.broadcast_to(campaigns.noise[:, None], campaigns.residual.shape)
    found = fit_gls(
        LOG2, np.array(LEVELS, dtype=float), campaigns.residual, Errors(own, own, np.zeros(3, dtype=np.intp))
    )
    dof = len(LEVELS) - 1
    return found.values[:, 0], np.sqrt(found.covariance[:, 0, 0] * found.chi_square / dof), dof


def points(campaigns: Campaigns, i: int) -> pd.DataFrame:
    """One campaign as calib tabulates it."""
    noise = campaigns.noise[i]
    return pd.DataFrame(
        {
            "pp": LEVELS, "residual": campaigns.residual[i], "rel_error": noise, "baseline_rel_error": noise,
            "baseline_id": "base",
        }
    )  # fmt: skip


def check(campaigns: Campaigns, low: float, high: float) -> dict[str, float]:
    s, stderr, dof = fit_all(campaigns)
    pull = (s - campaigns.s) / stderr
    bias = float(s.mean() / campaigns.s.mean() - 1)
    covered = float(np.mean(np.abs(pull) <= stats.t.ppf(0.975, dof)))
    uniform = float(stats.kstest(stats.t.cdf(pull, dof), "uniform").pvalue)
    found = {"bias": bias, "coverage": covered, "p_uniform": uniform}
    assert abs(bias) < 0.02, found
    assert low <= covered <= high, found
    return found


@pytest.mark.slow
def test_s_is_unbiased_and_its_interval_covers_over_two_thousand_campaigns():
    """Coverage of a 95 % interval within 93.5 to 96.5 %: three standard errors at this number."""
    check(draw(2400, seed=20260), 0.935, 0.965)


def test_s_is_unbiased_and_its_interval_covers_over_some_campaigns():
    """The same with fewer: the band is where the count of a true 95 % interval lies in all but 1 of 1,000 cases."""
    n = 240
    low, high = stats.binom.interval(0.999, n, 0.95)
    check(draw(n, seed=7), low / n, high / n)


def test_a_campaign_by_itself_is_fitted_alike():
    campaigns = draw(20, seed=11)
    s, stderr, dof = fit_all(campaigns)
    for i in range(20):
        curve = fit_curve(LOG2, points(campaigns, i))
        assert (curve.values[0], np.sqrt(curve.covariance[0, 0])) == pytest.approx((s[i], stderr[i]), rel=1e-9)
        assert curve.dof == dof
        assert curve.quantile == pytest.approx(stats.t.ppf(0.975, dof))


def test_a_truth_that_is_not_the_one_fitted_is_noticed():
    """The checks above can fail: truths that are a tenth off are neither unbiased nor covered."""
    campaigns = draw(240, seed=7)
    moved = Campaigns(1.1 * campaigns.s, campaigns.noise, campaigns.residual)
    with pytest.raises(AssertionError, match="bias"):
        check(moved, 0.9, 1.0)


def test_without_noise_each_truth_is_found_exactly():
    campaigns = draw(60, seed=3, noisy=False)
    s, _, _ = fit_all(campaigns)
    np.testing.assert_allclose(s, campaigns.s, atol=1e-6)
