"""The report of a campaign of many models. `pytest -m slow -n 0 -s tests/benchmarks/test_report_size.py`."""

from __future__ import annotations

import resource
import time

import numpy as np
import pytest

from calib.reporting.page import render_html
from calib.workflow import calibrate

MODELS, BACKENDS = 500, ("vllm", "sglang", "trtllm")


@pytest.mark.slow
def test_500_models_on_3_backends_render_in_bounded_time_and_memory(simulated):
    truths = {f"org/model-{i}B": 0.1 + 0.1 * np.sin(i) ** 2 for i in range(MODELS)}
    folder = simulated(truths, noise=0.01, backends=BACKENDS)
    start = time.process_time()
    result = calibrate(folder)
    fitted = time.process_time() - start
    start = time.process_time()
    page = render_html(result.report_data)
    rendered = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"\n{MODELS} models on {len(BACKENDS)} backends: calibrated in {fitted:.0f} s of one core, report in {rendered:.0f} s, "
        f"{len(page) / 2**20:.1f} MiB of HTML, at most {peak:.0f} MiB of memory"
    )
    assert len(result.fit.series) == MODELS * len(BACKENDS)
    assert len(page) < 30 * 2**20
    assert peak < 2048
