"""What others published for the same campaign, beside calib's own figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from calib.coefficients import LOG2
from calib.fitting import Decomposition, FitResult
from calib.judging import FLAT, PER_BACKEND, UNWEIGHTED, Accuracy
from calib.measure import Campaign, records
from calib.names import IN_SAMPLE
from calib.reporting.table import Column, Table

# The published table's own words for each approach, shortened to what tells them apart.
_APPROACHES = (("flat", FLAT), ("s_per_model", UNWEIGHTED), ("s_mean", PER_BACKEND))


def published_tables(
    campaign: Campaign, decomposition: Decomposition, fit: FitResult, accuracy: Accuracy
) -> list[Table]:
    """A comparison for each published table the campaign carries."""
    if campaign.config.published is None:
        return []
    note = campaign.config.published.note
    rows = campaign.published
    made = (
        _decomposition(rows.get("decomposition", ()), decomposition, note),
        *(  # published are s of this form and reference; another form's parameter is another number
            (
                _coefficients(rows.get("coefficients", ()), fit, note),
                _accuracy(rows.get("accuracy", ()), accuracy, note),
            )
            if (fit.form.name, decomposition.reference) == (LOG2.name, "baseline")
            else ()
        ),
    )
    return [t for t in made if t.rows]


def _decomposition(published: tuple[Mapping[str, str], ...], own: Decomposition, note: str) -> Table:
    rows = []
    for p in published:
        t = own.table
        hit = t[(t["model"] == p["model"]) & (t["backend"] == p["backend"]) & (t["pp"] == int(p["pp"]))]
        if len(hit) == 1:
            r = hit.iloc[0]
            rows.append(
                {
                    "backend": p["backend"], "model": p["model"], "pp": int(p["pp"]),
                    "published_total": float(p["total_penalty_pct"]), "total": r["total_penalty_pp"],
                    "published_balance": float(p["balance_share_pp"]), "balance": r["balance_share_pp"],
                    "published_scheduling": float(p["scheduling_residual_pp"]), "scheduling": r["scheduling_share_pp"],
                }
            )  # fmt: skip
    return Table(
        name="published_decomposition",
        title="Decomposition: published and here",
        note=note,
        columns=(
            Column("backend", "backend"), Column("model", "model"), Column("pp", "PP", "int"),
            Column("published_total", "total, published [pp]", "points"), Column("total", "here [pp]", "points"),
            Column("published_balance", "balance, published [pp]", "points"), Column("balance", "here [pp]", "points"),
            Column("published_scheduling", "scheduling, published [pp]", "points"),
            Column("scheduling", "here [pp]", "points"),
        ),
        rows=tuple(rows),
    )  # fmt: skip


def _coefficients(published: tuple[Mapping[str, str], ...], fit: FitResult, note: str) -> Table:
    by_model = {p["model"]: p for p in published}
    rows: list[dict[str, Any]] = []
    for s in fit.series:
        value = by_model.get(str(s.key["model"]), {}).get(f"{s.key['backend']}_s")
        if value:
            rows.append(
                {
                    "backend": s.key["backend"], "model": s.key["model"], "published": float(value),
                    "here": s.estimate.values[0], "verdict": s.verdict,
                }
            )  # fmt: skip
    return Table(
        name="published_coefficients",
        title="s: published and here",
        note=note,
        columns=(
            Column("backend", "backend"), Column("model", "model"), Column("published", "s, published [1]", "ratio"),
            Column("here", "s, here [1]", "ratio"), Column("verdict", "verdict here", "verdict"),
        ),
        rows=tuple(rows),
    )  # fmt: skip


def _accuracy(published: tuple[Mapping[str, str], ...], own: Accuracy, note: str) -> Table:
    rows: list[dict[str, Any]] = []
    summary = own.summary
    for p in published:
        mine = next((name for word, name in _APPROACHES if word in p["approach"]), None)
        chosen = summary[
            (summary["backend"] == p["backend"])
            & (summary["approach"] == (mine or UNWEIGHTED))
            & (summary["scheme"] == IN_SAMPLE)
        ]
        rows += [
            {
                "backend": p["backend"],
                "published_approach": p["approach"],
                "published_mean": p["mean_abs_error_pp"],
                "published_max": p["max_abs_error_pp"],
                "approach": r["approach"],
                "mean": r["mean_abs_error_pp"],
                "max": r["max_abs_error_pp"],
            }
            for r in records(chosen)
        ]
    return Table(
        name="published_accuracy",
        title="Error in sample: published and here",
        note=note,
        columns=(
            Column("backend", "backend"), Column("published_approach", "approach, published"),
            Column("published_mean", "mean, published [pp]"), Column("published_max", "worst, published [pp]"),
            Column("approach", "approach here"), Column("mean", "mean, here [pp]", "points"),
            Column("max", "worst, here [pp]", "points"),
        ),
        rows=tuple(rows),
    )  # fmt: skip
