"""genai-perf summaries: fixtures made after the schema, with values written down by hand."""

from __future__ import annotations

import json

import pytest
from support.paths import DATA

from calib.measure.readers.formats import read_file
from calib.measure.readers.genai_perf import is_genai_perf, parse_genai_perf
from calib.measure.readers.read_run import UnreadableRun

FILES = DATA / "readers"


def fixture(name):
    return json.loads((FILES / name).read_text(encoding="utf-8"))


def parse(document):
    assert is_genai_perf(document)
    (run,) = parse_genai_perf(document, file="r.json", digest="d")
    return run


def test_a_summary_with_the_nested_configuration():
    run = parse(fixture("genai_perf_0.0.16.json"))
    assert run.stated == {
        "tool": "genai-perf", "model": "qwen3_8b", "backend": "trtllm", "isl": 550, "osl": 128, "concurrency": 8,
        "output_tokens_per_s": 640.0, "requests_per_s": 5.0, "ttft_p50_ms": 95.0, "itl_p50_ms": 9.75,
        "tpot_mean_ms": 10.0, "completed_requests": 160.0,
    }  # fmt: skip
    assert run.facts == {
        "load_type": "concurrency", "concurrency_is_cap": False, "measured_isl": 551.0, "measured_osl": 128.0,
        "streaming": True, "inter_token_ms": 10.0,
    }  # fmt: skip


def test_a_summary_with_the_flat_configuration():
    run = parse(fixture("genai_perf_flat.json"))
    assert run.stated == {
        "tool": "genai-perf", "model": "gpt2", "isl": 550, "concurrency": 8, "output_tokens_per_s": 640.0,
        "requests_per_s": 5.0, "ttft_p50_ms": 95.0, "itl_p50_ms": 9.75, "tpot_mean_ms": 10.0,
    }  # fmt: skip
    # The default backend of a Triton client stands there although the service is no Triton, and osl -1 means "not asked".


def test_a_bare_nan_is_unknown():
    (run,) = read_file(FILES / "genai_perf_flat_nan.json", root=FILES)
    assert run.stated["output_tokens_per_s"] == 640.0
    assert not {"ttft_p50_ms", "itl_p50_ms", "tpot_mean_ms"} & run.stated.keys()


def test_gaps_between_chunks_of_an_old_release_are_refused():
    document = fixture("genai_perf_flat.json")
    document["inter_token_latency"] |= {"avg": 40.0, "p50": 39.0}  # 127 * 40 ms is four times latency - TTFT
    run = parse(document)
    assert not {"itl_p50_ms", "tpot_mean_ms"} & run.stated.keys()
    assert "between chunks" in run.facts["unmapped"][0]
    assert (run.facts["inter_chunk_ms"], run.facts["inter_token_ms"]) == (40.0, 10.0)


def test_an_old_file_that_does_not_show_its_definition_is_refused_too():
    document = fixture("genai_perf_flat.json")
    del document["request_latency"]
    run = parse(document)
    assert not {"itl_p50_ms", "tpot_mean_ms"} & run.stated.keys()
    assert "does not show" in run.facts["unmapped"][0]


def test_a_request_rate_that_counts_empty_answers_is_refused():
    document = fixture("genai_perf_0.0.16.json")
    document["request_throughput"]["avg"] = 6.0
    run = parse(document)
    assert "requests_per_s" not in run.stated
    assert run.stated["output_tokens_per_s"] == 640.0
    assert "counts empty answers" in run.facts["unmapped"][0]


def test_a_rate_leaves_the_concurrency_unknown():
    document = fixture("genai_perf_0.0.16.json")
    document["input_config"]["perf_analyzer"]["stimulus"] = {"request_rate": 4.0}
    run = parse(document)
    assert "concurrency" not in run.stated
    assert run.facts["load_type"] == "rate"


def test_settings_written_as_lists_of_one():
    document = fixture("genai_perf_flat.json")
    document["input_config"] |= {"concurrency": [16], "model": "gpt2"}
    run = parse(document)
    assert (run.stated["concurrency"], run.stated["model"]) == (16, "gpt2")


def test_several_models_are_no_model():
    document = fixture("genai_perf_0.0.16.json")
    document["input_config"]["model_names"] = ["a", "b"]
    assert "model" not in parse(document).stated


def test_a_unit_that_is_another_is_refused():
    document = fixture("genai_perf_0.0.16.json")
    document["time_to_first_token"]["unit"] = "ns"
    assert parse(document) == UnreadableRun("r.json", 0, "field 'time_to_first_token.unit' = 'ns' is not ms")


@pytest.mark.parametrize("marker", ["aiperf_version", "schema_version", "benchmark_id", "records"])
def test_a_summary_of_its_successor_is_not_taken_for_one(marker):
    assert not is_genai_perf({**fixture("genai_perf_0.0.16.json"), marker: "x"})
