"""SGLang's bench_serving: values written down by hand from the samples and from a fixture with ``server_info``."""

from __future__ import annotations

import json

import pytest
from support.paths import DATA

from calib.errors import UnknownTopologyError
from calib.measure.readers.formats import read_file
from calib.measure.readers.read_run import UnreadableRun
from calib.measure.readers.sglang_bench import is_sglang_bench, parse_sglang_bench

FILES = DATA / "readers"


@pytest.fixture
def line():
    return json.loads((FILES / "sglang_server_info.jsonl").read_text(encoding="utf-8").splitlines()[0])


def parse(document):
    assert is_sglang_bench(document)
    (run,) = parse_sglang_bench(document, file="r.jsonl", digest="d")
    return run


def test_the_sample_with_two_appended_runs(shared):
    folder = shared / "samples" / "other" / "sglang_0.5.23"
    first, second = read_file(folder / "appended_two_runs.jsonl", root=folder)
    assert (first.source_row, second.source_row) == (1, 2)
    assert first.stated == {
        "tool": "sglang-bench", "isl": 100, "osl": 20, "concurrency": 1, "output_tokens_per_s": 151.73148612992108,
        "requests_per_s": 7.586574306496054, "ttft_p50_ms": 27.966203000005407, "itl_p50_ms": 5.381770552635078,
        "tpot_mean_ms": 5.369662815793849, "completed_requests": 6, "duration_s": 0.7908707880001202,
    }  # fmt: skip
    assert first.facts == {
        "load_type": "concurrency", "concurrency_is_cap": False, "measured_isl": 100.0, "measured_osl": 20.0,
        "effective_concurrency": 0.9870110539469835, "inter_chunk_ms": 5.367135815791507,
        "inter_token_ms": 5.369662815793849,
    }  # fmt: skip
    assert (second.stated["concurrency"], second.stated["output_tokens_per_s"]) == (2, 286.5117529770602)
    assert (second.stated["ttft_p50_ms"], second.stated["itl_p50_ms"]) == (29.456600999992588, 5.643486710524533)


def test_the_sample_with_details_shows_the_failed_requests(shared):
    folder = shared / "samples" / "other" / "sglang_0.5.23"
    (run,) = read_file(folder / "partial_errors_details.jsonl", root=folder)
    assert (run.stated["completed_requests"], run.stated["failed_requests"]) == (9, 3)
    assert run.facts["requested_requests"] == 12
    assert run.stated["output_tokens_per_s"] == 441.5497327069392
    assert run.stated["ttft_p50_ms"] == pytest.approx(28.95258400030798)  # three TTFTs of 0 are not among the nine
    assert (run.stated["itl_p50_ms"], run.stated["tpot_mean_ms"]) == (5.3363386841977585, 5.354268660818906)
    assert (run.stated["concurrency"], run.facts["effective_concurrency"]) == (4, 2.8937403601582257)


def test_server_info_states_engine_version_and_topology(line):
    run = parse(line)
    assert run.stated == {
        "tool": "sglang-bench", "model": "Qwen/Qwen3-32B-FP8", "precision": "fp8", "backend": "sglang",
        "backend_version": "0.5.23", "tp": 4, "pp": 2, "dp": 1, "gpus": 8, "isl": 1024, "osl": 128, "concurrency": 32,
        "output_tokens_per_s": 368.64, "requests_per_s": 3.2, "ttft_p50_ms": 500.0, "itl_p50_ms": 30.0,
        "tpot_mean_ms": 31.0, "completed_requests": 320, "duration_s": 100.0,
    }  # fmt: skip
    assert (run.facts["measured_isl"], run.facts["measured_osl"]) == (921.0, 115.2)  # random_range_ratio 0.8
    assert run.facts["disaggregated"] is False


def test_attention_ranks_within_the_gpus_are_no_replicas():
    second = read_file(FILES / "sglang_server_info.jsonl", root=FILES)[1]
    assert (second.stated["tp"], second.stated["pp"], second.stated["gpus"]) == (4, 2, 8)
    assert "dp" not in second.stated
    assert second.facts["dp_attention"] == 4


def test_a_rate_leaves_the_concurrency_unknown():
    second = read_file(FILES / "sglang_server_info.jsonl", root=FILES)[1]
    assert "concurrency" not in second.stated
    assert (second.facts["load_type"], second.facts["concurrency_is_cap"]) == ("rate", True)


def test_without_server_info_the_engine_is_unknown_whatever_the_client_spoke(line):
    run = parse({**line, "server_info": None, "backend": "vllm"})
    assert not {"backend", "backend_version", "tp", "pp", "dp", "gpus", "model"} & run.stated.keys()


def test_a_server_that_does_not_say_pp_is_not_taken_for_pp_1(line):
    del line["server_info"]["pp_size"]
    run = parse(line)
    assert not {"pp", "gpus"} & run.stated.keys()


def test_a_server_with_an_impossible_pp_is_an_error(line):
    line["server_info"]["pp_size"] = 0
    with pytest.raises(UnknownTopologyError, match="field 'pp_size' = 0"):
        parse(line)


def test_lengths_of_another_data_set_are_not_those_of_the_random_one(line):
    run = parse({**line, "dataset_name": "sharegpt"})
    assert not {"isl", "osl"} & run.stated.keys()


def test_a_prefill_server_is_disaggregated(line):
    line["server_info"]["disaggregation_mode"] = "prefill"
    assert parse(line).facts["disaggregated"] is True


def test_more_successes_than_requests_cannot_be_read(line):
    assert isinstance(parse({**line, "input_lens": [1] * 10}), UnreadableRun)
