"""Rules about one run by itself."""

from __future__ import annotations

import math

from calib.measure.columns import MEASURES
from calib.measure.findings import FindingVerdict
from calib.measure.screening.rule import NONE, Rule, Run, Seen
from calib.units import METRICS


def _no_result(run: Run, _: float) -> Seen | None:
    if run.number("output_tokens_per_s") is None and run.number("efficiency") is None:
        return Seen(None, "states neither a finite output throughput nor an efficiency")
    return None


def _implausible(run: Run, _: float) -> Seen | None:
    for name in MEASURES:
        value, metric = run.number(name), METRICS[name]
        if value is not None and not metric.plausible(value):
            reason = f"{name} = {value:g} {metric.unit} is not between {metric.low:g} and {metric.high:g}"
            return Seen(value, reason)
    return None


def _two_results(run: Run, _: float) -> Seen | None:
    if run.number("output_tokens_per_s") is not None and run.number("efficiency") is not None:
        return Seen(None, "states a throughput and an efficiency; which of them holds is not said")
    return None


def _own_efficiency(run: Run, _: float) -> Seen | None:
    eta = run.number("efficiency")
    if eta is None or int(run.row["pp"]) > 1 or eta == 1.0:
        return None
    return Seen(eta, f"states an efficiency of {eta:g} at pp = 1, where it is 1 by definition")


def _cancelled(run: Run, _: float) -> Seen | None:
    states = [s for s in ("cancelled", "incomplete") if run.facts.get(s)]
    return Seen(None, f"the run was {' and '.join(states)}") if states else None


def _stale(run: Run, _: float) -> Seen | None:
    stale = run.facts.get("stale")
    return Seen(None, stale if isinstance(stale, str) else "belongs to another run than its folder") if stale else None


def _error_rate(run: Run, limit: float) -> Seen | None:
    failed, done = run.number("failed_requests"), run.number("completed_requests")
    if failed is None or done is None or failed + done == 0:
        return None
    rate = failed / (failed + done)
    return Seen(rate, f"{rate:.1%} of the requests failed; throughput is of the others only") if rate > limit else None


def _unfinished(run: Run, _: float) -> Seen | None:
    asked, done = run.fact("requested_requests"), run.number("completed_requests")
    failed = run.number("failed_requests") or 0.0
    if asked is None or done is None or done + failed >= asked:
        return None
    return Seen(done, f"only {done:g} of {asked:g} requests finished")


def _open_loop(run: Run, _: float) -> Seen | None:
    load = run.facts.get("load_type", "concurrency")
    if load != "concurrency":
        return Seen(None, f"load was of type '{load}': the concurrency is not known")
    if run.facts.get("concurrency_is_cap"):
        return Seen(None, "the concurrency was only a cap on another load")
    return None


def _urls(run: Run, _: float) -> Seen | None:
    urls, replicas = run.fact("urls"), int(run.row["replicas"])
    if urls is not None and urls > 1 and replicas != urls:
        return Seen(urls, f"{urls:g} URLs were served and replicas = {replicas}")
    return None


def _phases(run: Run, _: float) -> Seen | None:
    phases = run.fact("profiling_phases")
    return Seen(phases, f"{phases:g} profiling phases are pooled in one summary") if phases and phases > 1 else None


def _usage(run: Run, limit: float) -> Seen | None:
    diff = run.fact("usage_diff_pct")
    if diff is None or abs(diff) <= limit:
        return None
    return Seen(
        diff, f"the server counts {diff:+.1f} % other tokens than the client: its tokenizer is not the server's"
    )


def _stream_errors(run: Run, _: float) -> Seen | None:
    usage, done = run.fact("usage_completion_count"), run.number("completed_requests")
    if usage is None or done is None or usage >= done:
        return None
    return Seen(
        done - usage, f"{done - usage:g} of {done:g} requests ended without a usage record: errors counted as success"
    )


def _disaggregated(run: Run, _: float) -> Seen | None:
    return Seen(None, "prefill and decode ran on different GPUs") if run.facts.get("disaggregated") else None


