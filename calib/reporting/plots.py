"""Figures. ``plot_*`` returns a matplotlib Figure and touches no global state; `svg` makes it text, the same every time."""

from __future__ import annotations

import io
import math
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from calib.fitting import FitResult, SeriesFit

STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "legend.frameon": False,
    "svg.hashsalt": "calib",
    "svg.fonttype": "path",
}
MEASURED, FITTED, BALANCE = "#1f4e8c", "#c2410c", "#6b7280"
VERDICT_WORDS = {"FIT": "FIT", "WARN": "WARN", "REFUSED": "REFUSED"}


def plot_efficiency(fit: FitResult, backend: str) -> Figure:
    """Efficiency [1] against pp [stages] for every model of a backend: measured, fitted, and what balance alone explains."""
    series = [s for s in fit.series if s.key["backend"] == backend]
    columns = min(2, len(series))
    lines = math.ceil(len(series) / columns)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(4.6 * columns, 3.3 * lines + 0.4), layout="constrained")
        axes = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False)
        flat = list(axes.flat)
        for ax, s in zip(flat, series, strict=False):
            _panel(ax, s, fit)
        for ax in flat[len(series) :]:
            ax.remove()
        for ax in axes[:, 0]:
            ax.set_ylabel("efficiency vs TP=G/PP1 [1]")
        for ax in flat[max(0, len(series) - columns) : len(series)]:
            ax.set_xlabel("pipeline stages pp (log scale)")
            ax.tick_params(labelbottom=True)
        handles, labels = _legend(flat[: len(series)])
        figure.legend(handles, labels, loc="outside upper center", ncols=min(4, len(labels)))
    return figure


def alt_text(fit: FitResult, backend: str) -> str:
    """What the figure shows, in words, for those who do not see it."""
    parts = []
    for s in fit.series:
        if s.key["backend"] == backend:
            values = ", ".join(
                f"{e:.2f} at PP={int(p)}" for p, e in zip(s.points["pp"], s.points["efficiency"], strict=True)
            )
            parts.append(f"{s.key['model']} ({s.verdict}): {values}")
    return f"Efficiency against pipeline stages on {backend}. " + "; ".join(parts)


def svg(figure: Figure) -> str:
    """The figure as SVG text that depends on nothing but its content."""
    stream = io.StringIO()
    with mpl.rc_context(STYLE):
        figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None})
    return stream.getvalue()


def _panel(ax: Axes, s: SeriesFit, fit: FitResult) -> None:
    points = s.points
    many = (
        points["concurrency"].nunique() > 1 and points["concurrency"].notna().all() and points["pp"].duplicated().any()
    )
    groups = [(str(c), g) for c, g in points.groupby("concurrency", sort=True)] if many else [(None, points)]
    colors = mpl.colormaps["viridis"](np.linspace(0.0, 0.85, len(groups)))
    for (c, group), color in zip(groups, colors, strict=True):
        _curves(ax, s, fit, group.sort_values("pp"), color if many else None, f"C={c}" if many else None)
    levels = [1, *sorted({int(p) for p in points["pp"]})]
    ax.set_xscale("log", base=2)
    ax.set_xticks(levels, [str(p) for p in levels])
    ax.minorticks_off()
    ax.set_ylim(0, max(1.05, 1.05 * float(points["efficiency"].max())))
    e = s.estimate
    about = "" if e.stderr is None else f" ± {e.stderr[0]:.3f}"
    ax.set_title(f"{s.key['model']}\n{VERDICT_WORDS[s.verdict]}: s = {e.values[0]:.3f}{about}", fontsize=9)


def _curves(ax: Axes, s: SeriesFit, fit: FitResult, group: pd.DataFrame, color: Any, label: str | None) -> None:
    pp = np.concatenate([[1.0], group["pp"].to_numpy(dtype=np.float64)])
    balance = np.concatenate([[1.0], group["balance_factor"].to_numpy(dtype=np.float64)])
    curve = balance * fit.form.residual(pp, s.estimate.values)
    eta = np.concatenate([[1.0], group["efficiency"].to_numpy(dtype=np.float64)])
    error = eta[1:] * np.hypot(group["rel_error"].to_numpy(), group["baseline_rel_error"].to_numpy())
    if label is None:
        ax.plot(pp, balance, ls=":", color=BALANCE, label="balance factor alone")
        if s.estimate.interval95:
            low, high = (
                fit.form.residual(pp, [b]) for b in (s.estimate.interval95[0].high, s.estimate.interval95[0].low)
            )
            ax.fill_between(pp, balance * np.maximum(low, 0), balance * high, color=FITTED, alpha=0.12, lw=0,
                            label="95 % interval of s")  # fmt: skip
    style = "--" if s.verdict != "REFUSED" else (0, (1, 2))
    name = "fitted" if s.verdict != "REFUSED" else "fitted, refused"
    ax.plot(pp, curve, ls=style, color=FITTED if color is None else color, label=name if label is None else None)
    ax.errorbar(pp[1:], eta[1:], yerr=error, fmt="o", ms=4.5, capsize=2, color=MEASURED if color is None else color,
                label=label or "measured (error bar: 1 sigma)")  # fmt: skip


def _legend(axes: list[Axes]) -> tuple[list[Any], list[str]]:
    found: dict[str, Any] = {}
    for ax in axes:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    return list(found.values()), list(found)
