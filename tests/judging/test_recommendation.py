"""The recommended configuration is the measured best; the uncalibrated model's is not."""

from __future__ import annotations

import dataclasses
import warnings

import msgspec
import pandas as pd
import pytest

import calib
from calib import errors
from calib.integrations.aiconfigurator import EnginePoint, IdealEngine
from calib.judging.candidates import Candidate, Question, campaign_candidates, gpu_layouts
from calib.judging.recommendation import choose_release, recommend, require_reference
from calib.measure.screening.screen import usable
from calib.measure.shipped import load_campaign
from calib.pipeline.providers.roofline import RooflineProvider

MODELS = ("Qwen/Qwen3-0.6B", "Qwen/Qwen3-8B", "Qwen/Qwen3-14B", "Qwen/Qwen3-32B-FP8")


@pytest.fixture(scope="module")
def campaign():
    return load_campaign("h200-vllm-pp")


def question(model=MODELS[1], **changes):
    return dataclasses.replace(Question(model, "h200_sxm", "vllm", "0.19.1", 4000, 1000, 8), **changes)


def by_peak(campaign, peak_set, q, **options):
    return recommend(q, campaign_candidates(campaign, q, "peak"), calib.Predictor(peak_set), **options)


@pytest.mark.parametrize("model", MODELS)
def test_on_8_gpus_the_recommendation_is_the_measured_best_and_the_uncalibrated_one_is_not(campaign, peak_set, model):
    runs = usable(campaign)
    own = runs[runs["model"] == model].sort_values("output_tokens_per_s")
    best = (int(own.iloc[-1]["tp"]), int(own.iloc[-1]["pp"]))
    made = by_peak(campaign, peak_set, question(model))
    assert (made.best.candidate.tp, made.best.candidate.pp) == best == (8, 1)
    uncalibrated = made.uncalibrated_best()
    assert (uncalibrated.tp, uncalibrated.pp) == (1, 8)  # at its own optimum concurrency, as published
    assert "the uncalibrated model would have chosen TP1/PP8" in made.describe()
    assert [c.candidate.pp for c in made.choices] == [1, 2, 4, 8]
    for choice in made.choices[1:]:  # each interval holds what was measured
        found = own[(own["tp"] == choice.candidate.tp) & (own["pp"] == choice.candidate.pp)][
            "output_tokens_per_s"
        ].max()
        assert choice.low < found < choice.high


def test_at_stated_concurrencies_the_best_one_of_each_configuration_is_listed(campaign, matched_set):
    q = question()
    found = campaign_candidates(campaign, q, "matched")
    made = recommend(q, found, calib.Predictor(matched_set), allow_refused=[q.model])
    assert {c.concurrency for c in found} == {1, 2, 4, 8, 16, 32, 64}
    assert [(c.candidate.pp, c.candidate.concurrency) for c in made.choices] == [(1, 64), (2, 64), (4, 64), (8, 64)]
    assert made.applied == matched_set.digest


def test_limits_leave_out_and_say_so(campaign, peak_set):
    made = by_peak(campaign, peak_set, question(tpot_ms=5.5))
    assert [c.candidate.name for c in made.choices] == ["TP4/PP2 x1"]
    assert "limit: its TPOT of 5.8 ms (not calibrated) is over 5.5 ms" in [why for _, why in made.left_out]
    with pytest.raises(errors.NothingReleasedError, match=r"no configuration of 8 GPUs .* TTFT .* over 1 ms"):
        by_peak(campaign, peak_set, question(ttft_ms=1.0))


def test_configurations_whose_intervals_do_not_tell_them_apart_are_named(campaign, peak_set):
    def vague(c):
        e = msgspec.structs.replace(c.estimate, scatter=0.5)
        return msgspec.structs.replace(c, estimate=e)

    unsure = msgspec.structs.replace(peak_set, coefficients=tuple(map(vague, peak_set.coefficients)))
    made = by_peak(campaign, unsure, question())
    assert made.choices[1].told_apart is False
    assert "not distinguishable from it: TP4/PP2 x1" in made.describe()
    sharp = by_peak(campaign, peak_set, question())
    assert all(c.told_apart for c in sharp.choices[1:])
    assert "distinguishable" not in sharp.describe()


def test_an_unknown_interval_is_not_taken_for_a_difference(campaign, peak_set):
    def unknown(c):
        e = msgspec.structs.replace(
            c.estimate, stderr=None, covariance=None, interval95=None, t_quantile=None, scatter=None
        )
        return msgspec.structs.replace(c, estimate=e)

    blind = msgspec.structs.replace(peak_set, coefficients=tuple(map(unknown, peak_set.coefficients)))
    made = by_peak(campaign, blind, question())
    assert made.choices[1].told_apart is None
    assert "without an interval" in made.describe()


