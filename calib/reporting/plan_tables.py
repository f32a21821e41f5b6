"""What to measure next, as a table."""

from __future__ import annotations

from calib.judging import DETECTION, MOST_REPEATS, Plan
from calib.measure import records
from calib.reporting.table import Column, Table


def plan_table(plan: Plan) -> Table:
    """The candidates of one series, best first; the note says what is assumed and what a drift needs."""
    n = plan.repeats_for_drift
    needed = f"more than {MOST_REPEATS} repeats" if n is None else f"{n} repeat{'s' if n > 1 else ''}"
    return Table(
        name="plan",
        title=f"What to measure next for {plan.series.key['model']} on {plan.series.key['backend']}",
        note=(
            f"1.96 standard errors of s by the stated errors, were TP scaling uncertain by {100 * plan.tp_spread:.0f} % "
            f"({plan.spread_from}); by {plan.options.draws} simulated campaigns, seed {plan.options.seed}. A change of s by "
            f"{plan.drift:.3f} is over {DETECTION:g} combined standard errors with {100 * plan.power:.0f} % probability from "
            f"{needed} of every run a night on."
        ),
        columns=(
            Column("what", "what"),
            Column("tp", "TP", "int"),
            Column("pp", "PP", "int"),
            Column("gpus", "GPUs", "int"),
            Column("concurrency", "C [requests]", "int"),
            Column("repeats", "runs", "int"),
            Column("gpu_hours", "GPU-hours [h]", "ratio"),
            Column("half_width_before", "1.96 standard errors of s now [1]", "ratio4"),
            Column("half_width_after", "with it, +- [1]", "ratio4"),
            Column("narrowing_per_gpu_hour", "narrower per GPU-hour [1/h]", "ratio4"),
        ),
        rows=tuple(records(plan.candidates)),
    )
