"""The figure of `calib explain`."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from calib.errors import printable
from calib.pipeline import Explanation
from calib.reporting.efficiency_figure import BALANCE, FITTED, MEASURED, style


def draw_stages(explanation: Explanation) -> Figure:
    """Stage times [ms] with their hops, against the ideal and the realised cycle."""
    state, s = explanation.state, explanation.step
    times, busy = state.layout.stage_times_ms, state.busy_ms
    stage = np.arange(state.pp)
    with style():
        figure = Figure(figsize=(max(5.5, 0.7 * state.pp + 3), 3.6), layout="constrained")
        ax = figure.add_subplot()
        ax.bar(stage, times, color=MEASURED, label="compute")
        ax.bar(stage, busy - times, bottom=times, color="#93b4dd", label="hop to the next stage")
        ax.axhline(state.cycle_ms, color=FITTED, lw=1.4, label=f"realised cycle {state.cycle_ms:.3f} ms")
        ax.axhline(
            state.ideal_cycle_ms, color=BALANCE, ls="--", lw=1.4, label=f"ideal cycle {state.ideal_cycle_ms:.3f} ms"
        )
        ax.set_xticks(stage, [f"{i}\n{n} layers" for i, n in enumerate(state.layout.layers)])
        ax.set_xlabel("stage")
        ax.set_ylabel("time of one microbatch [ms]")
        ax.set_ylim(0, 1.1 * state.cycle_ms)
        ax.grid(axis="x", visible=False)
        ax.set_title(
            f"{printable(s.model)} on {s.backend}, TP{s.tp}/PP{s.pp}, C={state.concurrency}: balance {state.balance_factor:.3f}, "
            f"occupancy {state.occupancy:.3f}",
            fontsize=9,
            parse_math=False,
        )
        figure.legend(loc="outside lower center", ncols=2)
    return figure
