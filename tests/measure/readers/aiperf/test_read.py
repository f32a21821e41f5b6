"""aiperf's own output, one test or row per sample: every expected figure was copied from the sample's JSON by hand."""

from __future__ import annotations

import copy
import json
import os
import shutil

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from calib import load_campaign
from calib.errors import ContradictionError
from calib.measure.readers.aiperf.read import read_runs
from calib.measure.readers.aiperf.request_records import read_records
from calib.measure.readers.aiperf.summary import is_summary, parse_summary
from calib.measure.readers.read_run import ReadRun, UnreadableRun

SUMMARY = "profile_export_aiperf.json"
# Tokens and benchmark_duration [s] as they stand there, so that each throughput below is their quotient.
SINGLE = {
    "00_base_single_run": {
        "tokens": 240.0, "duration_s": 0.46665702400000003, "requests_per_s": 24.942356810403584,
        "ttft_p50_ms": 35.7262895, "itl_p50_ms": 5.641643526315789, "tpot_mean_ms": 5.599786513157894,
        "completed_requests": 12, "failed_requests": 0, "concurrency": 4, "tool_version": "0.13.0",
    },
    "ad_multi_phase": {
        "tokens": 440.0, "duration_s": 1.264187619, "requests_per_s": 17.402480193092288, "ttft_p50_ms": 32.211895999999996,
        "itl_p50_ms": 6.006129947368421, "tpot_mean_ms": 5.960875315789474, "completed_requests": 22, "failed_requests": 0,
    },
    "ah_user_files_sidecar": {
        "tokens": 160.0, "duration_s": 0.20529638400000003, "requests_per_s": 37.607280231668746,
        "ttft_p50_ms": 28.136749499999997, "itl_p50_ms": 3.391980289473684, "completed_requests": 8, "concurrency": 4,
    },
    "b_partial_errors": {
        "tokens": 260.0, "duration_s": 0.6523729920000001, "requests_per_s": 19.22530315855552, "ttft_p50_ms": 30.696209,
        "itl_p50_ms": 5.116313684210526, "completed_requests": 13, "failed_requests": 7,
    },
    "d_nonstreaming": {"tokens": 240.0, "duration_s": 0.339636736, "requests_per_s": 34.50419613723972},
    "e_sigint_midway": {
        "tokens": 240.0, "duration_s": 1.567321344, "requests_per_s": 7.656375028604217, "ttft_p50_ms": 106.076218,
        "itl_p50_ms": 21.425124999999998, "completed_requests": 12,
    },
    "f2_duration_grace0": {
        "tokens": 400.0, "duration_s": 2.6672547840000003, "requests_per_s": 6.6497749217100885,
        "ttft_p50_ms": 106.45283599999999, "completed_requests": 20,
    },
    "g_server_token_count": {
        "tokens": 200.0, "duration_s": 0.404763136, "requests_per_s": 24.046806127016545, "ttft_p50_ms": 35.2105325,
        "itl_p50_ms": 4.713251947368421, "completed_requests": 10,
    },
    "h_export_prefix": {
        "tokens": 160.0, "duration_s": 0.37907430400000003, "ttft_p50_ms": 57.773163, "itl_p50_ms": 5.021681236842105,
    },
    "i_warmup": {
        "tokens": 200.0, "duration_s": 0.347597568, "requests_per_s": 28.258833952400078, "ttft_p50_ms": 28.346062,
        "completed_requests": 10, "concurrency": 4,
    },
    "j2_request_rate_with_conc": {
        "tokens": 320.0, "duration_s": 1.683609088, "ttft_p50_ms": 52.747919499999995, "completed_requests": 16,
    },
    "m_chunked_tokens": {
        "tokens": 160.0, "duration_s": 0.268599552, "ttft_p50_ms": 60.109448, "itl_p50_ms": 2.615958736842105,
    },
    "n_early_eos": {
        "tokens": 142.0, "duration_s": 0.43032294400000004, "ttft_p50_ms": 35.2427875, "itl_p50_ms": 5.4848837, "osl": 20,
    },
    "old_aiperf_0.6.0": {
        "tokens": 160.0, "duration_s": 0.280925319, "requests_per_s": 28.477319269325097, "ttft_p50_ms": 28.903629,
        "itl_p50_ms": 5.419648657894736, "tpot_mean_ms": 5.417818342105263, "completed_requests": 8, "concurrency": 4,
        "tool_version": "0.6.0", "model": "Qwen/Qwen3-8B", "isl": 100, "osl": 20,
    },
    "p_tokenizer_mismatch": {
        "tokens": 960.0, "duration_s": 0.941352704, "ttft_p50_ms": 33.1138885, "completed_requests": 24,
    },
    "r_multi_url": {"tokens": 240.0, "duration_s": 0.43648230400000004, "ttft_p50_ms": 29.5438115},
    "s_gpu_telemetry": {
        "tokens": 800.0, "duration_s": 1.3940602880000001, "ttft_p50_ms": 28.953936499999998, "completed_requests": 40,
    },
}  # fmt: skip
FACTS = {
    "00_base_single_run": {
        "cancelled": False, "incomplete": False, "load_type": "concurrency", "profiling_phases": 1, "urls": 1,
        "requested_requests": 12, "effective_concurrency": 3.613649303423447, "measured_isl": 100.0, "measured_osl": 20.0,
        "osl_mismatch_count": 0.0, "usage_completion_count": 12, "usage_diff_pct": 0.0, "inter_chunk_ms": 5.599786513157895,
        "inter_token_ms": 5.599786513157894, "chunks_received": 20.166666666666668, "duration_limited": False,
        "warmup": False, "ready_marker": True, "client_delay_p99_ms": 14.7077376, "ttft_p99_ms": 50.273803279999996,
        "request_latency_p50_ms": 142.4381855, "streaming": True, "ignore_eos": False, "benchmark_id": "5f67f12d9e10",
        "start_time": "2026-11-30T18:12:36.083523", "random_prompts": True, "tool_output_tokens_per_s": 498.8471362080717,
        "cut_last_line": False, "throughput_method": "total_osl / benchmark_duration",
    },
    "ad_multi_phase": {"profiling_phases": 2, "requested_requests": 22, "effective_concurrency": 2.67153326731616},
    "b_partial_errors": {"requested_requests": 20, "effective_concurrency": 2.511605508494629},
    "d_nonstreaming": {"streaming": False, "chunks_received": 1.0, "request_latency_p50_ms": 96.2030195},
    "e_sigint_midway": {"cancelled": True, "incomplete": True, "requested_requests": 60, "ready_marker": True},
    "f2_duration_grace0": {
        "grace_period_s": 0.0, "duration_limited": True, "cancelled": False, "incomplete": False,
        "effective_concurrency": 3.47503983055565, "tool_output_tokens_per_s": 132.99549843420178,
    },
    "g_server_token_count": {"usage_completion_count": 10, "measured_osl": 20.0},
    "i_warmup": {"warmup": True, "profiling_phases": 1, "benchmark_id": "b387bd9b9d05", "requested_requests": 10},
    "j2_request_rate_with_conc": {"load_type": "poisson", "effective_concurrency": 2.3492852467512737},
    "m_chunked_tokens": {
        "inter_chunk_ms": 17.596162333333332, "inter_token_ms": 2.778341421052631, "chunks_received": 4.125,
    },
    "n_early_eos": {"osl_mismatch_count": 7.0, "measured_osl": 11.833333333333334, "ignore_eos": False},
    "old_aiperf_0.6.0": {
        "load_type": "concurrency", "requested_requests": 8, "warmup": True, "urls": 1, "random_prompts": True,
        "usage_completion_count": 8,  # the lines of the per-request file: the blocks of 0.6 have no count
        "benchmark_id": "ce713fcd-6a74-41a8-aa48-3982444b4ab3", "inter_chunk_ms": 5.417818342105263,
    },
    "p_tokenizer_mismatch": {"usage_diff_pct": 50.0, "measured_osl": 40.0, "osl_mismatch_count": 24.0},
    "r_multi_url": {"urls": 2},
    "s_gpu_telemetry": {"client_delay_p99_ms": 12.691525119999998, "ttft_p99_ms": 45.63263619999999},
}  # fmt: skip


