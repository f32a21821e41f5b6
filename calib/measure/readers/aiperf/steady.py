"""Throughput while the asked concurrency was in flight: the ramp at the start and the drain at the end left out.

With N requests of equal length at concurrency C the first and the last wave under-use the server; over the whole run
that bias can be as large as the effect of pipeline parallelism. The window reaches from the first request that made C
requests (nine tenths of them from C = 10 on) be in flight to the last one that did. In a complete run that is the start
of the last request; where requests were thrown away (an interrupt, a grace period of 0) they are not in the file, and the
window ends before the first of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calib.arrays import Array
from calib.measure.readers.aiperf.request_records import RecordSummary

BLOCKS = 5  # fewest blocks, each one median request long, from which a spread can be told
BINS_PER_BLOCK = 8
MOST_BINS = 4096
RESAMPLES = 1000


@dataclass(frozen=True)
class SteadyState:
    """Output throughput in the steady window [tok/s] and its relative standard error; None with a ``note`` that says why."""

    output_tokens_per_s: float | None
    rel_error: float | None
    note: str | None = None


def steady_throughput(records: RecordSummary, concurrency: int, rng: np.random.Generator) -> SteadyState:
    """Steady throughput of one run at a fixed ``concurrency``.

    The first token of a request is emitted at its TTFT, the others evenly from there to its end. The error is that of
    a circular block bootstrap over time (Politis and Romano 1992) with blocks of one median request: requests that start
    together end together, so shorter blocks would be correlated and the error too small.

    Parameters
    ----------
    records
        The requests of the run.
    concurrency
        The asked number of requests in flight.
    rng
        Source of the resampling, so that the same file gives the same error.
    """
    if not records.timed:
        return _without("requests do not all state when they began and ended")
    if np.isnan(records.ttft_ms).any() or records.total_osl is None:
        return _without("when the tokens were emitted is not known: a request states no TTFT or no length")
    origin = min(int(t.min()) for t in (records.start_ns, records.failed_start_ns) if t.size)
    start, end = (_seconds(times, origin) for times in (records.start_ns, records.end_ns))
    starts = np.concatenate([start, _seconds(records.failed_start_ns, origin)])
    ends = np.concatenate([end, _seconds(records.failed_end_ns, origin)])
    # A slot is empty for a moment between two requests. Of many slots some always are, so that all are full only by
    # chance: nine of ten count as the asked concurrency, and all of fewer than ten.
    span = steady_span(starts, ends, concurrency - concurrency // 10)
    if span is None:
        return _without(f"{concurrency} requests were never in flight at once")
    begin, window, request = span[0], span[1] - span[0], float(np.median(end - start))
    if request <= 0 or window < BLOCKS * request:
        return _without(f"the steady window of {window:.3g} s is shorter than {BLOCKS} requests of {request:.3g} s")
    count = min(BINS_PER_BLOCK * int(window / request), MOST_BINS)
    edges = begin + window * np.linspace(0.0, 1.0, count + 1)
    tokens = np.diff(emitted(edges, start + records.ttft_ms / 1e3, end, records.osl))
    total = float(tokens.sum())
    if total <= 0:
        return _without("no token was emitted in the steady window")
    per_block = max(1, round(count * request / window))
    return SteadyState(total / window, _bootstrap(tokens, per_block, rng) / total)


def steady_span(starts: Array, ends: Array, concurrency: int) -> tuple[float, float] | None:
    """When a start first and last made ``concurrency`` requests be in flight [s]; None where none did."""
    times = np.concatenate([ends, starts])
    change = np.concatenate([np.full(len(ends), -1), np.full(len(starts), 1)])
    order = np.argsort(times, kind="stable")  # at equal times the end comes first: a request takes another's place
    full = (np.cumsum(change[order]) >= concurrency) & (change[order] > 0)
    reached = times[order][full]
    return (float(reached[0]), float(reached[-1])) if reached.size else None


def emitted(at: Array, first: Array, end: Array, osl: Array) -> Array:
    """Tokens emitted by each time of ``at``, shape (len(at),), summed over requests of shape (n,).

    A sum of steps (first tokens) and ramps (the others). The ramps are summed by their changes of slope, in
    O((n + len(at)) log n) and not as a matrix of requests by times.
    """
    has = osl > 0
    if not has.any():
        return np.zeros(len(at))
    first, end, osl = first[has], np.maximum(end[has], first[has] + 1e-9), osl[has]
    slope = (osl - 1) / (end - first)
    times = np.concatenate([first, end])
    order = np.argsort(times, kind="stable")
    times = times[order]
    slopes = np.cumsum(np.concatenate([slope, -slope])[order])
    level = np.concatenate([[0.0], np.cumsum(slopes[:-1] * np.diff(times))])
    total: Array = np.searchsorted(np.sort(first), at, side="right") + np.interp(at, times, level)
    return total


def _bootstrap(tokens: Array, per_block: int, rng: np.random.Generator) -> float:
    """Standard error of the sum of ``tokens``, by blocks of ``per_block`` neighbours on a circle."""
    circle = np.concatenate([[0.0], np.cumsum(np.concatenate([tokens, tokens[: per_block - 1]]))])
    blocks = circle[per_block:] - circle[:-per_block]
    draws = len(tokens) // per_block
    picked = rng.integers(0, len(blocks), size=(RESAMPLES, draws))
    return float(blocks[picked].sum(axis=1).std(ddof=1)) * len(tokens) / (draws * per_block)


def _seconds(times: NDArray[np.int64], origin: int) -> Array:
    return (times - origin) / 1e9  # whole numbers are subtracted first: an epoch in ns does not fit a double


def _without(note: str) -> SteadyState:
    return SteadyState(None, None, note)