def test_what_rests_on_an_extrapolation_is_said(campaign, peak_set):
    q = question(backend_version="0.24.0")
    with pytest.raises(errors.NothingReleasedError, match="with PP > 1"):
        choose_release(q, lambda m: campaign_candidates(campaign, q, m), [calib.Predictor(peak_set)])
    made = by_peak(campaign, peak_set, q, extrapolate=["backend_version"])
    assert [c.extrapolated for c in made.choices] == [False, True, True, True]
    assert "rest on an extrapolation or a refused form: TP4/PP2 x1, TP2/PP4 x1, TP1/PP8 x1" in made.describe()


def test_more_gpus_are_filled_with_replicas_and_a_rest_is_an_error(campaign, peak_set):
    one, two = (by_peak(campaign, peak_set, question(gpus=g)) for g in (8, 16))
    assert two.best.candidate.replicas == 2
    assert two.best.value == 2 * one.best.value
    q = question(gpus=16)
    assert {c.concurrency for c in campaign_candidates(campaign, q, "matched")} == {2, 4, 8, 16, 32, 64, 128}
    with pytest.raises(errors.UsageError, match=r"'gpus' = 12: is no multiple .*8"):
        campaign_candidates(campaign, question(gpus=12), "peak")
    with pytest.raises(errors.UsageError, match=r"'model' = 'unknown'.*Qwen3-8B"):
        campaign_candidates(campaign, question("unknown"), "peak")


def test_the_first_file_that_answers_for_pp_is_taken(campaign, peak_set, matched_set):
    q = question()
    refused = tuple(
        msgspec.structs.replace(c, verdict="REFUSED") if c.model == q.model else c for c in matched_set.coefficients
    )
    first = calib.Predictor(msgspec.structs.replace(matched_set, coefficients=refused))
    made = choose_release(q, lambda m: campaign_candidates(campaign, q, m), [first, calib.Predictor(peak_set)])
    assert made.applied == peak_set.digest


def test_the_baseline_is_that_of_the_version_and_precision_that_are_asked_for(vllm_folder, edit):
    edit(vllm_folder / "campaign.toml", 'backend_version = "0.19.1"', "")
    points = pd.read_csv(vllm_folder / "points.csv")
    newer = points.assign(backend_version="0.20.0", output_tokens_per_s=1.5 * points["output_tokens_per_s"])
    pd.concat([points.assign(backend_version="0.19.1"), newer]).to_csv(vllm_folder / "points.csv", index=False)
    both = load_campaign(vllm_folder)
    old, new = (campaign_candidates(both, question(backend_version=v), "peak") for v in ("0.19.1", "0.20.0"))
    assert len({c.multiplied for c in old}) == 1
    assert new[0].multiplied == pytest.approx(1.5 * old[0].multiplied)
    with pytest.raises(errors.UsageError, match=r"several of the campaign's baselines \(0.19.1, 0.20.0\)"):
        campaign_candidates(both, question(backend_version="0.21.0"), "peak")


def test_where_the_limits_leave_pp_1_alone_it_is_the_answer(campaign, peak_set, matched_set):
    q = question(ttft_ms=35.0)
    made = choose_release(
        q, lambda m: campaign_candidates(campaign, q, m), [calib.Predictor(peak_set), calib.Predictor(matched_set)]
    )
    assert [c.candidate.name for c in made.choices] == ["TP8/PP1 x1"]


def test_a_file_that_answers_nothing_does_not_end_the_search(campaign, peak_set, matched_set):
    q = question("Qwen/Qwen3-14B")
    calls = []

    def candidates(matching):
        calls.append(matching)
        found = campaign_candidates(campaign, q, matching)
        return [c for c in found if c.pp > 1] if matching == "peak" else []

    made = choose_release(q, candidates, [calib.Predictor(matched_set), calib.Predictor(peak_set)])
    assert calls == ["matched", "peak"]
    assert {c.candidate.pp for c in made.choices} == {2, 4, 8}


def test_every_shape_of_a_number_of_gpus():
    assert set(gpu_layouts(4)) == {(4, 1, 1), (2, 1, 2), (1, 1, 4), (2, 2, 1), (1, 2, 2), (1, 4, 1)}
    assert list(gpu_layouts(1)) == [(1, 1, 1)]
    assert {t * p * r for t, p, r in gpu_layouts(12)} == {12}
    with pytest.raises(errors.UsageError, match="'gpus' = 0"):
        list(gpu_layouts(0))


