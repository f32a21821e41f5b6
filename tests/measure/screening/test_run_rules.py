"""Each rule by itself: what it sees, on which side of its limit, and what it does not know."""

from __future__ import annotations

import pytest

from calib.measure.screening.rule import Run
from calib.measure.screening.run_rules import RUN_RULES
from calib.measure.screening.series_rules import CAMPAIGN_RULES, SERIES_RULES

ROW = {
    "campaign": "c", "model": "m", "precision": None, "backend": "vllm", "backend_version": "1", "system": "h200_sxm",
    "gpus": 8, "tp": 4, "pp": 2, "dp": 1, "replicas": 1, "isl": 100, "osl": 20, "concurrency": 4, "output_tokens_per_s": 550.0,
    "requests_per_s": 25.0, "ttft_p50_ms": 10.0, "itl_p50_ms": 7.0, "tpot_mean_ms": 7.0, "completed_requests": 100.0,
    "failed_requests": 0.0, "duration_s": 10.0, "efficiency": None, "tool": "aiperf", "source_file": "f", "source_row": 0,
}  # fmt: skip
RULES = {r.name: r for r in RUN_RULES}


def check(name, row=None, facts=None):
    rule = RULES[name]
    seen = rule.check(Run(0, ROW | (row or {}), facts or {}), rule.limit)
    return None if seen is None else (seen.verdict or rule.verdict), seen


@pytest.mark.parametrize(
    ("name", "row", "facts", "verdict"),
    [
        ("stale", {}, {"stale": "belongs to another run"}, "REJECT"),
        ("error_rate", {"failed_requests": 1.0}, {}, None),  # 1 of 101
        ("error_rate", {"failed_requests": 2.0}, {}, "REJECT"),
        ("unfinished", {}, {"requested_requests": 101}, "REJECT"),
        ("unfinished", {}, {"requested_requests": 100}, None),
        ("unfinished", {}, {"requested_requests": 100, "trials": 2}, None),  # both are sums over trials
        ("open_loop", {}, {"load_type": "poisson"}, "REJECT"),
        ("open_loop", {}, {"concurrency_is_cap": True}, "REJECT"),
        ("several_urls", {}, {"urls": 2}, "REJECT"),
        ("several_urls", {"replicas": 2}, {"urls": 2}, None),
        ("pooled_phases", {}, {"profiling_phases": 2}, "REJECT"),
        ("pooled_phases", {}, {"profiling_phases": 1}, None),
        ("usage_mismatch", {}, {"usage_diff_pct": 5.0}, None),
        ("usage_mismatch", {}, {"usage_diff_pct": -5.1}, "REJECT"),
        ("stream_errors", {}, {"usage_completion_count": 99}, "REJECT"),
        ("stream_errors", {}, {"usage_completion_count": 100}, None),
        ("disaggregated", {}, {"disaggregated": True}, "REJECT"),
        ("tool_disagrees", {}, {"tool_output_tokens_per_s": 540.0}, None),  # its window is longer
        ("tool_disagrees", {}, {"tool_output_tokens_per_s": 560.0}, "REJECT"),
        ("not_ready", {}, {"ready_marker": False}, "WARN"),
        ("not_ready", {}, {"ready_marker": True}, None),
        ("not_ready", {}, {"cut_last_line": True}, "WARN"),
        ("few_requests", {"completed_requests": 60.0}, {"trials": 2}, "WARN"),
        ("prefix_cache", {}, {"prefix_cache_hit_rate": 0.01, "random_prompts": True}, None),
        ("prefix_cache", {}, {"prefix_cache_hit_rate": 0.02, "random_prompts": True}, "REJECT"),
        ("prefix_cache", {}, {"prefix_cache_hit_rate": 0.02}, "WARN"),
        ("prefix_cache", {}, {"random_prompts": True}, "WARN"),  # unknown
        ("prefix_cache", {"tool": None}, {}, None),  # a published table says nothing of its prompts
        ("impossible_latency", {}, {"request_latency_p50_ms": 9.0}, "REJECT"),
        ("impossible_latency", {"ttft_p50_ms": 10001.0}, {}, "REJECT"),
        ("early_end", {}, {"measured_osl": 19.5}, None),
        ("early_end", {}, {"measured_osl": 11.8}, "WARN"),
        ("early_end", {}, {"osl_mismatch_count": 6.0}, "WARN"),
        ("isl_differs", {}, {"measured_isl": 90.0}, "WARN"),
        ("low_concurrency", {}, {"effective_concurrency": 3.5}, "WARN"),
        ("low_concurrency", {}, {"effective_concurrency": 3.6}, None),
        ("low_concurrency", {"completed_requests": 39.0}, {"effective_concurrency": 2.0}, None),  # ramp and drain
        ("few_requests", {"completed_requests": 39.0}, {}, "WARN"),
        ("few_requests", {"completed_requests": 40.0}, {}, None),
        ("no_warmup", {}, {"warmup": False}, "WARN"),
        ("no_warmup", {}, {"warmup": True}, None),
        ("no_warmup", {}, {}, None),
        ("grace_0", {}, {"grace_period_s": 0.0}, "WARN"),
        ("grace_0", {}, {"grace_period_s": 30.0}, None),
        ("cut_requests", {}, {"incomplete_requests": 3}, "WARN"),
        ("client_bound", {}, {"client_delay_p99_ms": 1.0, "ttft_p99_ms": 10.0}, "WARN"),
        ("client_bound", {}, {"client_delay_p99_ms": 0.4, "ttft_p99_ms": 10.0}, None),
        ("unmapped", {}, {"unmapped": ("itl_p50_ms: per chunk",)}, "WARN"),
        ("server_tokens", {}, {"server_generation_tokens": 2200.0, "measured_osl": 20.0}, "WARN"),
        ("server_tokens", {}, {"server_generation_tokens": 2080.0, "measured_osl": 20.0}, None),
        ("server_tokens", {}, {"server_generation_tokens": 2200.0, "measured_osl": 20.0, "warmup": True}, None),
        ("odd_labels", {}, {"odd_labels": ("tp is 'auto'",)}, "WARN"),
        ("no_concurrency", {"concurrency": None}, {"load_type": "concurrency"}, "WARN"),
    ],
)  # fmt: skip
def test_a_rule_on_both_sides_of_its_limit(name, row, facts, verdict):
    assert check(name, row, facts)[0] == verdict


