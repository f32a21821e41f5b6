"""One aiperf summary as a run, for every layout from 0.1 to 0.14 (schema 1.5).

The layout is told by the keys that are there, never by a version. Throughput is recomputed in the same way for every
version, as output tokens over ``benchmark_duration`` (first start to last completion), since the tool's own number changed
its denominator in 0.12; that number is kept as a fact. ``itl_p50_ms`` is the median over requests of the tool's
per-request mean inter-token latency ``(latency - TTFT)/(OSL - 1)``, whose mean is ``tpot_mean_ms``. ``requests_per_s`` is
the tool's own. Units are compared with the ``unit`` of each metric. Source: the export schemas of the tool's
documentation, and files it wrote.
"""

from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from calib.measure.readers.aiperf.request_records import RecordSummary
from calib.measure.readers.aiperf.settings import config_section, workload
from calib.measure.readers.aiperf.steady import steady_throughput
from calib.measure.readers.read_run import ReadRun, UnreadableRun

MARKERS = ("request_count", "request_throughput", "records", "error_request_count")
OLD_TAGS = {"ttft": "time_to_first_token", "ttst": "time_to_second_token"}  # 0.1.x
AGREEMENT = 0.01
UNITS = {
    "total_osl": "tokens",
    "benchmark_duration": "sec",
    "request_throughput": "requests/sec",
    "output_token_throughput": "tokens/sec",
    "time_to_first_token": "ms",
    "inter_token_latency": "ms",
    "inter_chunk_latency": "ms",
    "request_latency": "ms",
    "credit_to_start_latency": "ms",
    "input_sequence_length": "tokens",
    "output_sequence_length": "tokens",
    "usage_completion_tokens": "tokens",
    "usage_completion_tokens_diff_pct": "%",
    "http_req_chunks_received": "count",
    "osl_mismatch_count": "requests",
    "effective_concurrency": "requests",
    "request_count": "requests",
    "error_request_count": "requests",
}
FACTS = {  # fact -> where it stands in the summary
    "effective_concurrency": ("effective_concurrency", "avg"),
    "measured_isl": ("input_sequence_length", "avg"),
    "measured_osl": ("output_sequence_length", "avg"),
    "osl_mismatch_count": ("osl_mismatch_count", "avg"),
    "usage_completion_count": ("usage_completion_tokens", "count"),
    "usage_diff_pct": ("usage_completion_tokens_diff_pct", "avg"),
    "inter_chunk_ms": ("inter_chunk_latency", "avg"),
    "inter_token_ms": ("inter_token_latency", "avg"),
    "chunks_received": ("http_req_chunks_received", "avg"),
    "client_delay_p99_ms": ("credit_to_start_latency", "p99"),
    "ttft_p99_ms": ("time_to_first_token", "p99"),
    "request_latency_p50_ms": ("request_latency", "p50"),
    "tool_output_tokens_per_s": ("output_token_throughput", "avg"),
}


def load_document(data: bytes) -> Any:
    """A JSON document; the bare NaN that versions before 0.9 could write is null.

    Raises
    ------
    ValueError, RecursionError
        It is not JSON.
    """
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return json.loads(data, parse_constant=lambda _: None)


def is_summary(document: object) -> bool:
    """Whether a JSON document is an aiperf run summary; slices of time and server metrics have its configuration too."""
    return (
        isinstance(document, dict)
        and isinstance(document.get("input_config"), dict)
        and any(document.get(m) is not None for m in MARKERS)
        and not isinstance(document.get("timeslices"), list)
        and "perf_analyzer" not in document["input_config"]  # genai-perf's, as are the flat names of its older releases
        and "service_kind" not in document["input_config"]
    )


def parse_summary(
    document: dict[str, Any], *, file: str, digest: str, records: RecordSummary | None = None
) -> ReadRun | UnreadableRun:
    """One run from its summary and, where there are any, its per-request ``records``.

    A summary whose layout or units are not those of any known version comes back as `UnreadableRun` with the reason, and
    so does a run of which no request succeeded.
    """
    try:
        metrics = _metrics(document)
        stated, facts = workload(document["input_config"])
        facts |= {name: v for name, (tag, stat) in FACTS.items() if (v := _metric(metrics, tag, stat)) is not None}
        stated |= _measured(metrics, document, records)
        facts |= _state(document, metrics)
        throughput, how = _throughput(metrics, records)
        words = _error_words(document)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        return UnreadableRun(file, 0, f"is not an aiperf summary that can be read ({type(error).__name__}: {error})")
    failed = stated["failed_requests"]
    if failed and not stated.get("completed_requests"):
        return UnreadableRun(file, 0, f"all {failed:g} requests failed{words}")
    if throughput is not None:
        stated["output_tokens_per_s"] = throughput
        facts["throughput_method"] = how
    facts |= _record_facts(records, stated, facts) if records else {}
    if note := _disagreement(throughput, facts.get("tool_output_tokens_per_s"), metrics, document):
        facts["throughput_note"] = note
    return ReadRun(file, 0, digest, {k: v for k, v in stated.items() if v is not None}, facts)


