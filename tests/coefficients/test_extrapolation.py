"""Outside the domain: an error by default, a wider interval by choice, and never a throughput below zero."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import calib
from calib import errors
from calib.coefficients.extrapolation import EXTRAPOLATABLE

POINT = {
    "model": "Qwen/Qwen3-8B", "system": "h200_sxm", "backend": "vllm", "backend_version": "0.19.1",
    "tp": 2, "pp": 4, "isl": 4000, "osl": 1000,
}  # fmt: skip


@pytest.fixture(scope="module")
def peak(peak_set):
    return calib.Predictor(peak_set)


@pytest.fixture(scope="module")
def matched(matched_set):
    return calib.Predictor(matched_set)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"backend_version": "0.24.0"}, "backend_version"),
        ({"tp": 16, "balance_factor": 0.9}, "tp"),
        ({"tp": 1, "pp": 16, "balance_factor": 0.9}, "pp"),
        ({"isl": 8000}, "isl"),
        ({"osl": 500}, "osl"),
        ({"concurrency": 128}, "concurrency"),
        ({"tp": 1, "pp": 4, "balance_factor": 0.9}, "gpus"),
    ],
)
def test_leaving_the_domain_in_a_field_is_an_error_until_it_is_named_and_then_widens(peak, change, field):
    with pytest.raises(errors.PredictionError):
        peak.factor(POINT | change)
    others = [f for f in EXTRAPOLATABLE if f != field]
    if field in ("tp", "pp"):
        others.remove("gpus")
        field_set = [field, "gpus"]
    else:
        field_set = [field]
    with pytest.raises(errors.PredictionError):
        peak.factor(POINT | change, extrapolate=others)
    wide = peak.factor(POINT | change, extrapolate=field_set)
    assert wide.flags.tolist() == ["extrapolated"]
    near = peak.factor(POINT | ({"balance_factor": change["balance_factor"]} if "balance_factor" in change else {}))
    assert wide.stderr[0] / (change.get("balance_factor") or 1) > 0
    if field not in ("tp", "pp", "gpus"):
        assert wide.stderr[0] > near.stderr[0]


def test_the_rule_is_the_error_at_the_edge_times_one_plus_the_doublings(peak):
    inside, twice, four = (peak.factor(POINT | {"concurrency": c}, extrapolate=["concurrency"]) for c in (64, 128, 256))
    assert inside.flags.tolist() == ["exact"]
    assert twice.stderr[0] == pytest.approx(2 * inside.stderr[0], rel=1e-12)
    assert four.stderr[0] == pytest.approx(3 * inside.stderr[0], rel=1e-12)
    both = peak.factor(POINT | {"concurrency": 128, "backend_version": "0.24.0"}, extrapolate=True)
    assert both.stderr[0] == pytest.approx(3 * inside.stderr[0], rel=1e-12)
    assert both.value[0] == inside.value[0]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 4096), min_size=2, max_size=6), st.sampled_from(["low", "high"]))
def test_the_interval_never_narrows_with_distance(matched_set, loads, side):
    predictor = calib.Predictor(matched_set)
    low = next(c for c in matched_set.coefficients if c.model == POINT["model"]).domain.concurrency.high
    chosen = sorted(int(low) + c for c in loads)
    pp = [2] * len(chosen)  # far from where the residual is no longer positive
    made = predictor.factor(
        POINT | {"tp": 4, "pp": pp, "concurrency": chosen, "balance_factor": 0.9, "isl": 4000 if side == "high" else 2000},
        extrapolate=True, allow_refused=[POINT["model"]],
    )  # fmt: skip
    width = np.asarray(made.high - made.low)
    assert np.all(np.diff(width) >= -1e-12)


@pytest.mark.parametrize("form", ["log2", "power", "hyperbolic"])
def test_the_interval_never_narrows_with_pp_whatever_the_form(peak_set, form):
    from calib.coefficients.forms import FORMS

    def under(c):
        e = msgspec.structs.replace(c.estimate, parameters=FORMS[form].parameters, values=(0.05,))
        return msgspec.structs.replace(c, estimate=e, positivity_limit_pp=None)

    other = msgspec.structs.replace(peak_set, form=form, coefficients=tuple(map(under, peak_set.coefficients)))
    made = calib.Predictor(other).factor(
        POINT | {"tp": 1, "pp": [8, 16, 32, 64, 128, 256], "balance_factor": 0.9}, extrapolate=True
    )
    assert np.all(np.diff(np.asarray(made.stderr)) > 0)
    assert made.flags.tolist() == ["exact"] + ["extrapolated"] * 5


def test_pp_where_the_residual_is_not_positive_stays_an_error(peak):
    with pytest.raises(errors.OutsideDomainError, match=r"'pp' = 64.*not positive from pp = 3\d\.\d on; choose fewer"):
        peak.factor(POINT | {"tp": 1, "pp": 64, "balance_factor": 0.9}, extrapolate=True)


def test_beyond_the_measured_load_that_limit_is_worked_out_again(matched, matched_set):
    """Inside its concurrencies the file's limit holds; at a larger load the residual ends at fewer stages."""
    c = next(c for c in matched_set.coefficients if c.model == POINT["model"])
    s, u = c.estimate.values
    load = 1 << 20
    limit = 2 ** (1 / (s + u * 20))
    assert limit < c.positivity_limit_pp
    pp = int(limit) + 1
    with pytest.raises(errors.OutsideDomainError, match=f"not positive from pp = {limit:.1f}"):
        matched.factor(
            POINT | {"tp": 1, "pp": pp, "concurrency": load, "balance_factor": 0.9}, extrapolate=True,
            allow_refused=[POINT["model"]],
        )  # fmt: skip


