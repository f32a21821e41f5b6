"""A fit in the clothes of statsmodels is the same fit, to 1e-8, and a refused one wears no estimate."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from calib import decompose, fit, load_campaign
from calib.errors import UsageError
from calib.fitting.regression import regression_of

FORMS = ("log2", "power", "hyperbolic", "free", "log2_concurrency")


@pytest.fixture(scope="module")
def matched():
    return decompose(load_campaign(), matching="matched")


@pytest.mark.parametrize("form", FORMS)
def test_statsmodels_has_the_same_estimates_errors_and_degrees_of_freedom(matched, form):
    result = fit(matched, form=form, drift=False)
    for s in result.series:
        theirs = regression_of(s.curve, s.points)
        assert theirs.params.to_numpy() == pytest.approx(s.curve.values, rel=1e-8, abs=1e-12)
        assert theirs.bse.to_numpy() == pytest.approx(np.sqrt(np.diag(s.curve.covariance)), rel=1e-8)
        assert theirs.cov_params().to_numpy() == pytest.approx(s.curve.covariance, rel=1e-6, abs=1e-14)
        assert theirs.df_resid == s.curve.dof
        assert theirs.ssr == pytest.approx(s.curve.chi_square, rel=1e-8)
        half = s.curve.quantile * np.sqrt(np.diag(s.curve.covariance))
        assert theirs.conf_int()[1].to_numpy() == pytest.approx(s.curve.values + half, rel=1e-8)


def test_without_degrees_of_freedom_the_errors_are_the_stated_ones():
    result = fit(decompose(load_campaign()), form="free", drift=False)
    s = result.series[0]
    theirs = regression_of(s.curve, s.points)
    assert s.curve.dof == 0
    assert theirs.bse.to_numpy() == pytest.approx(np.sqrt(np.diag(s.curve.stated_covariance)), rel=1e-8)
    low, high = theirs.conf_int().to_numpy().T
    assert (high - low) / 2 == pytest.approx(s.curve.quantile * theirs.bse.to_numpy(), rel=1e-8)


def test_params_bse_and_conf_int_are_those_of_the_coefficient_file(calibrated):
    result = calibrated("h200-vllm-pp").fit
    for s in result.series:
        at = (s.key["backend"], s.key["model"], "s")
        assert result.params[at] == s.estimate.values[0]
        assert result.bse[at] == s.estimate.stderr[0]
        interval = s.estimate.interval95[0]
        assert tuple(result.conf_int().loc[at]) == pytest.approx((interval.low, interval.high), rel=1e-12)
        wider = result.conf_int(0.01).loc[at]
        assert wider["lower"] < interval.low < interval.high < wider["upper"]


def test_a_refused_form_has_no_estimate_and_says_why(calibrated):
    result = calibrated("h200-sglang-trtllm-pp").fit
    verdicts = {(s.key["backend"], s.key["model"]): s.verdict for s in result.series}
    for at, value in result.params.items():
        assert np.isnan(value) == (verdicts[at[:2]] == "REFUSED")
    text = str(result.summary())
    assert "backend_version" in text, "two backends of one model have two versions"
    assert "Qwen/Qwen3-14B has no estimate: 1 - s*log2(pp) misses the points" in text
    assert result.regression("Qwen/Qwen3-14B").df_resid == 2, "its diagnostics are there all the same"


def test_an_unknown_or_ambiguous_model_is_one_sentence(calibrated):
    result = calibrated("h200-sglang-trtllm-pp").fit
    with pytest.raises(UsageError, match=r"was fitted 2 times; name one of .*Qwen/Qwen3-8B on sglang"):
        result.regression("Qwen/Qwen3-8B")
    assert result.regression("Qwen/Qwen3-8B", "trtllm").nobs == 3
    with pytest.raises(UsageError, match="was not fitted"):
        result.regression("nope")


def test_the_main_job_does_not_wait_for_statsmodels():
    code = "import sys, calib.workflow; calib.workflow.calibrate('h20-trtllm-pp'); print('statsmodels' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