def sample(shared, case):
    return shared / "samples" / "aiperf" / case


def read(shared, case):
    folder = sample(shared, case)
    return read_runs(folder, root=folder)


@pytest.mark.parametrize("case", sorted(SINGLE))
def test_a_single_run(shared, case):
    (run,) = read(shared, case)
    expected = dict(SINGLE[case])
    assert run.source_file == ("qwen3_8b_tp4pp2.json" if case == "h_export_prefix" else SUMMARY)
    assert run.stated["output_tokens_per_s"] == expected.pop("tokens") / expected["duration_s"]
    assert {name: run.stated[name] for name in expected} == expected
    assert run.stated["tool"] == "aiperf"


@pytest.mark.parametrize("case", sorted(FACTS))
def test_facts_for_the_screening_rules(shared, case):
    (run,) = read(shared, case)
    assert {name: run.facts.get(name) for name in FACTS[case]} == FACTS[case]


def test_a_fact_that_is_not_known_is_absent(shared):
    (base,) = read(shared, "00_base_single_run")
    assert "grace_period_s" not in base.facts  # the default, whatever it is
    (old,) = read(shared, "old_aiperf_0.6.0")
    assert {"effective_concurrency", "client_delay_p99_ms", "ready_marker", "grace_period_s"}.isdisjoint(old.facts)
    (server,) = read(shared, "g_server_token_count")
    assert "usage_diff_pct" not in server.facts


