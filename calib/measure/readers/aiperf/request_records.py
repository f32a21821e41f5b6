"""The requests of one aiperf run, from its per-request file.

Six numbers a request are kept (48 bytes, about 2 % of the shortest lines), so that memory is bounded for all practical
files. How lines are read, and which are errors, says `aiperf_stream`.
"""

from __future__ import annotations

import array
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calib.measure.readers.aiperf.stream import RecordStream, RequestError, RequestMetrics, RequestRecord


@dataclass(frozen=True)
class RecordSummary:
    """The requests of one file, without those of a warm-up.

    Attributes
    ----------
    sha256
        Hex digest of the whole file.
    completed, failed, cancelled, warmup
        Numbers of requests; ``cancelled`` ones are among the ``failed``, ``warmup`` ones are in no other figure.
    usage_count
        Completed requests for which the server reported how many tokens it made.
    errors
        HTTP code, or type of error where there is none -> number of requests.
    cut_last_line
        The file ends within a record, which is left out.
    start_ns, end_ns : int64 arrays, shape (completed,)
        Epoch times [ns], in order of completion; 0 where unknown.
    failed_start_ns, failed_end_ns : int64 arrays, shape (failed,)
        The same of failed requests.
    ttft_ms, itl_ms, osl : float arrays, shape (completed,)
        Of completed requests only [ms, tokens]; NaN where unknown.
    client_delay_ms : float array, shape (completed + failed,)
        From the tool's decision to send a request to its start [ms]; NaN where unknown.
    """

    sha256: str
    completed: int
    failed: int
    cancelled: int
    warmup: int
    usage_count: int
    errors: Mapping[str, int]
    cut_last_line: bool
    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    failed_start_ns: NDArray[np.int64]
    failed_end_ns: NDArray[np.int64]
    ttft_ms: NDArray[np.float64]
    itl_ms: NDArray[np.float64]
    client_delay_ms: NDArray[np.float64]
    osl: NDArray[np.float64]

    @property
    def timed(self) -> bool:
        """Whether every request states when it began and ended."""
        times = (self.start_ns, self.end_ns, self.failed_start_ns, self.failed_end_ns)
        return self.completed > 0 and all(bool((t > 0).all()) for t in times)

    @property
    def latency_ms(self) -> NDArray[np.float64]:
        """From start to end of each completed request [ms], shape (completed,); NaN where unknown."""
        known = (self.start_ns > 0) & (self.end_ns > 0)
        return np.where(known, (self.end_ns - self.start_ns) / 1e6, np.nan)

    @property
    def total_osl(self) -> float | None:
        """Output tokens of the completed requests; None where one does not state its own."""
        return float(self.osl.sum()) if self.completed and not np.isnan(self.osl).any() else None

    @property
    def duration_s(self) -> float | None:
        """From the start of the first request to the end of the last completed one [s]."""
        if not self.timed:
            return None
        first = min(int(t.min()) for t in (self.start_ns, self.failed_start_ns) if t.size)
        return (int(self.end_ns.max()) - first) / 1e9

    def describe_errors(self) -> str:
        """The errors in words, the most frequent first: ``500 x 8``."""
        ordered = sorted(self.errors.items(), key=lambda e: (-e[1], e[0]))
        return ", ".join(f"{name} x {count}" for name, count in ordered)


def iter_records(path: Path) -> Iterator[RequestRecord]:
    """Every record of the file as it stands there: those of a warm-up and failed ones too.

    A last line that was cut is left out; `read_records` says whether there was one.

    Raises
    ------
    CampaignError
        The file cannot be read.
    BadLineError
        A line is not a record.
    """
    stream = RecordStream(path, digest=False)
    for batch in stream.batches():
        yield from batch


def read_records(path: Path) -> RecordSummary:
    """All requests of the file, in one pass. Raises what `iter_records` raises."""
    stream = RecordStream(path, digest=True)
    columns = _Columns()
    for batch in stream.batches():
        columns.add(batch)
    return columns.summary(stream)


