"""Tables the ``aiconfigurator`` command writes (``pareto.csv``, ``best_config_topn.csv``): corrected and ranked again.

Nothing but the file's own columns is needed. With ``reference = "model"`` the factor multiplies each row's ``tokens/s``, the
model's ideal-PP throughput. With ``reference = "baseline"`` it multiplies the table's own TP=G/PP=1 row: at ``matched`` the one
of the same concurrency, at ``peak`` the best one, and then only the best row of each configuration is corrected, since that is
what such a coefficient speaks of. That baseline is a prediction, not a measurement, and the correction inherits its error.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from calib.coefficients import (
    APPLIED_FIELD,
    BASELINE_FIELD,
    MODEL_FIELD,
    NOT_APPLIED,
    Correction,
    Prediction,
    Predictor,
)
from calib.errors import CalibError, PointError, UsageError
from calib.integrations.aiconfigurator_rows import _series, _shape
from calib.notebook import csv_cell

ADDED = (
    "calib_rank", "uncalibrated_rank", "calib_factor", "calib_tokens/s", "calib_tokens/s_low95", "calib_tokens/s_high95",
    "calib_tokens/s/gpu", "calib_flag", "calib_problem", APPLIED_FIELD,
)  # fmt: skip
_MODEL_FIELDS = ("model", "isl", "osl", "tp", "pp", "dp", "concurrency", "system", "backend")


@dataclass(frozen=True)
class ApplyOptions:
    """How to apply: ``backend_version`` in place of the table's, what is allowed, and whether correction is on."""

    backend_version: str | None = None
    allow_refused: tuple[str, ...] = ()
    extrapolate: bool | tuple[str, ...] = False
    correction: Correction = "on"


@dataclass(frozen=True)
class Applied:
    """The rows with their new columns `ADDED`, best first, and which file did it.

    Rows that could not be corrected stand at the end, in their old order, with the reason in ``calib_problem``.
    """

    columns: tuple[str, ...]
    rows: tuple[Mapping[str, Any], ...]
    applied: str
    source: str
    notes: tuple[str, ...]

    @property
    def corrected(self) -> int:
        """Rows with PP > 1 that were corrected."""
        return sum(r["calib_rank"] is not None and int(r["pp"]) > 1 for r in self.rows)

    def to_csv(self) -> str:
        """The table as CSV."""
        stream = io.StringIO()
        writer = csv.DictWriter(stream, self.columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows({k: csv_cell(v) for k, v in row.items()} for row in self.rows)
        return stream.getvalue()

    def describe(self) -> list[str]:
        """What changed, in sentences."""
        ranked = [r for r in self.rows if r["calib_rank"] is not None]
        first = min(self.rows, key=lambda r: r["uncalibrated_rank"])
        lines = list(self.notes)
        if ranked:
            moved = sum(
                a["uncalibrated_rank"] > b["uncalibrated_rank"] for i, a in enumerate(ranked) for b in ranked[i + 1 :]
            )
            pairs = len(ranked) * (len(ranked) - 1) // 2
            lines.append(
                f"first before: {_said(first, 'tokens/s/gpu')}; first now: {_said(ranked[0], 'calib_tokens/s/gpu')}; {moved} of "
                f"{pairs} pairs of the {len(ranked)} ranked rows changed their order"
            )
        else:
            lines.append("no row with PP>1 could be corrected, so there is no new ranking")
        reasons = Counter(str(r["calib_problem"]) for r in self.rows if r["calib_problem"])
        for reason, n in reasons.most_common():
            lines.append(f"{n} of {len(self.rows)} rows could not be corrected: {reason}")
        if shaky := sum(r["calib_flag"] == "extrapolated" for r in self.rows):
            lines.append(f"{shaky} of {len(self.rows)} rows lie outside the coefficients' domain and are extrapolated")
        return lines


def apply_to_results(
    header: Sequence[str], rows: Sequence[Mapping[str, Any]], predictor: Predictor, options: ApplyOptions | None = None
) -> Applied:
    """Correct and rank the rows of `parse_results`.

    A row that cannot be predicted keeps its figures and gets the reason; nothing is dropped.
    """
    options = options or ApplyOptions()
    baselines = _Baselines.of(rows, predictor.coefficients.matching)
    order = sorted(range(len(rows)), key=lambda i: -rows[i]["_tokens/s/gpu"])
    before = {i: rank for rank, i in enumerate(order, start=1)}
    made = [
        _applied(row, predictor, baselines, options) | {"uncalibrated_rank": before[i]} for i, row in enumerate(rows)
    ]
    good = sorted((r for r in made if r["calib_tokens/s/gpu"] is not None), key=lambda r: -r["calib_tokens/s/gpu"])
    if not any(r["_pp"] > 1 for r in good) and any(r["_pp"] > 1 for r in rows):
        good = []  # a ranking of the PP=1 rows alone would look like a result
    ranked = [r | {"calib_rank": i} for i, r in enumerate(good, start=1)]
    rest = [r | {"calib_rank": None} for r in made if not good or r["calib_tokens/s/gpu"] is None]
    columns = (*header, *ADDED)
    return Applied(
        columns=columns,
        rows=tuple({name: r[name] for name in columns} for r in (*ranked, *rest)),
        applied=predictor.coefficients.digest if options.correction == "on" else NOT_APPLIED,
        source=predictor.source,
        notes=baselines.notes if predictor.coefficients.reference == "baseline" and options.correction == "on" else (),
    )


def best_predictor(
    header: Sequence[str], rows: Sequence[Mapping[str, Any]], predictors: Collection[Predictor], options: ApplyOptions
) -> Applied:
    """By the predictor that corrects most PP>1 rows; of equals the first, so give the newest first.

    Raises
    ------
    PointError
        There is no predictor at all.
    """
    tried = [apply_to_results(header, rows, p, options) for p in predictors]
    if not tried:
        raise PointError("no coefficient file is released", remedy="give one with --coefficients")
    return max(tried, key=lambda a: a.corrected)  # max keeps the first of equals


@dataclass(frozen=True)
class _Baselines:
    """The table's own TP=G/PP=1 throughputs [tok/s], and which rows are the best of their configuration."""

    matching: str
    at: Mapping[tuple[Any, ...], float]
    peaks: Mapping[tuple[Any, ...], float]
    notes: tuple[str, ...]

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, Any]], matching: str) -> _Baselines:
        at: dict[tuple[Any, ...], float] = {}
        peaks: dict[tuple[Any, ...], float] = {}
        loads: dict[tuple[Any, ...], int] = {}
        highest: dict[tuple[Any, ...], int] = {}
        for r in rows:
            if r["_pp"] > 1:
                highest[_series(r)] = max(highest.get(_series(r), 0), r["_concurrency"])
            peaks[_shape(r)] = max(peaks.get(_shape(r), 0.0), r["_tokens/s"])
            if r["_pp"] == 1 and r["_dp"] == 1:
                for load in (r["_concurrency"], None):
                    key = (*_series(r), load)
                    if r["_tokens/s"] > at.get(key, 0.0):
                        at[key] = r["_tokens/s"]
                        loads[key] = r["_concurrency"]
        notes = []
        for key, load in loads.items():
            most = highest.get(key[:-1], 0)
            if key[-1] is None and matching == "peak" and load < most:
                notes.append(
                    f"the table's best TP=G/PP1 row is at concurrency {load} and its PP>1 rows go up to {most}: a table "
                    "that keeps only a Pareto front may lack the PP1 peak, and what is predicted for PP>1 is then too low"
                )
        notes.append("the baseline is the table's own TP=G/PP1 row, a prediction and not a measurement")
        return cls(matching, at, peaks, tuple(notes))

    def find(self, row: Mapping[str, Any]) -> float:
        """What the factor of a row multiplies [tok/s].

        Raises
        ------
        PointError
            The table has no such row, or the row is not its configuration's peak.
        """
        if self.matching == "peak" and row["_tokens/s"] < self.peaks[_shape(row)]:
            raise PointError("not the best row of its configuration, which is all that peak coefficients speak of")
        load = None if self.matching == "peak" else row["_concurrency"]
        found = self.at.get((*_series(row), load))
        if found is None:
            where = "" if load is None else " at its concurrency"
            raise PointError(f"the table has no TP=G/PP1 row{where}, which reference 'baseline' multiplies")
        return found


