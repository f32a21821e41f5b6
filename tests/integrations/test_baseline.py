"""Is the model's pp = 1 prediction good enough to hang a PP coefficient on?"""

from __future__ import annotations

import pytest

from calib import load_campaign
from calib.errors import NothingToFitError, UsageError
from calib.integrations.baseline import qualify_baseline


@pytest.fixture(scope="module")
def vllm():
    return qualify_baseline(load_campaign("h200-vllm-pp"))


def test_every_pp_1_run_is_held_against_its_prediction(vllm):
    assert len(vllm.points) == 26
    assert vllm.missing == ()
    assert {p.tp for p in vllm.points} == {8}


def test_the_prediction_is_the_closed_loop_of_decode_and_mixed_steps(vllm):
    campaign = load_campaign("h200-vllm-pp")
    where = {"tp": 8, "pp": 1, "isl": 4000, "osl": 1000, "concurrency": 64}
    decode, mixed = (
        sum(campaign.breakdowns.find("Qwen/Qwen3-8B", "vllm", kind=k, **where).ops_ms.values())
        for k in ("decode", "mixed")
    )
    point = next(p for p in vllm.points if (p.model, p.concurrency) == ("Qwen/Qwen3-8B", 64))
    assert point.predicted == pytest.approx(1000 * 64 * 1000 / (936 * decode + 64 * mixed), rel=1e-12)
    assert point.measured == 10208.526
    assert point.error_pct == pytest.approx(100 * (point.predicted / 10208.526 - 1))


def test_the_fp8_model_is_a_third_of_its_measurement(vllm):
    """Known of the tables of aiconfigurator-core 0.12.0: its own pp = 1 prediction fails long before any PP."""
    errors = [p.error_pct for p in vllm.points if p.model == "Qwen/Qwen3-32B-FP8"]
    assert all(-75 < e < -55 for e in errors)
    assert not vllm.passes("Qwen/Qwen3-32B-FP8", "vllm")
    assert "outside -15 to +15 %" in vllm.warnings()[("Qwen/Qwen3-32B-FP8", "vllm")]


def test_the_band_can_be_set_and_must_not_be_empty():
    wide = qualify_baseline(load_campaign("h200-vllm-pp"), band_pct=(-20.0, 45.0))
    assert {m for m, _ in wide.warnings()} == {"Qwen/Qwen3-32B-FP8"}
    assert wide.passes("Qwen/Qwen3-8B", "vllm")
    assert not wide.passes("nobody", "vllm")
    with pytest.raises(UsageError, match="is empty"):
        qualify_baseline(load_campaign("h200-vllm-pp"), band_pct=(1.0, 1.0))


def test_published_ratios_have_no_baseline_to_qualify():
    with pytest.raises(NothingToFitError, match="no pp = 1 throughput"):
        qualify_baseline(load_campaign("h20-trtllm-pp"))


def test_on_the_command_line(cli):
    done = cli("baseline")
    assert done.code == 0
    assert "Qwen/Qwen3-32B-FP8 on vllm: the pp = 1 prediction is off by -69 to -61 %" in done.out
    done = cli("baseline", "--gate")
    assert done.code == 1
    assert "4 models fail" in done.err
    assert cli("baseline", "h20-trtllm-pp").code == 3
    assert cli("baseline", "--low", "5", "--high", "1").code == 2
