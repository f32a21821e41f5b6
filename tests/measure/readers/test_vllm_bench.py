"""``vllm bench serve``, sweeps, the InferenceX fork and its aggregates: values written down by hand."""

from __future__ import annotations

import json

import pytest
from support.paths import DATA

from calib.errors import ContradictionError, UnknownTopologyError
from calib.measure.readers.formats import read_file
from calib.measure.readers.read_run import ReadRun, UnreadableRun
from calib.measure.readers.vllm_bench import is_vllm_bench, parse_vllm_bench

FILES = DATA / "readers"


def fixture(name):
    return json.loads((FILES / name).read_text(encoding="utf-8"))


def parse(document):
    (run,) = parse_vllm_bench(document, file="r.json", digest="d")
    return run


def test_the_sample_of_the_inferencex_fork(shared):
    folder = shared / "samples" / "other" / "vllm_bench_serve_inferencex_fork"
    (run,) = read_file(folder / "qwen3-8b_tp4pp2_conc4.json", root=folder)
    assert isinstance(run, ReadRun)
    assert run.stated == {
        "tool": "vllm-bench", "model": "Qwen/Qwen3-8B", "tp": 4, "pp": 2, "concurrency": 4,
        "output_tokens_per_s": 526.5828501231156, "requests_per_s": 26.32914250615578, "ttft_p50_ms": 33.462649000057354,
        "itl_p50_ms": 5.501715052631832, "tpot_mean_ms": 5.422104350877658, "completed_requests": 12,
        "failed_requests": 0, "duration_s": 0.4557687360002092,
    }  # fmt: skip
    assert run.facts == {
        "load_type": "concurrency", "concurrency_is_cap": False, "requested_requests": 12, "measured_isl": 100.0,
        "measured_osl": 20.0, "inter_chunk_ms": 5.420888706142155, "inter_token_ms": 5.422104350877658, "gpu": "H100",
        "start_time": "2026-11-30T18:53:29.239861Z",
    }  # fmt: skip


def test_a_file_with_the_old_keys_counts_the_failed_requests_by_what_is_missing():
    document = fixture("vllm_old.json")
    assert is_vllm_bench(document)
    run = parse(document)
    assert (run.stated["completed_requests"], run.stated["failed_requests"]) == (98, 2)
    assert run.facts["start_time"] == "2025-03-14T15:09:26"  # local time: no zone
    assert (run.facts["measured_isl"], run.facts["measured_osl"]) == (1024.0, 128.0)
    assert not {"isl", "osl", "backend", "tp", "pp"} & run.stated.keys()


def test_a_file_with_the_new_keys_states_them_and_its_client_is_not_the_engine():
    run = parse(fixture("vllm_new.json"))
    assert (run.stated["completed_requests"], run.stated["failed_requests"]) == (97, 3)
    assert run.stated["output_tokens_per_s"] == 248.32  # and not max_output_tokens_per_s, which counts chunks
    assert "backend" not in run.stated


def test_gaps_between_chunks_are_a_fact_and_not_the_inter_token_latency():
    run = parse(fixture("vllm_new.json"))
    assert (run.stated["itl_p50_ms"], run.stated["tpot_mean_ms"]) == (20.0, 21.0)
    assert (run.facts["inter_chunk_ms"], run.facts["inter_token_ms"]) == (42.0, 21.0)
    only_gaps = {k: v for k, v in fixture("vllm_new.json").items() if "tpot" not in k}
    run = parse(only_gaps)
    assert "itl_p50_ms" not in run.stated
    assert "gaps between chunks" in run.facts["unmapped"][0]


def test_appended_results_are_as_many_runs():
    runs = read_file(FILES / "vllm_append.json", root=FILES)
    assert [(r.source_row, r.stated["concurrency"]) for r in runs] == [(1, 4), (2, 8)]


def test_a_sweep_states_its_topology_and_the_copies_beside_it_are_no_runs():
    found = [r for p in sorted((FILES / "vllm_sweep").iterdir()) for r in read_file(p, root=FILES)]
    (run,) = found
    assert run.source_file == "vllm_sweep/run=0.json"
    assert {k: run.stated[k] for k in ("tp", "pp", "isl", "osl")} == {"tp": 4, "pp": 2, "isl": 1024, "osl": 128}


@pytest.mark.parametrize("more", [{"run_number": 1, "bench_overrides": {"max_concurrency": 8}}, {}])
def test_a_failed_run_or_server_of_a_sweep_is_reported(more):
    document = {
        "error_type": "CalledProcessError",
        "error": "x",
        "serve_overrides": {"pipeline_parallel_size": 8},
        **more,
    }
    assert is_vllm_bench(document)
    found = parse(document)
    assert found == UnreadableRun("r.json", 0, "is a run of a sweep that failed (CalledProcessError)")


def test_a_warm_up_is_known_by_its_number_too():
    document = {**fixture("vllm_sweep/run=0.json"), "run_number": -1}
    assert parse_vllm_bench(document, file="renamed.json", digest="d") == []


def test_a_sweep_may_spell_its_options_with_dashes():
    document = fixture("vllm_sweep/run=0.json")
    document["pipeline-parallel-size"] = document.pop("pipeline_parallel_size")
    document["random-input-len"] = document.pop("random_input_len")
    run = parse(document)
    assert (run.stated["pp"], run.stated["isl"]) == (2, 1024)


def test_metadata_that_is_only_shown_may_be_anything():
    run = parse({**fixture("vllm_new.json"), "gpu": 8, "date": 3})
    assert not {"gpu", "start_time"} & run.facts.keys()


