"""Simulated histories: how soon a change is found, and how rarely noise is taken for one.

Four series of TP8/PP1, TP4/PP2, TP2/PP4 and TP1/PP8 with 2 % noise on every throughput, fitted by the estimator itself.
"""

from __future__ import annotations

import numpy as np
import pytest

from calib.coefficients.forms import LOG2
from calib.fitting.least_squares import Errors, fit_gls
from calib.nightly.alarms.monitor import Limits, Monitor, family_limit, mape_rise, mape_stderr

NOISE, SERIES, S = 0.02, 4, 0.2
PP = np.array([2.0, 4.0, 8.0])
QUIET = 5  # nights between the release and the change


def measure(rng, s):
    """``s`` (..., repeats) -> values, stated errors, and efficiencies, the repeats averaged by their errors."""
    true = 1 - s[..., None] * np.log2(PP)
    noise = 1 + NOISE * rng.standard_normal((*s.shape, 4))
    eta = true * noise[..., 1:] / noise[..., :1]
    error = np.full(eta.shape, NOISE)
    solution = fit_gls(LOG2, PP, eta, Errors(error, error, np.zeros(3, dtype=np.intp)))
    w = solution.covariance[..., 0, 0] ** -1
    return np.sum(solution.values[..., 0] * w, -1) / np.sum(w, -1), np.sum(w, -1) ** -0.5, eta


def play(values, errors):
    """Alarms (histories, series, nights); night 0 is the release."""
    monitor = Monitor(values[..., 0], errors[..., 0], limit=family_limit(Limits(), SERIES))
    nights = range(1, values.shape[-1])
    return np.stack([monitor.step(values[..., n], errors[..., n]).alarm for n in nights], axis=-1)


def opened(alarms):
    """How many alarms open in each history: one that stays is one."""
    before = np.concatenate([np.zeros_like(alarms[..., :1]), alarms[..., :-1]], axis=-1)
    return np.sum(alarms & ~before, axis=tuple(range(1, alarms.ndim)))


def noise_alarms(rng, histories, nights):
    values, errors, eta = measure(rng, np.full((histories, SERIES, nights + 1, 1), S))
    moved = opened(play(values, errors))
    predicted = 1 - values[..., 0][..., None, None] * np.log2(PP)
    ape = 100 * np.abs(predicted / eta[..., 0, :] - 1)  # (histories, series, nights + 1, points)
    night = ape.mean(axis=(1, 3))
    stated, blocks = np.full(SERIES * 3, NOISE), np.repeat(np.arange(SERIES), 3)
    one = mape_stderr(stated, stated, blocks)
    alarms = []
    for n in range(1, nights + 1):
        base = night[:, : min(n, Limits().baseline_nights + 1)]
        _, told = mape_rise(
            before=base.mean(axis=1), now=night[:, n], before_stderr=np.array(one / np.sqrt(base.shape[1])),
            now_stderr=np.array(one), limits=Limits(),
        )  # fmt: skip
        alarms.append(told)
    return moved, opened(np.stack(alarms, axis=-1)[:, None, :])


def found_within_two(rng, histories, change, repeats, quiet):
    s = np.full((histories, SERIES, quiet + 3, repeats), S)
    s[:, 0, quiet + 1 :] *= 1 + change
    values, errors, _ = measure(rng, s)
    return play(values, errors)[:, 0, quiet : quiet + 2].any(axis=-1).mean()


def check_noise(histories):
    moved, error = noise_alarms(np.random.default_rng(11), histories, 200)
    share = np.mean(moved + error <= 1)
    print(f"pure noise: {100 * share:.1f} % of {histories} histories of 200 nights have at most one false alarm "
          f"(mean {np.mean(moved):.3f} moved, {np.mean(error):.3f} error)")  # fmt: skip
    assert share >= 0.95


def check_change(histories, change, repeats):
    rng = np.random.default_rng(int(1000 * abs(change)) + repeats)
    share = found_within_two(rng, histories, change, repeats, QUIET)
    print(f"{100 * change:+.0f} % of one s, {repeats} a night: found within 2 nights in {100 * share:.1f} %")
    assert share >= 0.95


CHANGES = [(0.1, 1), (-0.1, 1), (0.05, 3), (-0.05, 3)]


@pytest.mark.parametrize(("change", "repeats"), CHANGES)
def test_a_change_is_found_within_two_nights(change, repeats):
    check_change(300, change, repeats)


def test_noise_is_rarely_taken_for_a_change():
    check_noise(200)


@pytest.mark.slow
@pytest.mark.parametrize(("change", "repeats"), CHANGES)
def test_a_change_is_found_within_two_nights_in_full(change, repeats):
    check_change(4000, change, repeats)


@pytest.mark.slow
def test_noise_is_rarely_taken_for_a_change_in_full():
    check_noise(2000)
