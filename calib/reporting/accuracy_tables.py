"""Tables of how wrong the prediction is: by approach, by point, in throughput."""

from __future__ import annotations

from typing import Any

import numpy as np

from calib.coefficients import LOG2, LOG2_CONCURRENCY
from calib.fitting import FitResult
from calib.judging import (
    FLAT,
    PER_BACKEND,
    PER_MODEL,
    UNWEIGHTED,
    Accuracy,
    Fitted,
)
from calib.measure import records
from calib.names import IN_SAMPLE
from calib.reporting.table import CONFIGURATION, Column, Table, varying


def throughput_tables(shown: Fitted, everywhere: Fitted | None) -> list[Table]:
    """Calibrated output throughput [tok/s] of every configuration with its 95 % prediction interval.

    Where the fit is of the peaks, every measured concurrency is predicted beside it, by the form with a concurrency term.
    """
    tables = [_throughput("throughput", "Calibrated throughput", shown)]
    if everywhere is not None:
        title = f"Calibrated throughput at every concurrency, by {LOG2_CONCURRENCY.formula}"
        tables.append(_throughput("throughput_matched", title, everywhere))
    return [t for t in tables if t.rows]


def _throughput(name: str, title: str, shown: Fitted) -> Table:
    table = shown.table[shown.table["baseline_output_tokens_per_s"].notna()]
    rows: list[dict[str, Any]] = []
    for r in records(table):
        base, eta = r["baseline_output_tokens_per_s"], r["efficiency"]
        inside = "" if np.isnan(r["low"]) else "yes" if r["low"] <= eta <= r["high"] else "no"
        values = {k: base * r[k] for k in ("predicted", "low", "high")}
        rows.append(r | values | {"error_pct": 100 * (r["predicted"] / eta - 1), "inside": inside})
    known = [r for r in rows if r["inside"]]
    covered = f"{sum(r['inside'] == 'yes' for r in known)} of {len(known)} measurements lie inside, in sample."
    return Table(
        name=name,
        title=title,
        note="Output throughput of the whole replica from the measured TP=G/PP1 one, with its 95 % prediction interval. "
        + covered,
        columns=(
            *CONFIGURATION,
            Column("baseline_output_tokens_per_s", "TP=G/PP1 [tok/s]", "int"),
            Column("output_tokens_per_s", "measured [tok/s]", "int"),
            Column("predicted", "predicted [tok/s]", "int"),
            Column("low", "from [tok/s]", "int"),
            Column("high", "to [tok/s]", "int"),
            Column("error_pct", "error [%]", "points"),
            Column("inside", "inside"),
        ),
        rows=tuple(rows),
    )


def accuracy_table(accuracy: Accuracy, fit: FitResult) -> Table:
    """Mean and worst error of each approach, in sample and left out."""
    names = _approaches(fit)
    return Table(
        name="accuracy",
        title="How wrong the prediction is",
        note=(
            "Absolute error of the predicted efficiency in percentage points (pp), over points. Left out: each pp level is "
            "predicted from a fit to the other levels. Refused coefficients are included, to show why they are."
        ),
        columns=(
            Column("backend", "backend"),
            Column("approach", "approach"),
            Column("scheme", "scheme"),
            Column("mean_abs_error_pp", "mean error [pp]", "points"),
            Column("max_abs_error_pp", "worst error [pp]", "points"),
            Column("worst_point", "worst at"),
            Column("coverage", "predicted points"),
        ),
        rows=tuple(
            r | {"coverage": f"{r['predicted']} of {r['points']}", "approach": names.get(r["approach"], r["approach"])}
            for r in records(accuracy.summary)
        ),
        empty="Nothing could be predicted.",
    )


def _approaches(fit: FitResult) -> dict[str, str]:
    """The approaches in the words of the form and reference that were really fitted; the names speak of the published ones."""
    if fit.form.name == LOG2.name and fit.decomposition.reference == "baseline":
        return {}
    explained = "balance" if fit.decomposition.reference == "baseline" else "K * balance * fill"
    own = f"{explained} * ({fit.form.formula})"
    names = {PER_MODEL: f"{own}, each model its own", PER_BACKEND: f"{own}, one for the backend"}
    names[UNWEIGHTED] = f"{explained} * ({LOG2.formula}), each model its own, plain least squares"
    if fit.form.name != LOG2.name and not fit.form.needs_concurrency:
        names[FLAT] = f"{fit.form.formula}, no balance"
    return names


def predicted_table(accuracy: Accuracy) -> Table:
    """Measured and predicted efficiency of every point, per-model coefficients."""
    points = accuracy.points[accuracy.points["approach"] == PER_MODEL]
    more = varying(points)
    keys = ["backend", "model", *(c.key for c in more), "tp", "pp", "concurrency"]
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for r in records(points):
        row = rows.setdefault(tuple(str(r[k]) for k in keys), {k: r[k] for k in keys} | {"measured": r["measured"]})
        left = r["scheme"] != IN_SAMPLE
        row["left_out" if left else "predicted"] = r["predicted"]
        row["left_out_error_pp" if left else "error_pp"] = r["error_pp"]
    return Table(
        name="predicted",
        title="Measured and predicted efficiency",
        note="Each model by its own coefficient. Error = predicted - measured, in percentage points (pp).",
        columns=(
            *CONFIGURATION[:2],
            *more,
            *CONFIGURATION[2:],
            Column("measured", "measured [1]", "ratio"),
            Column("predicted", "predicted [1]", "ratio"),
            Column("error_pp", "error [pp]", "points"),
            Column("left_out", "left out [1]", "ratio"),
            Column("left_out_error_pp", "its error [pp]", "points"),
        ),
        rows=tuple(rows.values()),
    )
