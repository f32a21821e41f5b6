"""Tables about the pipeline model: what ``s`` hangs on, and the roofline's view of the balance factors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from calib.measure import Campaign
from calib.pipeline import TELLING, compare_with_roofline
from calib.reporting.table import CONFIGURATION, Column, Table


def sensitivity_tables(rows: tuple[Mapping[str, Any], ...]) -> list[Table]:
    """``s`` under each choice that the data do not make."""
    if not rows:
        return []
    return [
        Table(
            name="sensitivity",
            title="How much s hangs on choices",
            note="The same campaign, fitted under choices the data do not make. Only the first is published.",
            columns=(
                Column("choice", "choice"),
                Column("backend", "backend"),
                Column("model", "model"),
                Column("points", "points", "int"),
                Column("s", "s [1]", "ratio"),
                Column("stderr", "standard error [1]", "ratio"),
                Column("verdict", "verdict", "verdict"),
                Column("note", "note", "long"),
            ),
            rows=rows,
        )
    ]


def physics_tables(rows: tuple[Mapping[str, Any], ...]) -> list[Table]:
    """Left-out error under each view of the physics, for one way to fit that was fixed beforehand."""
    if not rows:
        return []
    return [
        Table(
            name="physics",
            title="How far better physics gets",
            note=(
                "Mean absolute error of the efficiency [%] at matched concurrency, by the partially pooled form with"
                " a concurrency term, which was fixed beforehand. Nothing was chosen by looking at the left-out "
                "points."
            ),
            columns=(
                Column("choice", "physics"),
                Column("backend", "backend"),
                Column("points", "points", "int"),
                Column("in_sample", "in sample [%]", "points"),
                Column("configuration", "one (model, tp, pp) left out [%]", "points"),
                Column("model", "one model left out [%]", "points"),
                Column("worst", "worst point, its model left out"),
            ),
            rows=rows,
        )
    ]


def roofline_tables(campaign: Campaign) -> list[Table]:
    """The balance factors of the campaign's source against those of the roofline, for the configurations of the fit."""
    if campaign.breakdowns is None or campaign.config.balance is None:
        return []
    steps = [s for s in campaign.breakdowns.steps if s.kind == "decode" and s.pp > 1]
    highest: dict[tuple[object, ...], int] = {}
    for s in steps:
        highest[s.key[:-1]] = max(highest.get(s.key[:-1], 0), s.concurrency or 0)
    shown = [s for s in steps if (s.concurrency or 0) == highest[s.key[:-1]]]
    compared = compare_with_roofline(campaign.breakdowns, shown, campaign.config.balance.partition)
    if not compared:
        return []
    rows = [
        {
            "backend": c.step.backend, "model": c.step.model, "tp": c.step.tp, "pp": c.step.pp,
            "concurrency": c.step.concurrency, "source": c.source, "roofline": c.roofline, "difference": c.difference,
            "reason": c.reason,
        }
        for c in sorted(compared, key=lambda c: (c.step.backend, c.step.model, c.step.pp))
    ]  # fmt: skip
    return [
        Table(
            name="roofline",
            title="Balance factors by the roofline",
            note=(
                f"A check of the source by peak figures alone, at the highest concurrency. A difference above {TELLING:g} is "
                "explained by what sets the balance: the times of the layers and of the head, and the op that "
                "differs most."
            ),
            columns=(
                *CONFIGURATION,
                Column("source", "source [1]", "ratio"),
                Column("roofline", "roofline [1]", "ratio"),
                Column("difference", "roofline - source [1]", "ratio"),
                Column("reason", "why", "long"),
            ),
            rows=tuple(rows),
        )
    ]