# The engine, on a provider that needs no extra


@pytest.fixture(scope="module")
def engine():
    return IdealEngine(RooflineProvider("h200_sxm"), "vllm")


@pytest.fixture(scope="module")
def model_predictor(matched_set):
    """The matched set as if it had been fitted for the model's own throughput."""
    filled = tuple(msgspec.structs.replace(b, fill=1.0) for b in matched_set.balance_factors)
    content = {"reference": "model", "fill_rule": "occupancy", "balance_factors": filled}
    return calib.Predictor(msgspec.structs.replace(matched_set, **content).sealed())


POINT = EnginePoint(MODELS[1], "h200_sxm", "vllm", 2, 4, 4000, 1000, 32)


def test_the_engine_multiplies_ideal_balance_occupancy_and_residual(engine, model_predictor):
    made = engine.predict(model_predictor, POINT, backend_version="0.19.1", allow_refused=[POINT.model])
    c = next(c for c in model_predictor.coefficients.coefficients if c.model == POINT.model)
    s, u = c.estimate.values
    residual = 1 - (s + u * 5) * 2
    expected = made.ideal.throughput * made.ideal.balance_factor * made.ideal.occupancy * residual
    assert made.throughput.value[0] == pytest.approx(expected, rel=1e-12)
    row = made.row()
    assert row["predicted_output_tokens_per_s_per_gpu"] == pytest.approx(expected / 8)
    assert row["latency_flag"] == "not calibrated"
    assert row["calib_applied"] == model_predictor.coefficients.digest


def test_concurrency_is_a_target_and_no_product_of_batch_and_pp(engine):
    """30 requests over 4 stages: microbatches of 8, and the throughput of 30 requests, not of 32."""
    ideal, whole = (engine.ideal(dataclasses.replace(POINT, concurrency=c)) for c in (30, 32))
    assert ideal.microbatch == whole.microbatch == 8
    assert ideal.throughput < whole.throughput
    starved = engine.ideal(dataclasses.replace(POINT, concurrency=1))
    assert starved.microbatch == 1
    assert starved.occupancy < 0.4  # one request passes four stages one after another


def test_at_pp_1_tpot_and_throughput_are_two_sides_of_the_closed_loop(engine):
    ideal = engine.ideal(dataclasses.replace(POINT, tp=8, pp=1, concurrency=16))
    assert ideal.throughput == pytest.approx(1000 * 16 / ideal.latency.tpot_ms)
    assert (ideal.balance_factor, ideal.occupancy) == (1.0, 1.0)


def test_latency_follows_the_traversal_and_not_the_cycle(engine):
    """More stages do not make one request's token come sooner: the same work, and the links on top."""
    tp1 = [engine.ideal(dataclasses.replace(POINT, tp=1, pp=pp, concurrency=pp)).latency.tpot_ms for pp in (1, 2, 4, 8)]
    assert tp1 == sorted(tp1)


def test_a_baseline_coefficient_on_the_models_own_throughput_is_an_error(engine, peak_set):
    with pytest.raises(errors.ReferenceMismatchError, match=r"'reference' = 'model'.*--reference model"):
        engine.predict(calib.Predictor(peak_set), POINT, backend_version="0.19.1")
    require_reference(calib.Predictor(peak_set), "baseline")


def test_the_engine_without_correction_is_the_ideal(engine, model_predictor):
    made = engine.predict(model_predictor, POINT, backend_version="0.19.1", correction="off")
    assert made.throughput.value[0] == made.ideal.throughput
    assert made.row()["calib_applied"] == "none"


def test_the_engine_searches_every_shape_and_concurrency(engine, model_predictor):
    q = question()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = engine.candidates(POINT, 8, [4, 8])
    assert {(c.tp, c.pp, c.replicas) for c in found} == {s for s in gpu_layouts(8) if s[2] <= 8}
    assert all(c.concurrency % c.replicas == 0 for c in found)
    made = recommend(q, found, model_predictor, allow_refused=[q.model], extrapolate=True)
    assert "no interval holds the error of the model's own PP=1 prediction" in made.describe()
    assert {c.flag for c in made.choices if c.candidate.tp * c.candidate.pp < 8 and c.candidate.pp > 1} <= {
        "extrapolated", "refused",
    }  # fmt: skip


def test_a_candidate_knows_its_name():
    assert Candidate(4, 2, 3, 8, 1.0).name == "TP4/PP2 x3"