def test_every_sample_is_read_in_a_test_here(shared):
    others = {
        "a_multirun_sweep", "ac_rate_sweep", "ae_sweep_one_cell_fails", "c_all_fail", "old_aiperf_0.1.1_ok",
        "old_aiperf_0.8.0_sweep", "w_multirun_nosweep",
    }  # fmt: skip
    assert {p.name for p in sample(shared, "").iterdir() if p.is_dir()} == set(SINGLE) | others


def test_version_0_1_nests_its_metrics_and_knows_neither_tokens_nor_duration(shared):
    (run,) = read(shared, "old_aiperf_0.1.1_ok")
    # 20 tokens x 8 requests in the 8 / 27.95376976205293 s that they took
    assert run.stated["output_tokens_per_s"] == pytest.approx(20.0 * 27.95376976205293, rel=1e-12)
    assert "request_throughput" in run.facts["throughput_method"]
    assert run.facts["tool_output_tokens_per_s"] == 559.0753952410586
    expected = {
        "model": "Qwen/Qwen3-8B", "isl": 100, "osl": 20, "concurrency": 4, "ttft_p50_ms": 29.459555499999997,
        "itl_p50_ms": 5.496292157894736, "tpot_mean_ms": 5.500500578947369, "completed_requests": 8, "failed_requests": 0,
    }  # fmt: skip
    assert {name: run.stated[name] for name in expected} == expected
    assert {"tool_version", "duration_s"}.isdisjoint(run.stated)
    assert run.facts["warmup"] is True
    assert run.facts["urls"] == 1


def test_a_unit_of_version_0_1_is_checked_too(shared):
    document = json.loads((sample(shared, "old_aiperf_0.1.1_ok") / SUMMARY).read_text())
    document["records"]["ttft"]["unit"] = "ns"
    run = parse_summary(document, file="f", digest="d")
    assert isinstance(run, UnreadableRun)
    assert "time_to_first_token has the unit 'ns', not 'ms'" in run.reason


def test_cells_of_version_0_8_share_one_id_and_are_two_runs(shared):
    one, two = read(shared, "old_aiperf_0.8.0_sweep")
    assert one.source_file == "concurrency_1/profile_export_aiperf.json"
    assert (one.stated["concurrency"], two.stated["concurrency"]) == (1, 2)
    assert one.stated["output_tokens_per_s"] == 80.0 / 0.5471416720000001
    assert two.stated["output_tokens_per_s"] == 80.0 / 0.282501816
    assert one.facts["benchmark_id"] == two.facts["benchmark_id"] == "75cd8a43-b6d2-4bcb-a12c-836651518468"
    assert "trials" not in one.facts


