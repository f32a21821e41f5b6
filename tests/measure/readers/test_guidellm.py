"""guidellm reports: values written down by hand from the sample, and from fixtures made after each version's schema."""

from __future__ import annotations

import copy
import json

import pytest
from support.paths import DATA

from calib.errors import UnknownTopologyError
from calib.measure.readers.formats import read_file
from calib.measure.readers.guidellm import is_guidellm, parse_guidellm
from calib.measure.readers.read_run import ReadRun, UnreadableRun

FILES = DATA / "readers"


def fixture(name):
    return json.loads((FILES / name).read_text(encoding="utf-8"))


def parse(document):
    assert is_guidellm(document)
    return parse_guidellm(document, file="r.json", digest="d")


def test_the_sample_of_0_8(shared):
    folder = shared / "samples" / "other" / "guidellm_0.8.1"
    (run,) = read_file(folder / "benchmarks.json", root=folder)
    assert isinstance(run, ReadRun)
    assert (run.source_file, run.source_row) == ("benchmarks.json", 0)
    assert run.stated == {
        "tool": "guidellm", "tool_version": "0.8.1", "model": "Qwen/Qwen3-8B", "isl": 100, "osl": 20, "concurrency": 4,
        "output_tokens_per_s": 379.18973230317516, "requests_per_s": 18.959486615158756,
        "ttft_p50_ms": 31.972885131835938, "itl_p50_ms": 5.646329177053351, "tpot_mean_ms": 5.761463042588262,
        "completed_requests": 9, "failed_requests": 3, "duration_s": 0.47469639778137207,
    }  # fmt: skip
    assert run.stated["output_tokens_per_s"] == pytest.approx(180 / 0.47469639778137207, rel=1e-12)
    assert run.facts == {
        "load_type": "concurrency", "concurrency_is_cap": False, "requested_requests": 12, "incomplete_requests": 0,
        "measured_isl": 100.0, "measured_osl": 20.0, "effective_concurrency": 2.8186267246804526, "streaming": True,
        "inter_token_ms": 5.761463042588262, "start_time": "2026-11-30T18:38:45.343161Z",
    }  # fmt: skip


def test_one_report_of_0_3_holds_one_run_per_load_level():
    first, second = parse(fixture("guidellm_0.3.json"))
    assert [(r.source_row, r.stated["concurrency"]) for r in (first, second)] == [(1, 2), (2, 8)]
    assert second.stated == {
        "tool": "guidellm", "model": "Qwen/Qwen3-8B", "isl": 128, "osl": 64, "concurrency": 8,
        "output_tokens_per_s": 480.0, "requests_per_s": 7.5, "ttft_p50_ms": 38.0, "itl_p50_ms": 9.5, "tpot_mean_ms": 10.0,
        "completed_requests": 80, "failed_requests": 0, "duration_s": 50.0,
    }  # fmt: skip
    assert second.facts["requested_requests"] == 80
    assert second.facts["start_time"] == "2023-11-14T22:13:20Z"


@pytest.mark.parametrize(
    "trim",
    [{"warmup_number": 5}, {"warmup": 0.1}, {"cooldown": {"percent": 0.1, "value": None}}, {"cooldown_duration": 2.0}],
)
def test_with_a_warm_up_the_requests_asked_for_are_not_those_counted(trim):
    document = fixture("guidellm_0.3.json")
    document["benchmarks"][0]["args"] |= trim
    document["benchmarks"][1]["args"] |= {"warmup_number": None, "warmup": {"percent": None, "value": None}}
    first, second = parse(document)
    assert "requested_requests" not in first.facts
    assert second.facts["requested_requests"] == 80


def test_requests_cut_off_by_the_end_of_a_0_4_benchmark_are_counted_apart():
    (run,) = parse(fixture("guidellm_0.4.json"))
    assert (run.stated["completed_requests"], run.stated["failed_requests"]) == (90, 6)
    assert run.facts["incomplete_requests"] == 4
    assert "requested_requests" not in run.facts  # limited by time
    assert (run.stated["model"], run.stated["isl"], run.stated["osl"]) == ("Qwen/Qwen3-14B", 128, 64)
    assert "tool_version" not in run.stated