def _metrics(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Tag -> block, flat as from 0.2 on, or below ``records`` as in 0.1.x."""
    old = document.get("records")
    blocks = {**document, **old} if isinstance(old, dict) else document
    return {OLD_TAGS.get(tag, tag): block for tag, block in blocks.items()}


def _metric(metrics: Mapping[str, Any], tag: str, stat: str) -> float | None:
    """One figure; None where the block or the figure is missing, null or not finite."""
    block = metrics.get(tag)
    if block is None or block.get(stat) is None:
        return None
    if block.get("unit") != UNITS[tag]:
        raise ValueError(f"{tag} has the unit {block.get('unit')!r}, not {UNITS[tag]!r}")
    if isinstance(block[stat], bool) or not isinstance(block[stat], (int, float)):
        raise ValueError(f"{tag}.{stat} is not a number")
    return float(block[stat]) if math.isfinite(float(block[stat])) else None


def _measured(
    metrics: Mapping[str, Any], document: Mapping[str, Any], records: RecordSummary | None
) -> dict[str, float | str | None]:
    completed, failed = (_metric(metrics, tag, "avg") for tag in ("request_count", "error_request_count"))
    if records and not records.cut_last_line:
        completed = float(records.completed) if completed is None else completed
        failed = max(float(records.failed), failed or 0.0)  # the lines are what happened, whatever was added up
    duration = _metric(metrics, "benchmark_duration", "avg")
    version = document.get("aiperf_version")
    return {
        "requests_per_s": _metric(metrics, "request_throughput", "avg"),
        "ttft_p50_ms": _metric(metrics, "time_to_first_token", "p50"),
        "itl_p50_ms": _metric(metrics, "inter_token_latency", "p50"),
        "tpot_mean_ms": _metric(metrics, "inter_token_latency", "avg"),
        "completed_requests": completed,
        # A clean run has no error count, and one key of the two may be missing (dynamo PR 3674).
        "failed_requests": float(sum(n for _, n in _errors(document))) if failed is None else failed,
        "duration_s": duration if duration is not None or records is None else records.duration_s,
        "tool": "aiperf",
        "tool_version": None if version is None else str(version),
    }


def _state(document: Mapping[str, Any], metrics: Mapping[str, Any]) -> dict[str, object]:
    run, config = config_section(document, "run_info"), document["input_config"]
    ids = (document.get("benchmark_id"), run.get("benchmark_id"), config.get("benchmark_id"))
    facts: dict[str, object] = {
        "cancelled": bool(document.get("was_cancelled")),
        "incomplete": document.get("is_complete") is False,
    }
    if known := [str(i) for i in ids if i is not None]:
        facts["benchmark_id"] = known[0]
    if document.get("start_time") is not None:
        facts["start_time"] = str(document["start_time"])
    if not isinstance(config_section(config, "endpoint").get("streaming"), bool):
        facts["streaming"] = _metric(metrics, "time_to_first_token", "avg") is not None
    return facts


def _throughput(metrics: Mapping[str, Any], records: RecordSummary | None) -> tuple[float | None, str]:
    """Output throughput [tok/s] and how it was worked out: of several ways the one that assumes least."""
    tokens, duration = (_metric(metrics, tag, "avg") for tag in ("total_osl", "benchmark_duration"))
    if tokens is not None and duration:
        return tokens / duration, "total_osl / benchmark_duration"
    if records and not records.cut_last_line and records.total_osl and records.duration_s:
        return records.total_osl / records.duration_s, "tokens and times of the per-request file"
    length, count, rate = (
        _metric(metrics, tag, "avg") for tag in ("output_sequence_length", "request_count", "request_throughput")
    )
    if length is not None and count and rate:
        return length * count / (count / rate), "mean OSL x request_count / (request_count / request_throughput)"
    return None, ""


def _record_facts(records: RecordSummary, stated: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, object]:
    found: dict[str, object] = {"records_sha256": records.sha256, "cut_last_line": records.cut_last_line}
    if "usage_completion_count" not in facts and records.usage_count:
        found["usage_completion_count"] = float(records.usage_count)
    concurrency = stated.get("concurrency")
    if records.cut_last_line:
        note: str | None = "the per-request file is cut, so that requests are missing"
    elif concurrency is None or facts.get("profiling_phases") != 1:
        note = "the load was no single fixed concurrency"
    else:
        steady = steady_throughput(records, int(concurrency), np.random.default_rng(int(records.sha256, 16)))
        found |= {"steady_output_tokens_per_s": steady.output_tokens_per_s, "steady_rel_error": steady.rel_error}
        note = steady.note
    if note:
        empty = {"steady_output_tokens_per_s": None, "steady_rel_error": None}
        found = {**empty, **found, "steady_note": note}
    return found


def _disagreement(
    ours: float | None, tool: float | None, metrics: Mapping[str, Any], document: Mapping[str, Any]
) -> str | None:
    """Why the tool's own throughput differs from ours by more than 1 %; None where it does not."""
    if ours is None or tool is None or abs(tool - ours) <= AGREEMENT * ours:
        return None
    told = f"the tool states {tool:.4g} tok/s, {tool / ours - 1:+.1%} from tokens over benchmark_duration"
    tokens, window = _metric(metrics, "total_osl", "avg"), _window(document)
    if tokens is not None and window and abs(tool - tokens / window) <= AGREEMENT * tool:
        return f"{told}: it divides by the phase window of {window:.4g} s, which includes start-up and drain (0.12 and later)"
    return f"{told}, by a definition that is not known"


def _window(document: Mapping[str, Any]) -> float | None:
    """``end_time - start_time`` [s]; both are naive times of one clock."""
    try:
        start, end = (dt.datetime.fromisoformat(document[k]) for k in ("start_time", "end_time"))
        return (end - start).total_seconds()
    except (KeyError, TypeError, ValueError):
        return None


def _errors(document: Mapping[str, Any]) -> list[tuple[str, float]]:
    found = []
    for entry in document.get("error_summary") or []:
        details = entry.get("error_details") or {}
        name = details.get("type") if details.get("code") is None else details["code"]
        found.append((str(name), float(entry.get("count") or 0)))
    return found


def _error_words(document: Mapping[str, Any]) -> str:
    errors = sorted(_errors(document), key=lambda e: (-e[1], e[0]))
    return f" ({', '.join(f'{name} x {number:g}' for name, number in errors)})" if errors else ""
