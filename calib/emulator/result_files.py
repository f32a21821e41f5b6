"""What aiperf would have written, from a run in virtual time.

Layout and names are those of aiperf 0.13 (schema 1.4), so that the same readers and rules apply; the version says
``+virtual``, since no client was there. Times start at a fixed day: the same run gives the same bytes.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Iterable

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from calib.emulator.closed_loop import Load, Served, output_tokens_per_s
from calib.emulator.metrics import State, scrape
from calib.emulator.physics import EngineSpec

VERSION = "0.13.0+virtual"
URL = "http://127.0.0.1:0"  # nothing was served
EPOCH = dt.datetime(2026, 1, 1)
MISMATCH = 0.05  # of the output length asked for, from which aiperf counts a request
PERCENTILES = (1, 5, 10, 25, 50, 75, 90, 95, 99)


def result_files(spec: EngineSpec, load: Load, warmup: list[Served], measured: list[Served]) -> dict[str, bytes]:
    """File name -> content of one run's result folder."""
    run_id = hashlib.sha256(msgspec.json.encode((spec, vars(load)))).hexdigest()[:12]
    lines = [_record(s, load, "warmup") for s in warmup] + [_record(s, load, "profiling") for s in measured]
    state = State(0, 0, load.isl * len(measured), sum(s.tokens for s in measured), len(measured))
    server = {
        "schema_version": "1.1", "aiperf_version": VERSION, "benchmark_id": run_id,
        "summary": {"endpoints_configured": [f"{URL}/metrics"], "endpoints_successful": [f"{URL}/metrics"]},
        "metrics_phase": "profiling", "metrics": scrape(spec, state, URL),
    }  # fmt: skip
    ready = {"ready": True, "was_cancelled": False, "partial": False}
    summary = _measures(load, measured) | _configuration(spec, load, run_id) | _window(measured)
    return {
        "profile_export_aiperf.json": _json({"schema_version": "1.4", "aiperf_version": VERSION, **summary}),
        "profile_export.jsonl": b"".join(msgspec.json.encode(line) + b"\n" for line in lines),
        "server_metrics_export.json": _json(server),
        ".aiperf_results_ready.json": _json(ready),
    }


def _json(document: object) -> bytes:
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"


def _stats(values: ArrayLike, unit: str) -> dict[str, object]:
    v = np.asarray(values, dtype=np.float64)
    found = {f"p{p}": float(q) for p, q in zip(PERCENTILES, np.percentile(v, PERCENTILES), strict=True)}
    moments = {"avg": v.mean(), "min": v.min(), "max": v.max(), "std": v.std(), "sum": v.sum()}
    return {"unit": unit, **{k: float(x) for k, x in moments.items()}, **found, "count": len(v)}


def _one(value: float, unit: str) -> dict[str, object]:
    return {"unit": unit, "avg": float(value)}


def _itl_ms(served: Iterable[Served]) -> list[float]:
    return [(s.end_ms - s.first_ms) / (s.tokens - 1) for s in served if s.tokens > 1]


def _measures(load: Load, measured: list[Served]) -> dict[str, object]:
    tokens = np.array([s.tokens for s in measured])
    start, end = np.array([s.start_ms for s in measured]), np.array([s.end_ms for s in measured])
    duration = (end.max() - start.min()) / 1000.0
    rate, itl = output_tokens_per_s(measured), _itl_ms(measured)
    mismatches = np.abs(tokens / load.osl - 1) > MISMATCH
    found: dict[str, object] = {
        "request_throughput": _one(len(measured) / duration, "requests/sec"),
        "request_latency": _stats(end - start, "ms"),
        "request_count": _one(len(measured), "requests"),
        "time_to_first_token": _stats([s.first_ms - s.start_ms for s in measured], "ms"),
        "inter_token_latency": _stats(itl, "ms"),
        "inter_chunk_latency": _stats(itl, "ms"),
        "output_token_throughput": _one(rate, "tokens/sec"),
        "output_sequence_length": _stats(tokens, "tokens"),
        "input_sequence_length": _stats(np.full(len(measured), load.isl), "tokens"),
        "http_req_chunks_received": _stats(tokens, "count"),
        "usage_completion_tokens": _stats(tokens, "tokens"),
        "usage_completion_tokens_diff_pct": _stats(np.zeros(len(measured)), "%"),
        "credit_to_start_latency": _stats(np.zeros(len(measured)), "ms"),
        "effective_concurrency": _one(float((end - start).sum()) / (1000.0 * duration), "requests"),
        "benchmark_duration": _one(duration, "sec"),
        "total_isl": _one(load.isl * len(measured), "tokens"),
        "total_osl": _one(float(tokens.sum()), "tokens"),
    }
    return found | ({"osl_mismatch_count": _one(int(mismatches.sum()), "requests")} if mismatches.any() else {})


def _configuration(spec: EngineSpec, load: Load, run_id: str) -> dict[str, object]:
    phases: list[dict[str, object]] = [
        {"name": "profiling", "kind": "profiling", "type": "concurrency", "requests": load.requests,
         "concurrency": load.concurrency}
    ]  # fmt: skip
    if load.warmup:
        phases.insert(
            0, phases[0] | {"name": "warmup", "kind": "warmup", "exclude_from_results": True, "requests": load.warmup}
        )
    lengths = {name: {"mean": float(mean), "stddev": 0.0} for name, mean in (("isl", load.isl), ("osl", load.osl))}
    config = {
        "models": {"items": [{"name": spec.model.name}]},
        "endpoint": {"urls": [URL], "type": "chat", "streaming": True, "extra": {"ignore_eos": True}},
        "datasets": [{"name": "main", "type": "synthetic", "entries": load.requests, "prompts": lengths}],
        "phases": phases,
        "gpu_telemetry": {"enabled": False},
    }
    return {
        "benchmark_id": run_id, "input_config": config, "run_info": {"benchmark_id": run_id, "trial": 0},
        "was_cancelled": False, "is_complete": True, "error_summary": [],
    }  # fmt: skip


def _window(measured: list[Served]) -> dict[str, object]:
    first, last = min(s.start_ms for s in measured), max(s.end_ms for s in measured)
    times = (EPOCH + dt.timedelta(milliseconds=ms) for ms in (first, last))
    return dict(zip(("start_time", "end_time"), (t.isoformat() for t in times), strict=True))


def _record(served: Served, load: Load, phase: str) -> dict[str, object]:
    def ns(ms: float) -> int:
        return int(EPOCH.replace(tzinfo=dt.UTC).timestamp()) * 10**9 + round(ms * 1e6)

    start, itl = ns(served.start_ms), _itl_ms([served])
    metrics = {
        "output_sequence_length": (served.tokens, "tokens"),
        "input_sequence_length": (load.isl, "tokens"),
        "request_latency": (served.end_ms - served.start_ms, "ms"),
        "time_to_first_token": (served.first_ms - served.start_ms, "ms"),
        **({"inter_token_latency": (itl[0], "ms")} if itl else {}),
        "usage_completion_tokens": (served.tokens, "tokens"),
    }
    metadata = {
        "session_num": served.number, "credit_issued_ns": start, "request_start_ns": start,
        "request_ack_ns": start, "request_end_ns": ns(served.end_ms), "benchmark_phase": phase, "was_cancelled": False,
    }  # fmt: skip
    return {"metadata": metadata, "metrics": {k: {"value": v, "unit": u} for k, (v, u) in metrics.items()}}