def test_trials_of_a_sweep_are_one_run_a_cell(shared):
    one, two = read(shared, "a_multirun_sweep")
    first, second = 40.0 / 0.187029504, 40.0 / 0.16674713600000002
    assert one.source_file == "profile_runs/trial_0001/concurrency_1/profile_export_aiperf.json"
    assert one.stated["output_tokens_per_s"] == pytest.approx((first + second) / 2, rel=1e-12)
    assert one.stated["output_tokens_per_s_stderr"] == pytest.approx(abs(first - second) / 2, rel=1e-12)
    assert one.stated["concurrency"] == 1
    assert one.stated["completed_requests"] == 8
    assert one.facts["requested_requests"] == 8
    assert one.facts["trials"] == 2
    # the two in the middle of the eight TTFTs and mean ITLs of both per-request files
    assert one.stated["ttft_p50_ms"] == pytest.approx((12.683577 + 12.806799999999999) / 2)
    assert one.stated["itl_p50_ms"] == pytest.approx((2.3946828888888887 + 2.591910111111111) / 2)
    assert one.facts["effective_concurrency"] == pytest.approx((0.865661171072182 + 0.8708854513171402) / 2)
    assert two.stated["concurrency"] == 2
    assert two.stated["output_tokens_per_s"] == pytest.approx((40 / 0.14027187200000002 + 40 / 0.11383116800000001) / 2)
    assert two.stated["ttft_p50_ms"] == pytest.approx((20.989597 + 23.256657) / 2)
    assert [file for file, _ in one.facts["trial_files"]] == [
        f"profile_runs/trial_000{trial}/concurrency_1/{name}"
        for trial in (1, 2)
        for name in ("profile_export_aiperf.json", "profile_export.jsonl")
    ]


def test_latencies_of_trials_without_per_request_files_are_left_out(shared, tmp_path):
    shutil.copytree(sample(shared, "w_multirun_nosweep"), tmp_path / "w")
    (tmp_path / "w/profile_runs/run_0002/profile_export.jsonl").unlink()
    (run,) = read_runs(tmp_path, root=tmp_path)
    assert run.facts["trials"] == 2
    assert {"ttft_p50_ms", "itl_p50_ms", "tpot_mean_ms"}.isdisjoint(run.stated)
    assert "ttft_p99_ms" not in run.facts


def test_trials_without_a_sweep(shared):
    (run,) = read(shared, "w_multirun_nosweep")
    first, second = 40.0 / 0.13610496, 40.0 / 0.09298432000000001
    assert run.stated["output_tokens_per_s"] == pytest.approx((first + second) / 2, rel=1e-12)
    assert run.stated["output_tokens_per_s_stderr"] == pytest.approx((second - first) / 2, rel=1e-12)
    assert run.stated["requests_per_s"] == pytest.approx((25.0903752179052 + 38.15386059361493) / 2)
    assert run.stated["duration_s"] == pytest.approx(0.13610496 + 0.09298432)
    assert run.stated["concurrency"] == 2


def test_cells_of_a_rate_sweep_have_no_concurrency(shared):
    ten, twenty = read(shared, "ac_rate_sweep")
    assert (ten.facts["rate"], twenty.facts["rate"]) == (10.0, 20.0)
    assert (ten.facts["load_type"], twenty.facts["load_type"]) == ("poisson", "poisson")
    assert "concurrency" not in ten.stated
    assert ten.stated["output_tokens_per_s"] == 40.0 / 0.201432832
    assert twenty.stated["output_tokens_per_s"] == 40.0 / 0.12055091200000001
    # 40 tokens in the 0.364969 s from start_time to end_time
    assert ten.facts["tool_output_tokens_per_s"] == 109.5982497510229
    assert "phase window of 0.365 s" in ten.facts["throughput_note"]


def test_a_cell_that_failed_is_named_once(shared):
    one, two, failed = read(shared, "ae_sweep_one_cell_fails")
    assert one.stated["output_tokens_per_s"] == 40.0 / 0.23474508800000002
    assert two.stated["output_tokens_per_s"] == 40.0 / 0.129334528
    assert failed == UnreadableRun(
        "concurrency_4/profile_export.jsonl", 0, "cell phases.profiling.concurrency=4: all 4 requests failed (500 x 4)"
    )


def test_a_cell_whose_folder_is_gone_is_named_from_the_aggregate(shared, tmp_path):
    shutil.copytree(sample(shared, "ae_sweep_one_cell_fails"), tmp_path / "s")
    shutil.rmtree(tmp_path / "s/concurrency_4")
    missing = [r for r in read_runs(tmp_path, root=tmp_path) if isinstance(r, UnreadableRun)]
    assert [(r.source_file, r.reason) for r in missing] == [
        ("s/sweep_aggregate/profile_export_aiperf_sweep.json",
         "the cell concurrency=4 of the sweep is missing: it failed or was not run")
    ]  # fmt: skip


