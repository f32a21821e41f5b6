"""Figures of accuracy and decomposition; every one has a table behind it. See `efficiency_figure` for the style."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from calib.arrays import Array
from calib.errors import printable
from calib.fitting import LOG_PARTS, FitResult
from calib.judging import Fitted
from calib.reporting.efficiency_figure import alt_text, draw_efficiency, drawn, style
from calib.reporting.table import varying

MOST_BARS = 40
MARKERS = "osD^v<>ph*"
PARTS = {"balance": "#6b7280", "scheduling, as fitted": "#c2410c", "unattributed": "#a78bfa", "left over": "#1f4e8c"}
LOG_COLORS = {"k_model": "#0f766e", "balance_factor": "#6b7280", "fill_factor": "#d18f00", "scheduling": "#c2410c",
              "unattributed": "#a78bfa"}  # fmt: skip


@dataclass(frozen=True)
class Shown:
    """One figure of the report: file name without ending, the table behind it, words for those who do not see it."""

    name: str
    table: str
    caption: str
    alt: str
    draw: Callable[[], Figure]


def figures(fit: FitResult, shown: Fitted, model: FitResult | None) -> list[Shown]:
    """The figures of a report in the order they are shown; none where there is nothing to draw.

    ``shown`` are the predictions to compare with measurements, at every concurrency where there are several; ``model`` is
    the fit with ``reference = "model"``, where the campaign has one.
    """
    predicted = shown.table
    found: list[Shown] = []
    for backend in sorted({str(s.key["backend"]) for s in fit.series}):
        some = drawn(fit, backend)
        total = sum(s.key["backend"] == backend for s in fit.series)
        of = "" if len(some) == total else f" {len(some)} of {total} models are drawn, evenly spaced."
        found.append(
            Shown(f"efficiency-{backend}", "observed", f"{backend}: measured and fitted efficiency.{of}",
                  alt_text(fit, backend), lambda b=backend: draw_efficiency(fit, b))  # type: ignore[misc]
        )  # fmt: skip
    shares = loss_shares(fit)
    if len(shares):
        found.append(
            Shown("decomposition", "decomposition", _some("Where the throughput goes", shares),
                  _words("Loss of throughput in percentage points", shares, list(PARTS)[:3]), lambda: plot_losses(shares))
        )  # fmt: skip
    if model is not None and len(model.decomposition.table):
        logs = log_parts(model)
        found.append(
            Shown("log-decomposition", "log_shares", _some("The same by the model's own account, in log-%", logs),
                  _words("Log shares", logs, list(LOG_COLORS)), lambda: plot_log_parts(logs))
        )  # fmt: skip
    known = predicted[predicted["predicted"].notna()]
    table = "predicted" if shown.fit is fit else "throughput_matched"
    if len(known):
        worst = known.iloc[int((known["predicted"] - known["measured"]).abs().argmax())]
        said = f"{len(known)} points; the furthest from the identity line is {worst['model']} at PP={worst['pp']}."
        found += [
            Shown("scatter", table, "Measured and predicted efficiency; bars are 95 % prediction intervals.",
                  f"Predicted against measured efficiency. {said}", lambda: plot_scatter(known)),
        ]  # fmt: skip
        loads = known[known["concurrency"].notna()]
        if loads["concurrency"].nunique() > 1:
            found.append(
                Shown("residual", table, "Residual against concurrency: a stable s would be a flat line.",
                      f"Residual against concurrency. {said}", lambda: plot_residual(shown.fit))
            )  # fmt: skip
            found.append(
                Shown("heatmap", table, "Error of the prediction over pp and concurrency, mean over models.",
                      f"Mean error by pp and concurrency. {said}", lambda: plot_heatmap(loads))
            )  # fmt: skip
    return found


def _some(caption: str, rows: pd.DataFrame) -> str:
    some = f" The first {MOST_BARS} of {len(rows)} are drawn." if len(rows) > MOST_BARS else ""
    return f"{caption}.{some}"


def _words(what: str, rows: pd.DataFrame, parts: list[str]) -> str:
    said = [
        f"{r['label']}: " + ", ".join(f"{p.replace('_', ' ')} {r[p]:.0f}" for p in parts)
        for _, r in rows.head(MOST_BARS).iterrows()
    ]
    return f"{what}. " + "; ".join(said) + "."


def loss_shares(fit: FitResult) -> pd.DataFrame:
    """Percentage points of the baseline's throughput: balance, scheduling as fitted, unattributed, and what is left over.

    They add up to 100 in every row, one row a point: ``1 = (1-b) + b*(1-f) + (b*f - eta) + eta`` for balance b, fitted
    residual f and efficiency eta.
    """
    rows, more = [], tuple(c.key for c in varying(fit.decomposition.table))
    for s in fit.series:
        fitted = s.form.residual(
            s.points["pp"].to_numpy(float), s.estimate.values, _load(s.points, s.form.needs_concurrency)
        )
        explained = s.points["explained"].to_numpy()
        for i, (_, p) in enumerate(s.points.iterrows()):
            b, f, eta = explained[i], fitted[i], p["efficiency"]
            parts = (100 * (1 - b), 100 * b * (1 - f), 100 * (b * f - eta), 100 * eta)
            rows.append({"label": _label(p, more), **dict(zip(PARTS, parts, strict=True))})
    return pd.DataFrame(rows)


def log_parts(fit: FitResult) -> pd.DataFrame:
    """``100*ln`` of TP scaling K, balance, fill, fitted scheduling and what none of them explains; they add up to ``total``."""
    rows, more = [], tuple(c.key for c in varying(fit.decomposition.table))
    for s in fit.series:
        fitted = s.form.residual(
            s.points["pp"].to_numpy(float), s.estimate.values, _load(s.points, s.form.needs_concurrency)
        )
        for i, (_, p) in enumerate(s.points.iterrows()):
            logs = {name: 100 * np.log(p[name]) for name in LOG_PARTS if name != "residual"}
            logs["scheduling"] = 100 * np.log(max(float(fitted[i]), 1e-3))
            total = 100 * np.log(p["efficiency"])
            rows.append({"label": _label(p, more), **logs, "unattributed": total - sum(logs.values()), "total": total})
    return pd.DataFrame(rows)


def _load(points: pd.DataFrame, needed: bool) -> Array | None:
    return points["concurrency"].to_numpy(dtype=np.float64) if needed else None


def _label(p: pd.Series, more: tuple[str, ...]) -> str:
    """A configuration in words, with what else tells its series from others: two bars of one label would be one."""
    c = "" if pd.isna(p["concurrency"]) else f" C={int(p['concurrency'])}"
    also = "".join(f" {name} {p[name]}" for name in more)
    name = str(p["model"]).rsplit("/", 1)[-1]
    return printable(f"{name} {p['backend']}{also} TP{int(p['tp'])}/PP{int(p['pp'])}{c}")


def plot_losses(shares: pd.DataFrame) -> Figure:
    """Stacked bars of `loss_shares` [percentage points of the baseline's throughput]; each reaches 100."""
    rows = shares.head(MOST_BARS).iloc[::-1]
    figure, ax = _bars(len(rows))
    with style():
        _stack(ax, rows, {p: c for p, c in PARTS.items() if p != "left over"}, start=rows["left over"].to_numpy())
        ax.barh(rows["label"], rows["left over"], color=PARTS["left over"], label="measured efficiency", height=0.72)
        ax.axvline(100, color="#111827", lw=0.8)
        ax.set_xlabel("share of the TP=G/PP1 throughput [percentage points]")
        _legend(figure, ax)
    return figure


def plot_log_parts(rows: pd.DataFrame) -> Figure:
    """Stacked bars of `log_parts` [log-%], losses to the left and gains to the right; a mark at the total."""
    shown = rows.head(MOST_BARS).iloc[::-1]
    figure, ax = _bars(len(shown))
    names = {**LOG_PARTS, "scheduling": "scheduling, as fitted", "unattributed": "unattributed"}
    with style():
        for sign in (-1, 1):
            left = np.zeros(len(shown))
            for part, color in LOG_COLORS.items():
                size = shown[part].to_numpy()
                size = np.where(np.sign(size) == sign, size, 0.0)
                label = names[part] if sign < 0 else None
                ax.barh(shown["label"], size, left=left, color=color, label=label, height=0.72)
                left += size
        ax.plot(shown["total"], shown["label"], "|", ms=11, mew=2, color="#111827", label="total (measured)")
        ax.axvline(0, color="#111827", lw=0.8)
        ax.margins(x=0.03)
        ax.set_xlabel("100 * ln of each factor of the efficiency [log-%]")
        _legend(figure, ax)
    return figure


def plot_scatter(points: pd.DataFrame) -> Figure:
    """Predicted [1] against measured [1] efficiency with the identity line; a colour a backend and a marker a pp."""
    with style():
        figure = Figure(figsize=(6.4, 5.2), layout="constrained")
        ax = figure.add_subplot()
        top = 1.05 * float(max(points["measured"].max(), points["predicted"].max()))
        ax.plot([0, top], [0, top], color="#111827", lw=0.8, label="measured = predicted")
        colors = mpl.colormaps["tab10"](np.linspace(0, 1, 10))
        for i, (backend, part) in enumerate(points.groupby("backend", sort=True)):
            for j, (pp, some) in enumerate(part.groupby("pp", sort=True)):
                known = some["low"].notna()
                error = np.abs(np.stack([some["predicted"] - some["low"], some["high"] - some["predicted"]]))
                ax.errorbar(
                    some["measured"], some["predicted"], yerr=np.where(known, error, 0.0), fmt=MARKERS[j % len(MARKERS)],
                    ms=4.5, lw=0.7, color=colors[i % 10], alpha=0.85, label=printable(f"{backend} PP={pp}"),
                )  # fmt: skip
        ax.set_xlim(0, top)
        ax.set_ylim(0, max(top, 1.02 * float(points["high"].max(skipna=True) or 0)))
        ax.set_xlabel("measured efficiency [1]")
        ax.set_ylabel("predicted efficiency [1]")
        ax.legend(loc="upper left", fontsize=8)
    return figure


def plot_heatmap(points: pd.DataFrame) -> Figure:
    """Mean error, predicted - measured [percentage points], over pp (columns) and concurrency (rows), one panel a backend."""
    backends = sorted(set(points["backend"]))
    with style():
        figure = Figure(figsize=(3.6 * len(backends) + 1.6, 4.2), layout="constrained")
        cells = points.assign(error=100 * (points["predicted"] - points["measured"]))
        limit = max(1.0, float(cells.groupby(["backend", "pp", "concurrency"])["error"].mean().abs().max()))
        image = None
        for i, backend in enumerate(backends):
            ax = figure.add_subplot(1, len(backends), i + 1)
            grid = cells[cells["backend"] == backend].pivot_table(
                index="concurrency", columns="pp", values="error", aggfunc="mean"
            )
            image = ax.imshow(grid, cmap="RdBu_r", vmin=-limit, vmax=limit, aspect="auto", origin="lower")
            for (y, x), value in np.ndenumerate(grid.to_numpy()):
                if np.isfinite(value):
                    dark = "#ffffff" if abs(value) > 0.6 * limit else "#111827"
                    ax.text(x, y, f"{value:+.1f}", ha="center", va="center", fontsize=8, color=dark)
            ax.set_xticks(range(grid.shape[1]), [str(p) for p in grid.columns])
            ax.set_yticks(range(grid.shape[0]), [str(c) for c in grid.index])
            ax.set_xlabel("pipeline stages pp")
            ax.set_ylabel("concurrency C [requests]")
            ax.set_title(printable(str(backend)), fontsize=9)
            ax.grid(False)
        if image is not None:
            figure.colorbar(image, ax=figure.axes, label="predicted - measured [percentage points]")
    return figure


def plot_residual(fit: FitResult) -> Figure:
    """Residual [1] against concurrency [requests], one panel a backend; a colour a model and a marker a pp."""
    backends = sorted({str(s.key["backend"]) for s in fit.series})
    handles: dict[str, Any] = {}
    models = list(dict.fromkeys(str(s.key["model"]) for b in backends for s in drawn(fit, b)))
    colors = {m: mpl.colormaps["tab10"](i % 10) for i, m in enumerate(models)}  # one a model, in every panel
    with style():
        figure = Figure(figsize=(5.6 * len(backends) + 1.0, 4.4), layout="constrained")
        for i, backend in enumerate(backends):
            ax = figure.add_subplot(1, len(backends), i + 1)
            for s in drawn(fit, backend):
                color = colors[str(s.key["model"])]
                name = printable(f"{str(s.key['model']).rsplit('/', 1)[-1]}")
                handles.setdefault(name, Line2D([], [], color=color))
                for k, (pp, part) in enumerate(s.points.groupby("pp", sort=True)):
                    line, marker = part.sort_values("concurrency"), MARKERS[k % len(MARKERS)]
                    loads = line["concurrency"].to_numpy(dtype=np.float64)
                    ax.plot(loads, line["residual"], marker=marker, ms=4, lw=1, color=color)
                    handles.setdefault(f"PP={pp}", Line2D([], [], color="#374151", marker=marker, lw=0, ms=4))
            seen = sorted({int(c) for s in fit.series for c in s.points["concurrency"].dropna()})
            ax.set_xscale("log", base=2)
            ax.set_xticks(seen, [str(c) for c in seen])
            ax.minorticks_off()
            ax.axhline(1, color="#111827", lw=0.8)
            ax.set_xlabel("concurrency C [requests] (log scale)")
            ax.set_ylabel("residual [1]")
            ax.set_title(printable(backend), fontsize=9)
        figure.legend(list(handles.values()), list(handles), loc="outside upper center", ncols=6, fontsize=8)
    return figure


def _bars(count: int) -> tuple[Figure, Axes]:
    with style():
        figure = Figure(figsize=(9.6, 0.27 * count + 1.2), layout="constrained")
        ax = figure.add_subplot()
        ax.tick_params(axis="y", labelsize=8)
        ax.grid(axis="y", visible=False)
    return figure, ax


def _stack(ax: Axes, rows: pd.DataFrame, parts: dict[str, str], start: Array) -> None:
    """Losses stacked from ``start``; a negative one, a gain, is drawn over the part before it, hatched."""
    left = start.astype(float)
    for part, color in reversed(list(parts.items())):
        size = rows[part].to_numpy()
        gain = size < 0
        ax.barh(rows["label"], np.where(gain, 0.0, size), left=left, color=color, label=part, height=0.72)
        if gain.any():
            ax.barh(rows["label"], np.where(gain, -size, 0.0), left=left + np.where(gain, size, 0.0), height=0.72,
                    facecolor="none", edgecolor=color, hatch="////", lw=0.8)  # fmt: skip
        left = left + size


def _legend(figure: Figure, ax: Axes) -> None:
    handles, labels = ax.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=min(4, len(labels)))