def _cache(run: Run, limit: float) -> Seen | None:
    rate = run.fact("prefix_cache_hit_rate")
    if rate is not None:
        if rate <= limit:
            return None
        random = run.facts.get("random_prompts")
        verdict: FindingVerdict = "REJECT" if random else "WARN"
        kind = "random prompts" if random else "prompts not known to be random"
        return Seen(rate, f"{rate:.1%} of the prompt tokens came from the prefix cache, on {kind}", verdict=verdict)
    if "random_prompts" in run.facts and run.row.get("tool") == "aiperf":
        return Seen(None, "no prefix-cache counters of the server, so hits are unknown", verdict="WARN")
    return None


def _latency(run: Run, _: float) -> Seen | None:
    ttft, total, duration = run.number("ttft_p50_ms"), run.fact("request_latency_p50_ms"), run.number("duration_s")
    if ttft is not None and total is not None and ttft > total:
        return Seen(ttft, f"the median TTFT of {ttft:g} ms is longer than the median request of {total:g} ms")
    if ttft is not None and duration is not None and ttft > 1000 * duration:
        return Seen(ttft, f"the median TTFT of {ttft:g} ms is longer than the run of {duration:g} s")
    return None


def _early_end(run: Run, limit: float) -> Seen | None:
    osl, asked, wrong = run.fact("measured_osl"), float(run.row["osl"]), run.fact("osl_mismatch_count")
    done = run.number("completed_requests")
    if wrong is not None and done and wrong / done > limit:
        return Seen(wrong / done, f"{wrong / done:.0%} of the outputs were not of the length asked for")
    if osl is not None and abs(osl / asked - 1) > limit:
        return Seen(osl, f"outputs have {osl:.1f} tokens where {asked:g} were asked for")
    return None


def _isl(run: Run, limit: float) -> Seen | None:
    isl, asked = run.fact("measured_isl"), float(run.row["isl"])
    if isl is None or abs(isl / asked - 1) <= limit:
        return None
    return Seen(isl, f"prompts have {isl:.1f} tokens where {asked:g} were asked for")


def _chunked(run: Run, limit: float) -> Seen | None:
    """Several tokens a chunk: the first chunk's tokens count as if decoded after TTFT, so ITL is too low.

    Corrected to ``(latency - TTFT) / (OSL - OSL/chunks)``, unless the token counts themselves disagree.
    """
    chunk, token = run.fact("inter_chunk_ms"), run.fact("inter_token_ms")
    if chunk is None or not token or chunk / token <= limit:
        return None
    ratio = chunk / token
    osl, chunks = run.fact("measured_osl") or float(run.row["osl"]), run.fact("chunks_received")
    disagree = abs(run.fact("usage_diff_pct") or 0.0) > 5
    if disagree or not chunks or chunks <= 1 or chunks >= osl:
        return Seen(ratio, f"chunks hold {ratio:.1f} tokens, so ITL is too low and cannot be corrected", verdict="WARN")
    factor = (osl - 1) / (osl - osl / chunks)
    fixed = {n: v * factor for n in ("itl_p50_ms", "tpot_mean_ms") if (v := run.number(n)) is not None}
    return Seen(ratio, f"chunks hold {ratio:.1f} tokens; ITL was multiplied by {factor:.3f}", fixed)


def _concurrency(run: Run, limit: float) -> Seen | None:
    seen, asked, done = run.fact("effective_concurrency"), run.number("concurrency"), run.number("completed_requests")
    if seen is None or asked is None or done is None or done < 10 * asked or seen / asked >= limit:
        return None  # below 10 requests per concurrent one ramp and drain explain it: rule few_requests
    return Seen(seen / asked, f"{seen:.2f} requests were in flight on average where {asked:g} were asked for")


def _tool_number(run: Run, limit: float) -> Seen | None:
    """The tool's own throughput may be lower than tokens over duration (its window is longer), never higher."""
    own, ours = run.fact("tool_output_tokens_per_s"), run.number("output_tokens_per_s")
    if own is None or not ours or own / ours <= limit:
        return None
    return Seen(
        own / ours,
        f"the tool's own throughput of {own:.1f} tok/s is above its tokens over its duration, {ours:.1f} tok/s",
    )


