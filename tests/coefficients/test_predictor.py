"""Predictions: exact where the file covers the question, refused with the reason where it does not."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st

import calib
from calib import errors
from calib.coefficients.point_columns import Codes

POINT = {
    "model": "Qwen/Qwen3-8B", "system": "h200_sxm", "backend": "vllm", "backend_version": "0.19.1",
    "tp": 2, "pp": 4, "isl": 4000, "osl": 1000,
}  # fmt: skip


@pytest.fixture(scope="module")
def vllm(calibrated):
    return calibrated("h200-vllm-pp")


@pytest.fixture(scope="module")
def predictor(vllm):
    return calib.Predictor(vllm.coefficients)


def test_the_factor_is_balance_times_residual(vllm, predictor):
    c = next(c for c in vllm.coefficients.coefficients if c.model == POINT["model"])
    b = next(
        b for b in vllm.coefficients.balance_factors
        if (b.model, b.tp, b.pp, b.concurrency) == (POINT["model"], 2, 4, 64)
    )  # fmt: skip
    made = predictor.factor(POINT)
    assert made.value[0] == b.factor * (1 - c.estimate.values[0] * 2)
    assert made.unit == "1"
    assert made.flags.tolist() == ["exact"]
    assert made.applied == vllm.coefficients.digest
    assert made.low[0] < made.value[0] < made.high[0]
    # One new measurement: parameter error at log2(pp) = 2, and the scatter of single points, relative to the curve.
    residual = 1 - c.estimate.values[0] * 2
    expected = b.factor * np.hypot(2 * c.estimate.stderr[0], c.estimate.scatter * residual)
    assert made.stderr[0] == pytest.approx(expected, rel=1e-9)  # published at ten digits
    assert made.high[0] - made.value[0] == pytest.approx(c.estimate.t_quantile * expected, rel=1e-9)


def test_throughput_multiplies_the_baseline(predictor):
    factor = predictor.factor(POINT)
    rate = predictor.throughput(POINT | {"baseline_output_tokens_per_s": 10208.526})
    assert rate.value[0] == 10208.526 * factor.value[0]
    assert rate.unit == "tok/s"


@pytest.mark.parametrize("baseline", [10208.526, 1e-300, 1 / 3])
def test_pp_1_returns_the_input_bit_for_bit(predictor, baseline):
    made = predictor.throughput(POINT | {"tp": 8, "pp": 1, "baseline_output_tokens_per_s": baseline})
    assert made.value[0] == baseline
    assert made.stderr[0] == 0.0
    assert made.flags.tolist() == ["identity"]


def test_columns_broadcast_and_come_back_in_order(predictor):
    made = predictor.factor(POINT | {"tp": [8, 1, 2, 4], "pp": [1, 8, 4, 2]})
    one_by_one = [predictor.factor(POINT | {"tp": t, "pp": p}).value[0] for t, p in ((8, 1), (1, 8), (2, 4), (4, 2))]
    assert made.value.tolist() == one_by_one
    assert made.flags.tolist() == ["identity", "exact", "exact", "exact"]


def test_a_data_frame_is_a_table_of_points(predictor):
    frame = pd.DataFrame([POINT, POINT | {"tp": 1, "pp": 8}])
    assert (
        predictor.factor(frame).value.tolist() == predictor.factor(POINT | {"tp": [2, 1], "pp": [4, 8]}).value.tolist()
    )


def test_an_unmeasured_model_gets_the_backend_pool_with_a_wider_interval(predictor):
    own = predictor.factor(POINT)
    pooled = predictor.factor(POINT | {"model": "Qwen/Qwen3-4B", "balance_factor": 0.9147})
    assert pooled.flags.tolist() == ["pooled"]
    assert pooled.stderr[0] > own.stderr[0]


def test_an_own_balance_factor_replaces_the_files(predictor):
    half, full = (predictor.factor(POINT | {"balance_factor": b}).value[0] for b in (0.4, 0.8))
    assert full == 2 * half


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        ({"pp": 16, "tp": 1}, errors.OutsideDomainError, r"'pp' = 16.*1 to 8"),
        ({"pp": 4, "tp": 4}, errors.OutsideDomainError, r"'tp\*pp' = 16.*8 GPUs"),
        ({"dp": 2}, errors.OutsideDomainError, r"without data parallelism"),
        ({"tp": 3}, errors.OutsideDomainError, r"'tp' = 3.*one of 1, 2, 4"),
        ({"isl": 4001}, errors.OutsideDomainError, r"'isl' = 4001.*4000 to 4000"),
        ({"osl": 999}, errors.OutsideDomainError, r"'osl' = 999"),
        ({"concurrency": 8}, errors.OutsideDomainError, r"'concurrency' = 8.*64 to 64"),
        ({"backend_version": "0.20.0"}, errors.UnknownKeyError, r"0\.20\.0.*was fitted for vllm 0\.19\.1"),
        ({"backend": "sglang"}, errors.UnknownKeyError, r"no coefficient covers .* sglang"),
        ({"system": "h20e_sxm"}, errors.UnknownKeyError, r"h20e_sxm"),
        ({"model": "Qwen/Qwen3-4B"}, errors.MissingBalanceError, r"no balance factor for Qwen/Qwen3-4B"),
        ({"pp": 0}, errors.PointError, r"'pp' = 0.*positive"),
        ({"pp": 2.5}, errors.PointError, r"'pp' = 2.5.*whole"),
        ({"pp": float("nan")}, errors.PointError, r"'pp' = nan"),
        ({"pp": None}, errors.PointError, r"'pp'"),
        ({"pp": "four"}, errors.PointError, r"'pp' = .*four"),
        ({"tp": [1, 2], "pp": [2, 4, 8]}, errors.PointError, r"differ in length"),
        ({"model": ""}, errors.PointError, r"'model': is empty"),
        ({"model": None}, errors.PointError, r"'model': is empty"),
        ({"balance_factor": 1.5}, errors.PointError, r"must lie in \(0, 1\]"),
        ({"calib_applied": "abc"}, errors.AlreadyAppliedError, r"corrected before"),
        ({"pp": True}, errors.PointError, r"'pp' = True: is not a number"),
        ({"pp": ["2", "4"], "tp": [4, 2]}, errors.PointError, r"'pp' = '2': is not a number"),
        ({"pp": 10**400}, errors.PointError, r"'pp': is too large"),
        ({"pp": np.ma.masked_array([4], [True])}, errors.PointError, r"masked"),
        ({"pp": [[4]]}, errors.PointError, r"more than one dimension"),
        ({"pp": [[2], [4, 1]]}, errors.PointError, r"ragged"),
        ({"model": "Qwen/Qwen3-8B\0"}, errors.MissingBalanceError, r"no balance factor"),
        ({"model": b"Qwen/Qwen3-8B"}, errors.PointError, r"is not text"),
        ({"precision": "fp8"}, errors.UnknownKeyError, r"precision not stated"),
    ],
)
def test_a_question_outside_the_file_is_refused_with_the_limit(predictor, change, kind, words):
    with pytest.raises(kind, match=words):
        predictor.factor(POINT | change)


@pytest.mark.parametrize("name", sorted(set(POINT)))
def test_a_missing_field_is_never_guessed(predictor, name):
    with pytest.raises(errors.PointError, match=f"'{name}': is missing"):
        predictor.factor({k: v for k, v in POINT.items() if k != name})


def test_one_bad_point_among_good_ones_is_named_by_its_row(predictor):
    with pytest.raises(errors.OutsideDomainError, match="point 2 "):
        predictor.factor(POINT | {"tp": [4, 2, 1, 1], "pp": [2, 4, 16, 8]})


def test_pp_beyond_the_positivity_limit_is_refused(vllm):
    import msgspec

    def steep(c):
        return msgspec.structs.replace(c, positivity_limit_pp=4.0)

    altered = msgspec.structs.replace(vllm.coefficients, coefficients=tuple(map(steep, vllm.coefficients.coefficients)))
    with pytest.raises(errors.OutsideDomainError, match=r"not positive from pp = 4\.0"):
        calib.Predictor(altered.sealed()).factor(POINT)


def test_the_models_ideal_throughput_is_not_what_a_baseline_coefficient_multiplies(predictor):
    with pytest.raises(errors.ReferenceMismatchError, match="model_output_tokens_per_s"):
        predictor.throughput(POINT | {"model_output_tokens_per_s": 1.0})
    with pytest.raises(errors.PointError, match="baseline_output_tokens_per_s"):
        predictor.throughput(POINT)


def test_a_prediction_is_not_corrected_again(predictor):
    once = predictor.throughput(POINT | {"baseline_output_tokens_per_s": 1000.0})
    with pytest.raises(errors.AlreadyAppliedError, match=once.applied[:12]):
        predictor.throughput(POINT | {"baseline_output_tokens_per_s": once})


@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan"), float("inf")])
def test_a_baseline_that_is_no_throughput_is_an_error(predictor, bad):
    with pytest.raises(errors.PointError, match="finite and positive"):
        predictor.throughput(POINT | {"baseline_output_tokens_per_s": bad})


def test_a_baseline_a_point_broadcasts_with_one_configuration(predictor):
    made = predictor.throughput(POINT | {"baseline_output_tokens_per_s": [100.0, 200.0]})
    assert made.value[1] == 2 * made.value[0]


def test_models_called_nan_or_none_are_models(predictor):
    for name in ("nan", "None"):
        made = predictor.factor(POINT | {"model": name, "balance_factor": 0.9})
        assert made.flags.tolist() == ["pooled"]


@pytest.mark.parametrize("change", [{"form": "cubic"}, {"fill_rule": "linear"}])
def test_a_form_or_fill_this_version_cannot_evaluate_is_refused(vllm, change):
    import msgspec

    with pytest.raises(errors.CoefficientFileError, match="can evaluate"):
        calib.Predictor(msgspec.structs.replace(vllm.coefficients, **change))


def test_the_files_fallback_ladder_is_obeyed(vllm):
    import msgspec

    strict = calib.Predictor(msgspec.structs.replace(vllm.coefficients, fallback=("model", "refuse")))
    assert strict.factor(POINT).flags.tolist() == ["exact"]
    with pytest.raises(errors.UnknownKeyError, match="no coefficient covers"):
        strict.factor(POINT | {"model": "Qwen/Qwen3-4B", "balance_factor": 0.9})


def test_a_refused_coefficient_is_applied_only_by_name(calibrated):
    predictor = calib.Predictor(calibrated("h200-sglang-trtllm-pp").coefficients)
    point = POINT | {"backend": "trtllm", "backend_version": "1.3.0rc18"}
    with pytest.raises(errors.RefusedCoefficientError, match=r"Qwen/Qwen3-8B is refused .*chi-square"):
        predictor.factor(point)
    assert predictor.factor(point, allow_refused=["Qwen/Qwen3-8B"]).flags.tolist() == ["refused"]
    with pytest.raises(errors.RefusedCoefficientError):
        predictor.factor(point, allow_refused="Qwen/Qwen3-8B or another")
    # The campaign states no concurrency, so a question at one is outside what is known.
    with pytest.raises(errors.OutsideDomainError, match="campaign states none"):
        predictor.factor(point | {"concurrency": 64}, allow_refused=["Qwen/Qwen3-8B"])


def test_an_estimate_without_interval_says_so(calibrated):
    predictor = calib.Predictor(calibrated("h200-sglang-trtllm-pp").coefficients)
    made = predictor.factor(POINT | {"backend": "sglang", "backend_version": "0.5.13.post1", "tp": 4, "pp": 2})
    assert np.isfinite(made.value[0])
    assert np.isnan(made.stderr[0])
    assert np.isnan(made.low[0])


def test_matched_coefficients_need_the_concurrency(calibrated):
    from calib.workflow import Options

    predictor = calib.Predictor(calibrated("h200-vllm-pp", Options(matching="matched")).coefficients)
    with pytest.raises(errors.PointError, match="needs a concurrency"):
        predictor.factor(POINT, allow_refused=[POINT["model"]])
    assert predictor.factor(POINT | {"concurrency": 8}, allow_refused=[POINT["model"]]).value[0] > 0


# Arrays in, arrays out


def test_codes_categories_and_words_are_the_same_column(predictor):
    words = ["Qwen/Qwen3-8B", "Qwen/Qwen3-0.6B", "Qwen/Qwen3-8B"]
    codes = Codes(np.array([1, 0, 1], dtype=np.int8), ["Qwen/Qwen3-0.6B", "Qwen/Qwen3-8B", "", "never used"])
    expected = predictor.factor(POINT | {"model": words})
    for column in (codes, pd.Categorical(words), pd.Series(words, dtype="category"), np.array(words), pd.Series(words)):
        made = predictor.factor(POINT | {"model": column})
        assert made.value.tolist() == expected.value.tolist()
        assert made.flags.tolist() == expected.flags.tolist()
    one = predictor.factor(POINT | {"model": Codes(1, codes.categories), "tp": [2, 4], "pp": [4, 2]})
    assert one.value.shape == (2,)


@pytest.mark.parametrize(
    ("codes", "words"),
    [
        (Codes([0, 2], ["a", "b"]), r"'model.codes' = 2: is no code"),
        (Codes([-2, 0], ["a", "b"]), r"'model.codes' = -2: is no code"),
        (Codes([-1, 0], ["a", "b"]), r"'model': is empty"),
        (Codes([0.0, 1.0], ["a", "b"]), r"'model.codes': must be whole numbers"),
        (Codes([[0]], ["a"]), r"must be whole numbers in one dimension"),
        (Codes([0], ["", "a"]), r"'model': is empty"),
        (Codes([0], [None]), r"'model': is empty"),
        (Codes([0], [7]), r"'model' = 7: is not text"),
        (Codes([0, 0, 0], ["Qwen/Qwen3-8B"]), r"differ in length"),
    ],
)
def test_codes_that_stand_for_nothing_are_errors(predictor, codes, words):
    with pytest.raises(errors.PointError, match=words):
        predictor.factor(POINT | {"model": codes, "tp": [2, 4], "pp": [4, 2]})


def test_a_precision_without_a_code_is_not_stated(predictor):
    made = predictor.factor(POINT | {"precision": Codes([-1, -1], ["fp8"]), "tp": [2, 4], "pp": [4, 2]})
    assert made.flags.tolist() == ["exact", "exact"]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from([(8, 1), (4, 2), (2, 4), (1, 8)]), min_size=1, max_size=40), st.randoms())
def test_many_points_are_what_each_is_alone(peak_set, shapes, random):
    predictor = calib.Predictor(peak_set)
    models = [random.choice(["Qwen/Qwen3-8B", "Qwen/Qwen3-14B"]) for _ in shapes]
    base = [random.uniform(1, 1e5) for _ in shapes]
    tp, pp = zip(*shapes, strict=True)
    made = predictor.throughput(POINT | {"model": models, "tp": tp, "pp": pp, "baseline_output_tokens_per_s": base})
    for i, (t, p) in enumerate(shapes):
        alone = predictor.throughput(
            POINT | {"model": models[i], "tp": t, "pp": p, "baseline_output_tokens_per_s": base[i]}
        )
        assert (made.value[i], made.stderr[i], made.flags[i]) == (alone.value[0], alone.stderr[0], alone.flags[0])


def test_whole_numbers_beyond_the_look_up_table_are_grouped_too(predictor):
    made = predictor.factor(POINT | {"isl": [4000, 3_000_000], "osl": [1000, 1000]}, extrapolate=True)
    assert made.flags.tolist() == ["exact", "extrapolated"]


def test_no_points_are_no_predictions(predictor):
    made = predictor.throughput(POINT | {"tp": np.array([], dtype=int), "pp": np.array([], dtype=int),
                                         "baseline_output_tokens_per_s": np.array([])})  # fmt: skip
    assert len(made.value) == len(made.flags) == 0


# Nothing is corrected twice, and correction can be turned off


def test_calibrated_numbers_remember_it_through_arithmetic_and_slices(predictor):
    once = predictor.throughput(POINT | {"tp": [4, 2], "pp": [2, 4], "baseline_output_tokens_per_s": 1000.0})
    for marked in (once.value, once.value[:1], once.low * 2.0, once.value + np.ones(2), np.sqrt(once.high)):
        with pytest.raises(
            errors.AlreadyAppliedError, match=f"already corrected, by the coefficient file {once.applied[:12]}"
        ):
            predictor.throughput(POINT | {"baseline_output_tokens_per_s": marked})
    assert np.asarray(once.value).tolist() == once.value.tolist()


def test_a_result_that_is_written_down_carries_its_mark(predictor):
    once = predictor.throughput(POINT | {"baseline_output_tokens_per_s": 1000.0})
    table = pd.DataFrame([POINT | {"baseline_output_tokens_per_s": once.value[0], "calib_applied": once.applied}])
    with pytest.raises(errors.AlreadyAppliedError, match="corrected before"):
        predictor.throughput(table)


def test_correction_can_be_turned_off_and_the_result_says_so(predictor):
    base = np.array([1 / 3, 7.0])
    point = POINT | {"model": "anything", "pp": [2, 64], "tp": 4, "baseline_output_tokens_per_s": base}
    off = predictor.throughput(point, correction="off")
    assert off.value.tolist() == base.tolist()
    assert off.low.tolist() == off.high.tolist() == base.tolist()
    assert off.flags.tolist() == ["uncorrected"] * 2
    assert off.applied == "none"
    assert off.describe() == "no correction was applied: it is turned off"
    again = POINT | {"baseline_output_tokens_per_s": off.value[0], "calib_applied": off.applied}
    assert predictor.throughput(again).flags.tolist() == ["exact"]  # nothing was applied, so it may be
    with pytest.raises(errors.UsageError, match="must be 'on' or 'off'"):
        predictor.factor(POINT, correction="maybe")
    with pytest.raises(errors.PointError, match="prediction without correction"):
        predictor.throughput(POINT | {"baseline_output_tokens_per_s": off})


def test_every_result_says_which_file_was_applied(vllm, tmp_path):
    vllm.coefficients.save(tmp_path / "c.json")
    made = calib.Predictor.load(tmp_path / "c.json").factor(POINT)
    assert made.describe() == (
        f"corrected by coefficient file {vllm.coefficients.digest[:12]} ({tmp_path / 'c.json'}), reference 'baseline'"
    )


def test_a_baselines_throughput_is_not_what_a_model_coefficient_multiplies(vllm):
    import msgspec

    filled = tuple(msgspec.structs.replace(b, fill=0.5) for b in vllm.coefficients.balance_factors)
    model = calib.Predictor(
        msgspec.structs.replace(vllm.coefficients, reference="model", fill_rule="occupancy", balance_factors=filled)
    )
    with pytest.raises(errors.ReferenceMismatchError, match="tokens_per_s': coefficients with reference 'model'"):
        model.throughput(POINT | {"baseline_output_tokens_per_s": 1.0})
    made = model.throughput(POINT | {"model_output_tokens_per_s": 100.0})
    assert made.reference == "model"
    assert made.value[0] == 100.0 * calib.Predictor(vllm.coefficients).factor(POINT).value[0] * 0.5  # times the fill


def test_a_throughput_of_another_length_than_the_points_is_an_error(predictor):
    with pytest.raises(errors.PointError, match="differ in length"):
        predictor.throughput(POINT | {"tp": [4, 2], "pp": [2, 4], "baseline_output_tokens_per_s": [1.0, 2.0, 3.0]})


def test_the_prediction_path_loads_numpy_and_nothing_heavier(vllm, tmp_path):
    path = tmp_path / "c.json"
    vllm.coefficients.save(path)
    code = (
        "import sys; from calib import Predictor\n"
        f"p = Predictor.load({str(path)!r}).factor({POINT!r})\n"
        "heavy = {'pandas', 'pandera', 'scipy', 'statsmodels', 'matplotlib', 'pydantic', 'typer', 'rich', 'jinja2'}\n"
        "third = {m.partition('.')[0] for m in sys.modules} - set(sys.stdlib_module_names) - {'__main__'}\n"
        "own = {m for m in third if not m.startswith(('_', 'calib', 'sitecustomize'))} - {'numpy', 'msgspec'}\n"
        "own -= {'typing_extensions'}  # msgspec asks for it\n"
        "import os; own = {m for m in own if 'site-packages' in (getattr(sys.modules.get(m), '__file__', '') or '')}\n"
        "print(sorted(heavy & set(sys.modules)), sorted(own), p.value[0].hex())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["[]", "[]", calib.Predictor(vllm.coefficients).factor(POINT).value[0].hex()]
