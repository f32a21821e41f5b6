"""Time of fitting the shipped campaigns, and of the simulations. `pytest -m slow -n 0 -s tests/benchmarks`."""

from __future__ import annotations

import time

import numpy as np
import pytest

from calib import decompose, fit, load_campaign, shipped_campaigns
from calib.coefficients.forms import LOG2
from calib.fitting.least_squares import Errors, fit_gls
from calib.judging.contest import contest_forms
from calib.workflow import calibrate

TARGET_S = 10.0


@pytest.mark.slow
def test_all_three_campaigns_with_intervals_and_left_out_tables():
    """Every form in the contest at the campaign's own matching, and H200/vLLM at matched concurrency beside it."""
    calibrate("h20-trtllm-pp")  # imports and caches
    wall, cpu = time.perf_counter(), time.process_time()
    for name in shipped_campaigns():
        calibrate(name)
    matched = decompose(load_campaign("h200-vllm-pp"), matching="matched")
    fit(matched)
    contest_forms(matched)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    print(f"\nthree campaigns fitted, intervals and left-out tables: {wall:.1f} s, {cpu:.1f} s of processor time")
    assert cpu < TARGET_S


@pytest.mark.slow
def test_a_batch_of_fits_against_a_loop():
    rng, pp, n = np.random.default_rng(0), np.array([2.0, 4.0, 8.0]), 2000
    y = (1 - 0.2 * np.log2(pp)) * (1 + 0.03 * rng.standard_normal((n, 3)))
    errors = Errors(np.full(3, 0.02), np.full(3, 0.02), np.zeros(3, dtype=int))
    start = time.perf_counter()
    fit_gls(LOG2, pp, y, errors)
    batch = time.perf_counter() - start
    start = time.perf_counter()
    for row in y[:100]:
        fit_gls(LOG2, pp, row, errors)
    loop = (time.perf_counter() - start) * n / 100
    print(f"\n{n} fits: {1000 * batch:.0f} ms at once, {loop / batch:.0f} times a loop's speed")
    assert loop / batch > 10