def test_only_the_closed_loops_of_a_sweep_have_a_concurrency():
    runs = parse(fixture("guidellm_0.5_sweep.json"))
    assert [r.stated.get("concurrency") for r in runs] == [1, None, None, None]
    assert [r.facts["load_type"] for r in runs] == ["concurrency", "unlimited", "rate", "rate"]
    assert [r.facts["concurrency_is_cap"] for r in runs] == [False, True, True, False]
    assert {r.stated["tool_version"] for r in runs} == {"0.5.4"}


def test_tpot_is_never_the_field_that_includes_ttft():
    document = fixture("guidellm_0.4.json")
    (before,) = parse(document)
    document["benchmarks"][0]["metrics"]["time_per_output_token_ms"]["successful"]["mean"] = 999.0
    assert parse(document) == [before]
    assert before.stated["tpot_mean_ms"] == 12.0


def test_zeros_of_failed_requests_are_not_averaged_in():
    # issue 444: {"successful": {"mean": 32.2}, "total": {"mean": 24.1}}
    document = fixture("guidellm_0.4.json")
    document["benchmarks"][0]["metrics"]["time_to_first_token_ms"] = {
        "successful": {"median": 32.2},
        "total": {"median": 24.1},
    }
    (run,) = parse(document)
    assert run.stated["ttft_p50_ms"] == 32.2


def test_a_negative_latency_is_kept_for_the_screening_to_see():
    # issue 216: epoch minus None
    document = fixture("guidellm_0.4.json")
    document["benchmarks"][0]["metrics"]["time_to_first_token_ms"]["successful"]["median"] = -1.7e12
    (run,) = parse(document)
    assert run.stated["ttft_p50_ms"] == -1.7e12


def test_labels_state_the_topology_as_text(shared):
    document = json.loads((shared / "samples/other/guidellm_0.8.1/benchmarks.json").read_text(encoding="utf-8"))
    document["config"]["metadata"]["labels"] = {"tp": "4", "pp": "2", "note": "night"}
    (run,) = parse(document)
    assert (run.stated["tp"], run.stated["pp"]) == (4, 2)
    document["config"]["metadata"]["labels"] = {"pp": "auto"}
    with pytest.raises(UnknownTopologyError, match="field 'pp' = 'auto': is not a positive whole number"):
        parse(document)


def test_a_benchmark_that_cannot_be_read_does_not_take_the_others_with_it():
    document = fixture("guidellm_0.3.json")
    document["benchmarks"].insert(1, copy.deepcopy(document["benchmarks"][0]))
    document["benchmarks"][1]["metrics"]["inter_token_latency_ms"]["successful"]["median"] = "fast"
    first, broken, last = parse(document)
    assert broken == UnreadableRun("r.json", 2, "field 'median' = 'fast' is not a number")
    assert (first.source_row, last.source_row) == (1, 3)


def test_a_report_without_a_benchmark_is_a_failed_run():
    (found,) = parse({"metadata": {"version": 2, "guidellm_version": "0.8.1"}, "benchmarks": []})
    assert isinstance(found, UnreadableRun)
    assert "without a benchmark" in found.reason


@pytest.mark.parametrize(
    "data",
    [
        ["prompt_tokens=128,output_tokens=64"],
        "prompt_tokens=128, output_tokens=64",
        '{"prompt_tokens": 128, "output_tokens": 64}',
        [{"kind": "synthetic_text", "prompt_tokens": 128, "output_tokens": 64}],
    ],
)
def test_asked_lengths_are_read_in_every_form(data):
    document = fixture("guidellm_0.4.json")
    document["args"]["data"] = data
    (run,) = parse(document)
    assert (run.stated["isl"], run.stated["osl"]) == (128, 64)


@pytest.mark.parametrize("data", ["hf/dataset", [], ["a=1", "b=2"], None, 7, "prompt_tokens=x", "[" * 5000])
def test_asked_lengths_are_unknown_where_the_file_has_none(data):
    document = fixture("guidellm_0.4.json")
    document["args"]["data"] = data
    (run,) = parse(document)
    assert "isl" not in run.stated
    assert "osl" not in run.stated