@pytest.mark.parametrize("name", sorted(RULES))
def test_a_clean_run_breaks_no_rule_and_odd_facts_are_no_facts(name):
    assert check(name)[0] is None
    odd = dict.fromkeys(
        ("usage_diff_pct", "urls", "measured_osl", "effective_concurrency", "prefix_cache_hit_rate", "inter_chunk_ms"),
        "many",
    )
    assert check(name, facts=odd)[0] is None


def test_chunked_tokens_correct_the_itl():
    """m_chunked_tokens: OSL 20 in 3.2 chunks, so the first chunk's 6.25 tokens are not decoded after TTFT."""
    verdict, seen = check(
        "chunked_tokens", facts={"inter_chunk_ms": 17.5, "inter_token_ms": 2.78, "chunks_received": 3.2}
    )
    assert verdict == "CORRECTED"
    factor = 19 / (20 - 20 / 3.2)
    assert seen.corrections == {"itl_p50_ms": pytest.approx(7.0 * factor), "tpot_mean_ms": pytest.approx(7.0 * factor)}


@pytest.mark.parametrize("more", [{"usage_diff_pct": 50.0, "chunks_received": 3.2}, {}, {"chunks_received": 20.0}])
def test_what_cannot_be_corrected_is_a_warning(more):
    verdict, seen = check("chunked_tokens", facts={"inter_chunk_ms": 17.5, "inter_token_ms": 2.78} | more)
    assert verdict == "WARN"
    assert seen.corrections == {}


def beside(name, *runs):
    rule = next(r for r in (*SERIES_RULES, *CAMPAIGN_RULES) if r.name == name)
    made = [Run(i, ROW | row, facts) for i, (row, facts) in enumerate(runs)]
    return [(run.index, seen.verdict or rule.verdict, seen.reason) for run, seen in rule.check(made, rule.limit)]


BASE = {"tp": 8, "pp": 1}


def test_output_lengths_of_a_pp_run_and_its_baseline():
    assert beside("osl_differs", (BASE, {"measured_osl": 20.0}), ({}, {"measured_osl": 19.7})) == []
    ((index, verdict, reason),) = beside("osl_differs", (BASE, {"measured_osl": 20.0}), ({}, {"measured_osl": 19.5}))
    assert (index, verdict) == (1, "WARN")
    assert "19.5 tokens and those of its baseline 20.0" in reason
    other = (BASE | {"concurrency": 8}, {"measured_osl": 20.0})
    assert beside("osl_differs", other, ({}, {"measured_osl": 10.0})) == []


def test_tools_that_differ_from_the_baselines_are_named():
    ((index, verdict, reason),) = beside("mixed_tools", (BASE, {}), ({"tool": "guidellm"}, {}))
    assert (index, verdict) == (1, "WARN")
    assert reason == "was measured with guidellm and its baseline with aiperf"


def test_engine_flags_that_differ_from_the_baselines():
    base, run = {"max_num_seqs": 256, "async_scheduling": True}, {"max_num_seqs": 128, "async_scheduling": True}
    ((_, verdict, reason),) = beside("engine_flags", (BASE, {"engine": base}), ({}, {"engine": run}))
    assert verdict == "WARN"
    assert reason.endswith("max_num_seqs 128 against 256")
    assert beside("engine_flags", (BASE, {"engine": base}), ({}, {"engine": dict(base)})) == []
    assert beside("engine_flags", (BASE, {}), ({}, {"engine": run})) == []


def test_ttft_that_does_not_grow_with_the_prompt():
    long = {"isl": 400, "ttft_p50_ms": 10.5}
    ((index, _, reason),) = beside("ttft_ignores_isl", ({}, {}), (long, {}))
    assert index == 1
    assert "1.05 times that at ISL 100" in reason
    assert beside("ttft_ignores_isl", ({}, {}), (long | {"ttft_p50_ms": 30.0}, {})) == []


def test_stages_that_run_one_after_another_need_a_run_on_fewer_gpus():
    ((_, verdict, reason),) = beside("no_microbatching", (BASE, {}), ({}, {}))
    assert (verdict, "not assessable" in reason) == ("INFO", True)
    alone = {"tp": 4, "pp": 1, "gpus": 4, "output_tokens_per_s": 530.0}
    ((_, verdict, reason),) = beside("no_microbatching", (alone, {}), ({}, {}))
    assert (verdict, "1.04 times as fast as TP4/PP1 on 4 GPUs" in reason) == ("WARN", True)
    assert beside("no_microbatching", (alone | {"output_tokens_per_s": 300.0}, {}), ({}, {})) == []