def test_a_trial_whose_folder_is_gone_is_reported(shared, tmp_path):
    shutil.copytree(sample(shared, "a_multirun_sweep"), tmp_path / "s")
    shutil.rmtree(tmp_path / "s/profile_runs/trial_0002/concurrency_1")
    found = read_runs(tmp_path, root=tmp_path)
    assert ["1 of 2 trials of the cell concurrency=1" in r.reason for r in found if isinstance(r, UnreadableRun)] == [
        True
    ]
    (alone,) = [r for r in found if isinstance(r, ReadRun) and r.stated["concurrency"] == 1]
    assert "output_tokens_per_s_stderr" not in alone.stated


def test_a_run_whose_requests_all_failed_says_how(shared):
    assert read(shared, "c_all_fail") == [
        UnreadableRun("profile_export.jsonl", 0, "all 8 requests failed (500 x 8)")
    ]  # fmt: skip


def test_latencies_of_a_run_that_did_not_stream_are_unknown(shared):
    (run,) = read(shared, "d_nonstreaming")
    assert {"ttft_p50_ms", "itl_p50_ms", "tpot_mean_ms"}.isdisjoint(run.stated)
    assert run.facts["steady_output_tokens_per_s"] is None
    assert "no TTFT" in run.facts["steady_note"]


def test_the_concurrency_of_pooled_phases_and_of_a_capped_rate_is_unknown(shared):
    for case in ("ad_multi_phase", "j2_request_rate_with_conc"):
        (run,) = read(shared, case)
        assert "concurrency" not in run.stated
        assert run.facts["steady_output_tokens_per_s"] is None


def test_throughput_that_the_tool_divides_otherwise_is_explained(shared):
    (run,) = read(shared, "f2_duration_grace0")
    assert "the tool states 133 tok/s, -11.3%" in run.facts["throughput_note"]
    assert "phase window of 3.008 s" in run.facts["throughput_note"]
    (same,) = read(shared, "e_sigint_midway")
    assert "throughput_note" not in same.facts


