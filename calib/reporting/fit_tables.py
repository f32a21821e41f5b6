"""Tables about the fit: the contest of forms, decisions, deviations of single levels, and predicted throughput."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from calib.coefficients import ContestRow
from calib.contest import NESTED, ONE_BACKEND, ONE_CONFIGURATION, ONE_MODEL
from calib.decisions import decisions, summary
from calib.efficiency import LOG_PARTS, Decomposition
from calib.fitting import FitResult
from calib.names import IN_SAMPLE, ONE_PP
from calib.reporting.table import CONFIGURATION, Column, Table
from calib.residual import LOG2_CONCURRENCY
from calib.schema import records
from calib.views import Prediction

_SCOPES = {"model": "each model its own", "partial": "partially pooled", "backend": "one for all", "nested": "nested"}
_SCHEMES = {IN_SAMPLE: "in_sample", ONE_PP: "one_pp", ONE_CONFIGURATION: "configuration", ONE_MODEL: "one_model",
            ONE_BACKEND: "one_backend", NESTED: "one_model"}  # fmt: skip


def contest_tables(rows: Sequence[ContestRow]) -> list[Table]:
    """Every way to fit with its error in sample and left out; the winner of each scheme is marked."""
    if not rows:
        return []
    found: dict[tuple[str, ...], dict[str, Any]] = {}
    for r in rows:
        row = found.setdefault(
            (r.backend, r.form, r.scope, r.balance),
            {"backend": r.backend, "form": r.form, "scope": _SCOPES[r.scope], "balance": r.balance},
        )
        name = _SCHEMES[r.scheme]
        if r.mape_pct is not None:
            some = "" if r.predicted == r.points else f" ({r.predicted} of {r.points})"
            row[name] = f"{r.mape_pct:.2f}{some}" + (" winner" if r.winner else "")
        row[f"{name}_mape_pct"] = r.mape_pct
        if r.scheme in (ONE_MODEL, NESTED):
            row["worst"] = r.worst_point
        if r.chi_square_2k is not None:
            row["cost"] = r.chi_square_2k
    return [
        Table(
            name="contest",
            title="The contest of forms",
            note=(
                "Mean absolute error of the efficiency [%], over points, for every form, pooled in three ways, with "
                "the balance as computed and with 1. 'selected' is the honest error where the way itself is chosen: "
                "on the other models, judged on the one left out. A backend left out is for information: nothing "
                "falls back across backends."
            ),
            columns=(
                Column("backend", "backend"),
                Column("form", "form"),
                Column("scope", "curves"),
                Column("balance", "balance"),
                Column("in_sample", "in sample [%]"),
                Column("one_pp", "one pp left out [%]"),
                Column("configuration", "one (model, tp, pp) left out [%]"),
                Column("one_model", "one model left out [%]"),
                Column("one_backend", "this backend left out [%]"),
                Column("cost", "chi-square + 2k", "points"),
                Column("worst", "worst point, its model left out", "long"),
            ),
            rows=tuple(found.values()),
        )
    ]


def decision_tables(decomposition: Decomposition) -> list[Table]:
    """What the model would have picked, what silicon says, and what the choice costs."""
    table = decisions(decomposition)
    if table.empty:
        return []
    highest = table[table["concurrency"].isna() | (table["concurrency"] == _highest(table))]
    rows = [
        r | {"at": r["at"] if pd.isna(r["concurrency"]) else f"C={int(r['concurrency'])}"} for r in records(highest)
    ]
    over = [r | {"of": f"{r['hits']} of {r['rankings']}"} for r in records(summary(table))]
    columns = (Column("backend", "backend"), Column("model", "model"))
    ranked, known = table["model"].nunique(), decomposition.table["model"].nunique()
    some = f" {ranked} of {known} models are ranked, evenly spaced." if ranked < known else ""
    return [
        Table(
            name="decisions",
            title="Does it choose the right configuration",
            note=(
                "The configurations of one GPU count ranked by predicted throughput, against silicon: at the "
                "uncalibrated model's own optimum concurrency, and at the highest matched one. tau: Kendall's, +1 "
                "the right order, -1 upside down. Regret: what the choice loses of the best throughput." + some
            ),
            columns=(
                *columns,
                Column("at", "concurrency"),
                Column("approach", "prediction"),
                Column("chosen", "it picks"),
                Column("best", "silicon says"),
                Column("tau", "tau [1]", "ratio"),
                Column("regret_pct", "regret [%]", "points"),
            ),
            rows=tuple(rows),
        ),
        Table(
            name="decisions_by_concurrency",
            title="Decisions over all concurrencies",
            note="Means are over rankings, one a concurrency.",
            columns=(
                *columns,
                Column("at", "concurrency"),
                Column("approach", "prediction"),
                Column("of", "best one chosen"),
                Column("tau", "mean tau [1]", "ratio"),
                Column("regret_pct", "mean regret [%]", "points"),
                Column("worst_regret_pct", "worst regret [%]", "points"),
                Column("chosen", "picks"),
            ),
            rows=tuple(over),
        ),
    ]


def _highest(table: pd.DataFrame) -> pd.Series:
    """The highest concurrency of each model, row by row."""
    return table.groupby(["backend", "model"])["concurrency"].transform("max")


def deviation_tables(fit: FitResult) -> list[Table]:
    """The interaction of TP and PP: how far single levels lie off the curve through the others."""
    rows = [
        r if r["deviation_pct"] > -100 else r | {"deviation_pct": None, "stderr_pct": None}
        for r in records(fit.deviations())
    ]
    if not rows:
        return []
    return [
        Table(
            name="deviations",
            title="Levels that break the curve",
            note=(
                "How far each (tp, pp) lies off the curve through the other levels, with its standard error and "
                "p-value; empty where that curve is negative. "
                "Where a cliff is real, `--form free` publishes one value a level instead of a curve, and "
                "nothing between."
            ),
            columns=(
                *CONFIGURATION[:4],
                Column("deviation_pct", "deviation [%]", "points"),
                Column("stderr_pct", "standard error [%]", "points"),
                Column("p_value", "p", "p"),
            ),
            rows=tuple(rows),
        )
    ]


def log_share_tables(model: FitResult | None) -> list[Table]:
    """The log-additive decomposition of ``reference = "model"``; the parts add up to the total in every row."""
    if model is None:
        return []
    decomposition = model.decomposition
    parts = [Column(name, f"{label} [log-%]", "points") for name, label in LOG_PARTS.items()]
    shares = [Column(f"{name}_pct", f"{label} of total [%]", "percent") for name, label in LOG_PARTS.items()]
    return [
        Table(
            name="log_shares",
            title="Where the throughput goes, by the model's own account",
            note=(
                "100*ln of each factor of efficiency = K * balance * fill * residual. The parts add up to the total,"
                " line by line, and their shares to 100 %. Positive is a gain."
            ),
            columns=(*CONFIGURATION, *parts, Column("total", "total [log-%]", "points"), *shares),
            rows=tuple(records(decomposition.log_shares())),
        )
    ]


def throughput_tables(shown: Prediction, everywhere: Prediction | None) -> list[Table]:
    """Calibrated output throughput [tok/s] of every configuration with its 95 % prediction interval.

    Where the fit is of the peaks, every measured concurrency is predicted beside it, by the form with a concurrency term.
    """
    tables = [_throughput("throughput", "Calibrated throughput", shown)]
    if everywhere is not None:
        title = f"Calibrated throughput at every concurrency, by {LOG2_CONCURRENCY.formula}"
        tables.append(_throughput("throughput_matched", title, everywhere))
    return [t for t in tables if t.rows]


def _throughput(name: str, title: str, shown: Prediction) -> Table:
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