@pytest.mark.parametrize("value", ["4.0", "", "auto", "0", "-2", " 4", "٤", 4.0, True, 0, [4], {}, 10**50])
def test_a_degree_that_is_no_whole_number_is_an_error_and_never_1(value):
    with pytest.raises(UnknownTopologyError, match=r"field 'pp'.*is not a positive whole number"):
        parse({**fixture("vllm_new.json"), "tp": "4", "pp": value})


def test_degrees_under_two_names_must_agree():
    document = {**fixture("vllm_sweep/run=0.json"), "tp": "8"}
    with pytest.raises(ContradictionError, match="which says tp = 8"):
        parse(document)
    assert parse({**document, "tp": "4"}).stated["tp"] == 4


def test_a_rate_leaves_the_concurrency_unknown():
    run = parse({**fixture("vllm_new.json"), "request_rate": 5.0})
    assert "concurrency" not in run.stated
    assert (run.facts["load_type"], run.facts["concurrency_is_cap"]) == ("rate", True)
    run = parse({**fixture("vllm_new.json"), "max_concurrency": None})
    assert "concurrency" not in run.stated
    assert run.facts["load_type"] == "unlimited"
    run = parse({k: v for k, v in fixture("vllm_new.json").items() if k != "request_rate"})
    assert "concurrency" not in run.stated
    assert "load_type" not in run.facts


def test_latencies_of_0_are_unknown():
    zeros = {f"{s}_{m}_ms": 0.0 for s in ("mean", "median") for m in ("ttft", "itl")}
    run = parse({**fixture("vllm_new.json"), **zeros})
    assert not {"ttft_p50_ms", "itl_p50_ms", "tpot_mean_ms"} & run.stated.keys()
    assert run.facts["streaming"] is False
    assert len(run.facts["unmapped"]) == 3
    nothing = parse({**fixture("vllm_new.json"), **zeros, "completed": 0, "output_throughput": 0.0})
    assert "output_tokens_per_s" not in nothing.stated
    assert "streaming" not in nothing.facts


def test_zeros_of_failed_requests_are_left_out_of_the_median():
    # pull requests 5895 and 14795
    run = parse(
        {"completed": 2, "ttfts": [0.05, 0.0], "output_lens": [20, 0], "mean_ttft_ms": 25, "median_ttft_ms": 25}
    )
    assert run.stated["ttft_p50_ms"] == 50.0


def test_a_throughput_that_its_own_tokens_contradict_is_refused():
    run = parse({**fixture("vllm_new.json"), "output_throughput": 500.0})
    assert "output_tokens_per_s" not in run.stated
    assert run.facts["unmapped"] == ("output_tokens_per_s: the tool says 500, and 12416 tokens in 50 s are 248.32",)


def test_more_answers_than_questions_cannot_be_read():
    found = parse({**fixture("vllm_old.json"), "completed": 101})
    assert found == UnreadableRun("r.json", 0, "field 'completed' = 101 is more than num_prompts = 100")


def test_an_inferencex_aggregate_is_in_seconds_and_per_gpu():
    document = fixture("agg_dsr1_h200.json")
    assert is_vllm_bench(document)
    run = parse(document)
    assert run.stated == {
        "tool": "inferencex", "model": "deepseek-ai/DeepSeek-R1-0528", "precision": "fp8", "backend": "sglang",
        "backend_version": "0.5.5", "tp": 4, "pp": 2, "gpus": 8, "isl": 1024, "osl": 1024, "concurrency": 64,
        "output_tokens_per_s": 8000.0, "ttft_p50_ms": 400.0, "itl_p50_ms": 12.0, "tpot_mean_ms": 12.5,
    }  # fmt: skip
    assert run.facts == {"disaggregated": False, "gpu": "h200", "inter_chunk_ms": 13.0, "inter_token_ms": 12.5}


def test_tokens_per_gpu_that_count_the_input_are_no_output():
    document = fixture("agg_dsr1_h200.json")
    del document["output_tput_per_gpu"]
    assert is_vllm_bench(document)
    run = parse(document)
    assert "output_tokens_per_s" not in run.stated
    assert run.facts["unmapped"] == ("output_tokens_per_s: tput_per_gpu counts input tokens too",)


def test_an_aggregate_without_pp_is_not_taken_for_pp_1():
    document = fixture("agg_dsr1_h200.json")
    del document["pp"]
    run = parse(document)
    assert not {"pp", "gpus", "output_tokens_per_s"} & run.stated.keys()
    assert "tp or pp is not stated" in run.facts["unmapped"][0]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"disagg": True, "num_prefill_gpu": 8, "num_decode_gpu": 8, "output_tput_per_gpu": 500}, "disagg"),
        ({"is_multinode": True, "num_prefill_gpu": 8, "num_decode_gpu": 8}, "num_decode_gpu"),
        ({"pcp_size": 2}, "pcp_size"),
    ],
)
def test_aggregates_whose_gpus_tp_and_pp_do_not_describe_are_refused(change, field):
    found = parse({**fixture("agg_dsr1_h200.json"), **change})
    assert isinstance(found, UnreadableRun)
    assert f"field '{field}'" in found.reason


@pytest.mark.parametrize(
    ("image", "version"),
    [
        ("vllm/vllm-openai:v0.11.0", "0.11.0"),
        ("nvcr.io/nvidia/tensorrt-llm/release:1.2.0rc2", "1.2.0rc2"),
        ("lmsysorg/sglang:v0.5.5.post1-cu129-amd64", "0.5.5.post1"),
        ("vllm/vllm-openai:latest", None),
        ("rocm/vllm:nightly_0.11.0", None),
    ],
)
def test_the_version_is_the_tag_of_the_image(image, version):
    assert parse({**fixture("agg_dsr1_h200.json"), "image": image}).stated.get("backend_version") == version
