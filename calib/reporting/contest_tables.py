"""Tables about the fit: the contest of forms, decisions, deviations of single levels, and predicted throughput."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from calib.coefficients import ContestRow
from calib.fitting import Decomposition
from calib.judging import NESTED, ONE_BACKEND, ONE_CONFIGURATION, ONE_MODEL, rank_decisions, summarize_decisions
from calib.measure import records
from calib.names import IN_SAMPLE, ONE_PP
from calib.reporting.table import Column, Table

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
    table = rank_decisions(decomposition)
    if table.empty:
        return []
    highest = table[table["concurrency"].isna() | (table["concurrency"] == _highest(table))]
    rows = [
        r | {"at": r["at"] if pd.isna(r["concurrency"]) else f"C={int(r['concurrency'])}"} for r in records(highest)
    ]
    over = [r | {"of": f"{r['hits']} of {r['rankings']}"} for r in records(summarize_decisions(table))]
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