def test_one_value_a_level_has_nothing_in_between_to_extrapolate(peak_set):
    from calib.coefficients.forms import free_form

    names = free_form((2, 4, 8)).parameters

    def free(c):
        e = msgspec.structs.replace(
            c.estimate, parameters=names, values=(0.8, 0.6, 0.4), stderr=None, covariance=None, interval95=None,
            t_quantile=None,
        )  # fmt: skip
        return msgspec.structs.replace(c, estimate=e)

    other = calib.Predictor(
        msgspec.structs.replace(peak_set, form="free", coefficients=tuple(map(free, peak_set.coefficients)))
    )
    assert np.isnan(other.factor(POINT).stderr[0])
    with pytest.raises(errors.OutsideDomainError, match="nothing between"):
        other.factor(POINT | {"pp": 16, "tp": 1, "balance_factor": 0.9}, extrapolate=True)


def test_data_parallelism_and_unknown_fields_cannot_be_extrapolated(peak):
    with pytest.raises(errors.OutsideDomainError, match=r"'dp' = 2.*without data parallelism"):
        peak.factor(POINT | {"dp": 2}, extrapolate=True)
    with pytest.raises(errors.UsageError, match="'dp': cannot be extrapolated"):
        peak.factor(POINT, extrapolate=["dp"])


def test_an_extrapolated_configuration_takes_the_nearest_balance_factor_the_file_has(peak, peak_set):
    known = next(
        b.factor for b in peak_set.balance_factors
        if (b.model, b.tp, b.pp, b.concurrency) == (POINT["model"], 2, 4, 64)
    )  # fmt: skip
    far = peak.factor(POINT | {"concurrency": 4096, "isl": 16000}, extrapolate=True)
    assert far.value[0] == peak.factor(POINT | {"balance_factor": known}).value[0]
    with pytest.raises(errors.MissingBalanceError):  # but no factor of another (tp, pp)
        peak.factor(POINT | {"pp": 16, "tp": 1}, extrapolate=True)


def test_the_gravest_flag_is_shown(matched_set):
    refused = msgspec.structs.replace(
        matched_set,
        coefficients=tuple(msgspec.structs.replace(c, verdict="REFUSED") for c in matched_set.coefficients),
    )
    predictor = calib.Predictor(refused)
    made = predictor.factor(POINT | {"concurrency": 128}, extrapolate=True, allow_refused=POINT["model"])
    assert made.flags.tolist() == ["refused"]
    pooled = calib.Predictor(matched_set).factor(
        POINT | {"model": "unmeasured", "balance_factor": 0.9, "concurrency": 128}, extrapolate=True
    )
    assert pooled.flags.tolist() == ["extrapolated"]