def _not_ready(run: Run, _: float) -> Seen | None:
    if run.facts.get("ready_marker") is False:
        return Seen(None, "the tool left no marker that its results are complete")
    return Seen(None, "the per-request file ends in the middle of a line") if run.facts.get("cut_last_line") else None


def _few(run: Run, limit: float) -> Seen | None:
    done, c = run.number("completed_requests"), run.number("concurrency")
    if done is None or c is None:
        return None
    done /= run.fact("trials") or 1  # counts of trials are summed
    if done >= limit * c:
        return None
    return Seen(done / c, f"{done:g} completed requests are {done / c:.1f} per concurrent one")


def _littles_law(run: Run, limit: float) -> Seen | None:
    """C requests in flight, each OSL tokens in TTFT + (OSL-1)*ITL, against what was counted."""
    names = ("output_tokens_per_s", "ttft_p50_ms", "itl_p50_ms", "concurrency")
    x, ttft, itl, c = (run.number(n) for n in names)
    if x is None or ttft is None or itl is None or c is None or not (math.isfinite(x + ttft + itl) and x > 0):
        return None
    osl, replicas = run.fact("measured_osl") or float(run.row["osl"]), float(run.row["replicas"])
    in_flight = (ttft + (osl - 1) * itl) / 1000
    if not in_flight > 0:
        return None
    share = x / (c * replicas * osl / in_flight)
    return Seen(share, f"completed requests explain {share:.2f} of the tokens in flight") if share < limit else None


def _no_warmup(run: Run, _: float) -> Seen | None:
    return Seen(None, "the run had no warm-up phase") if run.facts.get("warmup") is False else None


def _grace(run: Run, _: float) -> Seen | None:
    if run.fact("grace_period_s") == 0 and run.facts.get("duration_limited", True):
        return Seen(0.0, "requests in flight at the end were thrown away while the window includes their time")
    return None


def _cut(run: Run, _: float) -> Seen | None:
    cut = run.fact("incomplete_requests")
    return Seen(cut, f"{cut:g} requests were cut at the end and their tokens not counted") if cut else None


def _client(run: Run, limit: float) -> Seen | None:
    delay, ttft = run.fact("client_delay_p99_ms"), run.fact("ttft_p99_ms") or run.number("ttft_p50_ms")
    if delay is None or not ttft or delay / ttft <= limit:
        return None
    return Seen(
        delay / ttft,
        f"the client's own delay (p99 {delay:.1f} ms) is {delay / ttft:.0%} of the TTFT: it may be the bottleneck",
    )


def _unmapped(run: Run, _: float) -> Seen | None:
    left = run.facts.get("unmapped")
    return (
        Seen(None, f"left out, since the tool defines it otherwise: {'; '.join(map(str, left))}")
        if isinstance(left, tuple) and left
        else None
    )


def _name(run: Run, _: float) -> Seen | None:
    hints = run.facts.get("path_hints")
    for hint in hints if isinstance(hints, tuple) else ():
        if hint.field in run.row and int(run.row[hint.field]) != hint.value:
            return Seen(None, f"its path says {hint.field} = {hint.value}, and it is {run.row[hint.field]}")
    return None


def _odd_labels(run: Run, _: float) -> Seen | None:
    said = [x for name in ("odd_labels", "unread") for x in run.facts.get(name, ()) or ()]  # type: ignore[attr-defined]
    return (
        Seen(None, f"files beside it could not be used as a check: {'; '.join(map(str, said[:3]))}") if said else None
    )