def by_hand(path, concurrency):
    """Steady throughput of one file, request by request and chunk by chunk: nothing shared with the code under test."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    spans = sorted((r["metadata"]["request_start_ns"], r["metadata"]["request_end_ns"]) for r in rows)
    full = [s for s, _ in spans if sum(a <= s < b for a, b in spans) >= concurrency]
    begin, end, tokens = min(full), max(full), 0
    for row in rows:
        at = row["metadata"]["request_start_ns"] + row["metrics"]["time_to_first_token"]["value"] * 1e6
        for gap in (0.0, *row["metrics"]["inter_chunk_latency"]["value"]):
            at += gap * 1e6
            tokens += begin < at <= end
    return tokens / (end - begin) * 1e9


def test_steady_throughput_agrees_with_a_count_of_chunks(shared):
    (run,) = read(shared, "s_gpu_telemetry")
    counted = by_hand(sample(shared, "s_gpu_telemetry") / "profile_export.jsonl", 4)
    assert run.facts["steady_output_tokens_per_s"] == pytest.approx(counted, rel=0.005)
    assert 0.001 < run.facts["steady_rel_error"] < 0.05
    assert "steady_note" not in run.facts


def test_steady_throughput_of_a_short_run_is_unknown(shared):
    (run,) = read(shared, "00_base_single_run")
    assert run.facts["steady_output_tokens_per_s"] is None
    assert run.facts["steady_rel_error"] is None
    assert "shorter than 5 requests" in run.facts["steady_note"]


def test_records_agree_with_the_summary_beside_them(shared):
    for case, warmup in (("00_base_single_run", 0), ("i_warmup", 4), ("b_partial_errors", 0)):
        folder = sample(shared, case)
        records = read_records(folder / "profile_export.jsonl")
        (run,) = read(shared, case)
        assert records.warmup == warmup
        assert records.completed == run.stated["completed_requests"]
        assert records.failed == run.stated["failed_requests"]
        assert records.duration_s == pytest.approx(run.stated["duration_s"], rel=1e-5)
        assert float(np.median(records.ttft_ms)) == pytest.approx(run.stated["ttft_p50_ms"], rel=1e-12)
        assert float(np.median(records.itl_ms)) == pytest.approx(run.stated["itl_p50_ms"], rel=1e-12)
        delay = float(np.percentile(records.client_delay_ms, 99))
        assert delay == pytest.approx(run.facts["client_delay_p99_ms"], rel=1e-3)


@pytest.mark.parametrize("case", ["a_multirun_sweep", "i_warmup", "ae_sweep_one_cell_fails"])
def test_the_order_in_which_the_disk_lists_files_does_not_matter(shared, monkeypatch, case):
    expected = read(shared, case)
    walk = os.walk

    def backwards(top, onerror):
        for here, folders, names in walk(top, onerror=onerror):
            folders.sort(reverse=True)
            yield here, folders, sorted(names, reverse=True)

    monkeypatch.setattr(os, "walk", backwards)
    assert read(shared, case) == expected


# Every sample with what each of its runs is worth: (concurrency, verdict, rules), read off FORMATS.md and the files. All are
# short runs of a slow client on a CPU: fewer than 10 requests a slot, hence the first two rules of SHORT.
SHORT = "few_requests littles_law no_warmup client_bound"
WORTH = {
    "00_base_single_run": [(4, "WARN", SHORT)],
    "a_multirun_sweep": [(1, "WARN", f"prefix_cache {SHORT}"), (2, "WARN", f"prefix_cache {SHORT} peak_at_edge")],
    "ac_rate_sweep": [(None, "REJECT", "open_loop no_warmup client_bound")] * 2,
    "ad_multi_phase": [(None, "REJECT", "pooled_phases no_warmup client_bound no_concurrency")],
    "ae_sweep_one_cell_fails": [(1, "WARN", SHORT), (2, "WARN", f"{SHORT} peak_at_edge")],
    "b_partial_errors": [(4, "REJECT", f"error_rate {SHORT}")],  # 7 of 20
    "c_all_fail": [],
    "d_nonstreaming": [(4, "WARN", "few_requests no_warmup")],
    "e_sigint_midway": [(4, "REJECT", "cancelled unfinished few_requests no_warmup client_bound server_tokens")],
    "f2_duration_grace0": [(4, "WARN", "few_requests no_warmup grace_0 client_bound server_tokens")],
    "g_server_token_count": [(4, "WARN", SHORT)],
    "h_export_prefix": [(4, "WARN", f"{SHORT} name_differs")],  # it is called tp4pp2, and stated here as TP8/PP1
    "i_warmup": [(4, "WARN", "few_requests littles_law client_bound")],
    "j2_request_rate_with_conc": [(None, "REJECT", "open_loop no_warmup client_bound")],
    "m_chunked_tokens": [(4, "CORRECTED", f"chunked_tokens {SHORT}")],
    "n_early_eos": [(4, "WARN", f"early_end {SHORT}")],  # OSL 11.8 of 20
    "old_aiperf_0.1.1_ok": [(4, "WARN", "prefix_cache few_requests littles_law")],
    "old_aiperf_0.6.0": [(4, "WARN", "few_requests littles_law")],
    "old_aiperf_0.8.0_sweep": [
        (1, "WARN", "few_requests littles_law no_warmup"),
        (2, "WARN", "few_requests littles_law no_warmup peak_at_edge"),
    ],
    "p_tokenizer_mismatch": [(4, "REJECT", f"usage_mismatch prefix_cache early_end chunked_tokens {SHORT}")],
    "r_multi_url": [(4, "REJECT", f"several_urls {SHORT}")],
    "w_multirun_nosweep": [(2, "WARN", SHORT)],
}


def campaign_of(sample_folder, folder, stated='system = "h200_sxm"\ngpus = 8\ntp = 8\npp = 1'):
    shutil.copytree(sample_folder, folder / "run")
    (folder / "campaign.toml").write_text(
        'format_version = 1\nname = "n"\ntitle = "t"\nsource = "s"\nmatching = "peak"\n[defaults]\nbackend = "vllm"\n'
        f'backend_version = "1"\n{stated}\n[[runs]]\nfolder = "run"\n'
    )
    return load_campaign(folder)


@pytest.mark.parametrize("case", sorted(WORTH))
def test_what_every_sample_is_worth(shared, tmp_path, case):
    campaign = campaign_of(sample(shared, case), tmp_path)
    rows = campaign.runs.to_dict("records")
    worth = [
        (None if r["concurrency"] != r["concurrency"] else r["concurrency"], r["verdict"], r["rules"]) for r in rows
    ]
    assert [(None if str(c) == "<NA>" else c, v, rules) for c, v, rules in worth] == WORTH[case]


def test_the_cell_of_a_sweep_that_failed_and_a_run_that_failed_are_named(shared, tmp_path):
    (failed,) = campaign_of(sample(shared, "ae_sweep_one_cell_fails"), tmp_path / "a").set_aside()
    assert failed.reason == "cell phases.profiling.concurrency=4: all 4 requests failed (500 x 4)"
    (failed,) = campaign_of(sample(shared, "c_all_fail"), tmp_path / "b").set_aside()
    assert failed.reason == "all 8 requests failed (500 x 8)"


def test_telemetry_checks_the_gpus(shared, tmp_path):
    """Two H100 are listed."""
    folder = sample(shared, "s_gpu_telemetry")
    two = campaign_of(folder, tmp_path / "a", 'system = "h100_sxm"\ngpus = 2\ntp = 2\npp = 1')
    assert two.runs["verdict"].tolist() == ["WARN"]
    with pytest.raises(ContradictionError, match="says there were 2 GPUs"):
        campaign_of(folder, tmp_path / "b", 'system = "h100_sxm"\ngpus = 8\ntp = 8\npp = 1')
    with pytest.raises(ContradictionError, match="says system = 'h100_sxm'"):
        campaign_of(folder, tmp_path / "c", 'system = "h200_sxm"\ngpus = 2\ntp = 2\npp = 1')


def test_a_unit_that_is_not_expected_is_not_read_as_another(shared):
    document = json.loads((sample(shared, "00_base_single_run") / SUMMARY).read_text())
    document["time_to_first_token"]["unit"] = "s"
    run = parse_summary(document, file="f", digest="d")
    assert isinstance(run, UnreadableRun)
    assert "time_to_first_token has the unit 's', not 'ms'" in run.reason


@pytest.mark.parametrize("text", ["", "{", "[" * 200_000, "nan", '{"input_config": NaN}', "\x00"])
def test_files_that_are_no_json_are_reported(tmp_path, text):
    (tmp_path / "a.json").write_text(text)
    (run,) = read_runs(tmp_path, root=tmp_path)
    assert isinstance(run, UnreadableRun)


@pytest.mark.parametrize(
    "document", [None, 3, "x", [], {}, {"input_config": 3, "request_count": {}}, {"input_config": {}}]
)
def test_other_documents_are_no_summaries(document):
    assert is_summary(document) is False


@pytest.mark.parametrize("case", ["00_base_single_run", "old_aiperf_0.1.1_ok", "old_aiperf_0.6.0", "b_partial_errors"])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=100)
@given(data=st.data())
def test_any_key_may_be_missing_null_unknown_or_of_another_type(shared, case, data):
    document = json.loads((sample(shared, case) / SUMMARY).read_text())
    broken = copy.deepcopy(document)
    for _ in range(data.draw(st.integers(1, 6))):
        node, path = broken, []
        while isinstance(node, (dict, list)) and node and (not path or data.draw(st.booleans())):
            path.append(data.draw(st.sampled_from(sorted(node) if isinstance(node, dict) else range(len(node)))))
            parent, node = node, node[path[-1]]
        change = data.draw(
            st.sampled_from(["drop", None, 3, "x", [], {}, True, 1e308, -1, 10**400, {"unit": "ms"}, "unknown"])
        )
        if change == "drop":
            del parent[path[-1]]
        elif change == "unknown":
            broken["a key of a later version"] = {"unit": "furlongs", "avg": 1}
        else:
            parent[path[-1]] = change
    if is_summary(broken):
        run = parse_summary(broken, file="f", digest="d")
        assert isinstance(run, (ReadRun, UnreadableRun))
        msgspec.json.encode([dict(run.stated), dict(run.facts)] if isinstance(run, ReadRun) else run.reason)
