"""Trials of one cell as one run.

Throughput is the mean over trials, each recomputed, and its standard error is that between trials: it holds what a single
run cannot show. Requests, errors and durations are summed. A median of medians is no median, so latencies are pooled from
the per-request files of all trials, and left out where one of them has no such file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from calib.measure.readers.aiperf.cells import Cell
from calib.measure.readers.aiperf.request_records import RecordSummary
from calib.measure.readers.read_run import ReadRun

SUMMED = frozenset({"osl_mismatch_count", "usage_completion_count", "requested_requests"})
ANY = frozenset({"cancelled", "incomplete", "cut_last_line", "duration_limited"})
ALL = frozenset({"ready_marker", "warmup", "streaming", "ignore_eos", "random_prompts"})
AVERAGED = (
    "effective_concurrency", "measured_isl", "measured_osl", "usage_diff_pct", "inter_chunk_ms", "inter_token_ms",
    "chunks_received", "tool_output_tokens_per_s",
)  # fmt: skip
POOLED: Mapping[str, tuple[str, float]] = {  # name -> column of the per-request file and percentile
    "ttft_p50_ms": ("ttft_ms", 50),
    "itl_p50_ms": ("itl_ms", 50),
    "ttft_p99_ms": ("ttft_ms", 99),
    "request_latency_p50_ms": ("latency_ms", 50),
    "client_delay_p99_ms": ("client_delay_ms", 99),
}


def merge_trials(cells: Sequence[Cell]) -> list[ReadRun]:
    """One run per cell. Runs that share no id are no trials of each other, even where they ask for the same."""
    groups: dict[tuple[str, str], list[Cell]] = {}
    for index, cell in enumerate(cells):
        groups.setdefault((cell.group, cell.identity) if cell.group else (str(index), ""), []).append(cell)
    return [_merged(sorted(trials, key=_order)) if len(trials) > 1 else trials[0].run for trials in groups.values()]


def _order(cell: Cell) -> tuple[str, str]:
    return cell.started, cell.run.source_file


def _merged(trials: list[Cell]) -> ReadRun:
    runs = [t.run for t in trials]
    stated = dict(runs[0].stated)
    for name in ("completed_requests", "failed_requests", "duration_s"):
        stated[name] = _every(runs, name, math.fsum)
    for name in ("requests_per_s", "output_tokens_per_s"):
        stated[name] = _every(runs, name, _mean)
    stated["output_tokens_per_s_stderr"] = _every(runs, "output_tokens_per_s", _stderr)
    records = [t.records for t in trials if t.records and not t.records.cut_last_line]
    pooled = records if len(records) == len(trials) else []
    stated["ttft_p50_ms"], stated["itl_p50_ms"] = (_pooled(pooled, name) for name in ("ttft_p50_ms", "itl_p50_ms"))
    itl = np.concatenate([r.itl_ms for r in pooled]) if pooled else np.array([np.nan])
    stated["tpot_mean_ms"] = float(itl.mean()) if itl.size and not np.isnan(itl).any() else None
    facts = _facts(runs)
    for name in ("ttft_p99_ms", "request_latency_p50_ms", "client_delay_p99_ms"):
        facts[name] = _pooled(pooled, name)
    facts |= _steady(runs)
    facts["trials"] = len(runs)
    facts["trial_files"] = tuple(pair for run in runs for pair in _files(run))
    steady = ("steady_output_tokens_per_s", "steady_rel_error")
    return ReadRun(
        runs[0].source_file, 0, runs[0].source_sha256,
        {k: v for k, v in stated.items() if v is not None},
        {k: v for k, v in facts.items() if v is not None or k in steady},
    )  # fmt: skip


def _files(run: ReadRun) -> list[tuple[str, str]]:
    """The files one trial was read from, each with its digest."""
    files = [(run.source_file, run.source_sha256)]
    if "records_file" in run.facts:
        files.append((str(run.facts["records_file"]), str(run.facts["records_sha256"])))
    return files


def _facts(runs: list[ReadRun]) -> dict[str, Any]:
    """Facts of all trials: counts summed, means averaged, a warning of one is a warning of all."""
    facts: dict[str, Any] = {}
    for name in dict.fromkeys(name for run in runs for name in run.facts):
        values: list[Any] = [run.facts[name] for run in runs if name in run.facts]
        if name in ANY:
            facts[name] = any(values)
        elif len(values) < len(runs) and name not in ("throughput_note", "stale"):
            continue
        elif name in ALL:
            facts[name] = all(values)
        elif name in SUMMED:
            facts[name] = sum(values)
        elif name in AVERAGED:
            facts[name] = _mean(values)
        elif name == "throughput_note":
            facts[name] = f"in one of {len(runs)} trials {values[0]}"
        else:
            facts[name] = values[0]  # of the first trial: its ids, or what all trials share
    return facts


def _steady(runs: list[ReadRun]) -> dict[str, object]:
    """Mean of the steady throughputs, and the error of that mean from the errors within each trial."""
    names = ("steady_output_tokens_per_s", "steady_rel_error")
    if not any(names[0] in r.facts for r in runs):
        return {}
    pairs = [(r.facts.get(names[0]), r.facts.get(names[1])) for r in runs]
    known = [(x, e) for x, e in pairs if isinstance(x, float) and isinstance(e, float)]
    if len(known) < len(runs):
        notes = [r.facts["steady_note"] for r in runs if "steady_note" in r.facts]
        return {names[0]: None, names[1]: None, "steady_note": notes[0] if notes else "not every trial has one"}
    total = math.fsum(x for x, _ in known)
    error = math.sqrt(math.fsum((x * e) ** 2 for x, e in known)) / total
    return {names[0]: total / len(known), names[1]: error}


def _pooled(records: list[RecordSummary], name: str) -> float | None:
    column, percentile = POOLED[name]
    values = np.concatenate([getattr(r, column) for r in records]) if records else np.array([])
    return float(np.percentile(values, percentile)) if values.size and not np.isnan(values).any() else None


def _every(runs: list[ReadRun], name: str, how: Callable[[list[float]], float]) -> float | None:
    """A figure of all trials; None where one of them does not state it."""
    values = [run.stated.get(name) for run in runs]
    numbers = [float(v) for v in values if isinstance(v, (int, float))]
    return how(numbers) if len(numbers) == len(runs) else None


def _mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)


def _stderr(values: list[float]) -> float:
    mean = _mean(values)
    return math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1) / len(values))
