"""trtllm-bench reports: a fixture made after the schema, with values written down by hand."""

from __future__ import annotations

import json

import pytest
from support.paths import DATA

from calib.errors import UnknownTopologyError
from calib.measure.readers.trtllm_bench import is_trtllm_bench, parse_trtllm_bench

FILES = DATA / "readers"


@pytest.fixture
def report():
    return json.loads((FILES / "trtllm_report.json").read_text(encoding="utf-8"))


def parse(document):
    assert is_trtllm_bench(document)
    (run,) = parse_trtllm_bench(document, file="r.json", digest="d")
    return run


def test_a_report_describes_its_deployment(report):
    run = parse(report)
    assert run.stated == {
        "tool": "trtllm-bench", "tool_version": "1.2.0rc2", "model": "Qwen/Qwen3-32B", "precision": "fp8",
        "backend": "trtllm", "backend_version": "1.2.0rc2", "tp": 4, "pp": 2, "gpus": 8, "output_tokens_per_s": 4000.0,
        "requests_per_s": 7.8125, "ttft_p50_ms": 250.0, "itl_p50_ms": 13.0, "tpot_mean_ms": 13.5, "duration_s": 81.92,
    }  # fmt: skip
    facts = dict(run.facts)
    unmapped = facts.pop("unmapped")
    assert facts == {
        "requested_requests": 640, "effective_concurrency": 57.25, "measured_isl": 1024.0, "measured_osl": 512.0,
        "gpu": "NVIDIA H200", "streaming": True, "inter_token_ms": 13.5,
    }  # fmt: skip
    assert [u.split(":")[0] for u in unmapped] == ["concurrency", "completed_requests"]


def test_the_average_concurrency_is_not_the_setting(report):
    assert "concurrency" not in parse(report).stated


def test_a_report_without_streaming_has_no_latencies(report):
    del report["streaming_metrics"]
    run = parse(report)
    assert not {"ttft_p50_ms", "itl_p50_ms", "tpot_mean_ms"} & run.stated.keys()
    assert run.facts["streaming"] is False


def test_percentiles_in_nanoseconds_are_not_taken_for_milliseconds(report):
    report["streaming_metrics"]["ttft_percentiles"]["p50"] = 2.5e8
    run = parse(report)
    assert "ttft_p50_ms" not in run.stated
    assert any(u.startswith("ttft_p50_ms: ttft_percentiles.p50 = 2.5e+08") for u in run.facts["unmapped"])


def test_the_inter_token_percentiles_of_older_reports_are_not_used(report):
    streaming = report["streaming_metrics"]
    streaming["itl_percentiles"] = streaming.pop("tpot_percentiles")
    assert "itl_p50_ms" not in parse(report).stated


@pytest.mark.parametrize("key", ["tp_size", "pp_size", "world_size"])
def test_a_missing_degree_is_unknown_and_a_wrong_one_an_error(report, key):
    column = {"tp_size": "tp", "pp_size": "pp", "world_size": "gpus"}[key]
    report["world_info"][key] = None
    assert column not in parse(report).stated
    report["world_info"][key] = "auto"
    with pytest.raises(UnknownTopologyError, match=f"field '{key}' = 'auto'"):
        parse(report)