def _server_tokens(run: Run, limit: float) -> Seen | None:
    server, done, osl = run.fact("server_generation_tokens"), run.number("completed_requests"), run.fact("measured_osl")
    if run.facts.get("warmup") or (run.fact("trials") or 1) > 1:
        return None  # the server's count may hold the warm-up, and is of one trial
    if server is None or not done or not osl or abs(server / (done * osl) - 1) <= limit:
        return None
    ratio = server / (done * osl)
    return Seen(
        ratio,
        f"the server generated {ratio:.2f} times the tokens that were counted: somebody else used it, or they miscount",
    )


def _no_concurrency(run: Run, _: float) -> Seen | None:
    if (
        run.number("concurrency") is None
        and run.row.get("source_row") == 0
        and run.facts.get("load_type") == "concurrency"
    ):
        return Seen(None, "the file does not say at which concurrency it ran")
    return None


RUN_RULES: tuple[Rule, ...] = (
    Rule("no_result", "REJECT", "no throughput and no efficiency", NONE, _no_result),
    Rule("implausible_value", "REJECT", "a figure no working measurement shows", NONE, _implausible),
    Rule("two_results", "REJECT", "a throughput and an efficiency in one row", NONE, _two_results),
    Rule("baseline_efficiency", "REJECT", "an efficiency other than 1 at pp = 1", NONE, _own_efficiency),
    Rule("cancelled", "REJECT", "cancelled or incomplete run", NONE, _cancelled),
    Rule("stale", "REJECT", "files of different runs in one folder", NONE, _stale),
    Rule("error_rate", "REJECT", "share of failed requests", 0.01, _error_rate),
    Rule("unfinished", "REJECT", "fewer requests finished than asked for", NONE, _unfinished),
    Rule("open_loop", "REJECT", "load was not a fixed concurrency", NONE, _open_loop),
    Rule("several_urls", "REJECT", "several URLs without a replica count", NONE, _urls),
    Rule("pooled_phases", "REJECT", "more than one profiling phase", NONE, _phases),
    Rule("usage_mismatch", "REJECT", "server's and client's token counts differ [%]", 5.0, _usage),
    Rule("stream_errors", "REJECT", "stream errors counted as success", NONE, _stream_errors),
    Rule("tool_disagrees", "REJECT", "the tool's own throughput over tokens per duration", 1.01, _tool_number),
    Rule("disaggregated", "REJECT", "prefill and decode on different GPUs", NONE, _disaggregated),
    Rule("prefix_cache", "REJECT", "share of prompt tokens from the prefix cache, on random prompts", 0.01, _cache),
    Rule("impossible_latency", "REJECT", "TTFT longer than the request or the run", NONE, _latency),
    Rule("early_end", "WARN", "outputs of another length than asked for", 0.05, _early_end),
    Rule("isl_differs", "WARN", "prompts of another length than asked for", 0.05, _isl),
    Rule("chunked_tokens", "CORRECTED", "tokens per chunk", 1.5, _chunked),
    Rule("low_concurrency", "WARN", "requests in flight over those asked for", 0.9, _concurrency),
    Rule("few_requests", "WARN", "completed requests per concurrent one", 10.0, _few),
    Rule("littles_law", "WARN", "coverage of the tokens in flight by completed requests", 0.95, _littles_law),
    Rule("not_ready", "WARN", "results not marked complete, or cut", NONE, _not_ready),
    Rule("no_warmup", "WARN", "no warm-up phase", NONE, _no_warmup),
    Rule("grace_0", "WARN", "no grace period: requests in flight thrown away", NONE, _grace),
    Rule("cut_requests", "WARN", "requests cut at the end of the run", NONE, _cut),
    Rule("client_bound", "WARN", "client's own delay over TTFT", 0.05, _client),
    Rule("unmapped", "WARN", "figures whose definition cannot be mapped", NONE, _unmapped),
    Rule("name_differs", "WARN", "a path that names other degrees than the run has", NONE, _name),
    Rule("odd_labels", "WARN", "files beside the run that could not be used as a check", NONE, _odd_labels),
    Rule("server_tokens", "WARN", "server's tokens over those counted, minus 1", 0.05, _server_tokens),
    Rule("no_concurrency", "WARN", "concurrency not stated", NONE, _no_concurrency),
)  # fmt: skip