_NAN = float("nan")
_NO_METRICS = RequestMetrics()
_DTYPES = {"q": np.dtype(np.int64), "d": np.dtype(np.float64)}
_KINDS: dict[str, str] = {
    "start_ns": "q", "end_ns": "q", "credit_ns": "q", "failed_start_ns": "q", "failed_end_ns": "q", "failed_credit_ns": "q",
    "ttft_ms": "d", "itl_ms": "d", "osl": "d",
}  # fmt: skip


@dataclass
class _Columns:
    """The figures of many records, gathered column by column: a list of records would not be bounded."""

    numbers: dict[str, array.array[Any]] = field(
        default_factory=lambda: {name: array.array(kind) for name, kind in _KINDS.items()}
    )
    errors: Counter[str] = field(default_factory=Counter)
    cancelled: int = 0
    warmup: int = 0
    usage: int = 0

    def add(self, batch: list[RequestRecord]) -> None:
        good = [
            r
            for r in batch
            if r.error is None and (m := r.metadata).benchmark_phase == "profiling" and not m.was_cancelled
        ]
        if len(good) != len(batch):
            good = self._sort_out(batch)
        times = [r.metadata for r in good]
        metrics = [r.metrics or _NO_METRICS for r in good]
        put = self.numbers
        put["start_ns"].fromlist([t.request_start_ns or 0 for t in times])
        put["end_ns"].fromlist([t.request_end_ns or 0 for t in times])
        put["credit_ns"].fromlist([t.credit_issued_ns or 0 for t in times])
        put["ttft_ms"].fromlist([v.value or _NAN if (v := m.time_to_first_token) else _NAN for m in metrics])
        put["itl_ms"].fromlist([v.value or _NAN if (v := m.inter_token_latency) else _NAN for m in metrics])
        lengths = [m.output_sequence_length for m in metrics]
        put["osl"].fromlist([_NAN if n is None or n.value is None else n.value for n in lengths])
        self.usage += len(metrics) - [m.usage_completion_tokens for m in metrics].count(None)

    def _sort_out(self, batch: list[RequestRecord]) -> list[RequestRecord]:
        """The completed requests of a batch that has others too, which are counted here."""
        measured = [r for r in batch if r.metadata.benchmark_phase in ("profiling", None)]
        self.warmup += len(batch) - len(measured)
        self._add_failed([r for r in measured if r.error is not None or r.metadata.was_cancelled])
        return [r for r in measured if r.error is None and not r.metadata.was_cancelled]

    def _add_failed(self, failed: list[RequestRecord]) -> None:
        for record in failed:
            self.cancelled += bool(record.metadata.was_cancelled)
            error = record.error or RequestError(type="cancelled")
            self.errors[str(error.type if error.code is None else error.code)] += 1
            self.numbers["failed_start_ns"].append(record.metadata.request_start_ns or 0)
            self.numbers["failed_end_ns"].append(record.metadata.request_end_ns or 0)
            self.numbers["failed_credit_ns"].append(record.metadata.credit_issued_ns or 0)

    def summary(self, stream: RecordStream) -> RecordSummary:
        found: dict[str, Any] = {
            name: np.frombuffer(column, _DTYPES[column.typecode]) for name, column in self.numbers.items()
        }
        credit = np.concatenate([found.pop("credit_ns"), found.pop("failed_credit_ns")])
        start = np.concatenate([found["start_ns"], found["failed_start_ns"]])
        delay = np.where(credit > 0, (start - credit) / 1e6, np.nan)
        return RecordSummary(
            sha256=stream.digest.hexdigest() if stream.digest else "",
            completed=len(found["start_ns"]),
            failed=self.errors.total(),
            cancelled=self.cancelled,
            warmup=self.warmup,
            usage_count=self.usage,
            errors=dict(self.errors),
            cut_last_line=stream.cut_last_line,
            client_delay_ms=delay,
            **found,
        )