def _applied(
    row: Mapping[str, Any], predictor: Predictor, baselines: _Baselines, options: ApplyOptions
) -> dict[str, Any]:
    """One row with its new columns."""
    gpus, empty = row["_num_total_gpus"], dict.fromkeys(ADDED)
    try:
        made = _predict(row, predictor, baselines, options)
    except UsageError:  # of the call, not of a row
        raise
    except CalibError as error:
        why = error.problem if error.field is None else f"{error.field}: {error.problem}"
        return dict(row) | empty | {"calib_problem": _general(why, row), APPLIED_FIELD: NOT_APPLIED}
    value, low, high = (float(x[0]) for x in (made.value, made.low, made.high))
    known = low == low
    return dict(row) | {
        "calib_factor": value / row["_tokens/s"], "calib_tokens/s": value, "calib_tokens/s_low95": low if known else None,
        "calib_tokens/s_high95": high if known else None, "calib_tokens/s/gpu": value / gpus,
        "calib_flag": str(made.flags[0]), "calib_problem": None, APPLIED_FIELD: made.applied,
    }  # fmt: skip


def _predict(row: Mapping[str, Any], predictor: Predictor, baselines: _Baselines, options: ApplyOptions) -> Prediction:
    point: dict[str, Any] = {name: row.get(f"_{name}", row[name]) for name in _MODEL_FIELDS}
    point["backend_version"] = options.backend_version or row["version"]
    if predictor.coefficients.reference == "model" or options.correction == "off" or row["_pp"] == 1:
        quantity = row["_tokens/s"]
    else:
        quantity = baselines.find(row)
    point[MODEL_FIELD if predictor.coefficients.reference == "model" else BASELINE_FIELD] = quantity
    return predictor.throughput(
        point, allow_refused=options.allow_refused, extrapolate=options.extrapolate, correction=options.correction
    )


def _general(why: str, row: Mapping[str, Any]) -> str:
    """A reason without what differs from row to row, so that equal ones can be counted."""
    text = why.removeprefix("point 0: ").replace("point 0 ", "")
    text = re.sub(rf" \({re.escape(row['model'])}[^()]*( \([^()]*\))?[^()]*\)(?= lies)", "", text)
    return re.sub(r" at TP\d+/PP\d+( at concurrency \d+)?", "", text)


def _said(row: Mapping[str, Any], column: str) -> str:
    return f"TP{row['tp']}/PP{row['pp']} at concurrency {row['concurrency']} ({float(row[column]):.0f} tok/s a GPU)"
