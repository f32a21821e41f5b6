"""Figures. ``plot_*`` returns a matplotlib Figure and touches no global state; `svg` makes it text, the same every time."""

from __future__ import annotations

import contextlib
import io
import logging
import math
import warnings
from collections.abc import Iterator
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from calib.errors import printable
from calib.fitting import FitResult, SeriesFit
from calib.reporting.table import parameter_text

logging.getLogger("matplotlib").setLevel(logging.ERROR)  # an unwritable cache folder is nobody's concern here

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
_KEPT = ("backend", "backend_fallback", "toolbar", "interactive", "timezone", "date.epoch")
MOST_PANELS = 12
MEASURED, FITTED, BALANCE = "#1f4e8c", "#c2410c", "#6b7280"


@contextlib.contextmanager
def style() -> Iterator[None]:
    """calib's style on matplotlib's own defaults, whatever a matplotlibrc says; a missing glyph is not worth a warning."""
    with mpl.rc_context(), warnings.catch_warnings():
        mpl.rcParams.update({k: v for k, v in mpl.rcParamsDefault.items() if k not in _KEPT})
        mpl.rcParams.update(STYLE)
        warnings.filterwarnings("ignore", message="Glyph")
        yield


def draw_efficiency(fit: FitResult, backend: str) -> Figure:
    """Efficiency [1] against pp [stages] for every model of a backend: measured, fitted, and what balance alone explains."""
    series = drawn(fit, backend)
    levels = [1, *sorted({int(p) for s in series for p in s.points["pp"]})]
    seen = sorted({int(c) for s in series for c in s.points["concurrency"].dropna()})
    colors = dict(zip(seen, mpl.colormaps["viridis"](np.linspace(0.0, 0.88, len(seen))), strict=True))
    top = max(1.05, *(1.05 * float(s.points["efficiency"].max()) for s in series))
    columns = min(2, len(series))
    lines = math.ceil(len(series) / columns)
    with style():
        figure = Figure(figsize=(9.6 if columns > 1 else 7.0, 3.3 * lines + 0.5), layout="constrained")
        flat = [figure.add_subplot(lines, columns, i + 1) for i in range(len(series))]
        for i, (ax, s) in enumerate(zip(flat, series, strict=True)):
            _panel(ax, s, colors)
            ax.set_xscale("log", base=2)
            ax.set_xticks(levels, [str(p) for p in levels])
            ax.minorticks_off()
            ax.set_xlim(0.92, 1.08 * levels[-1])
            ax.set_ylim(0, top)
            if i % columns == 0:
                ax.set_ylabel("efficiency vs TP=G/PP1 [1]")
            if i + columns >= len(series):
                ax.set_xlabel("pipeline stages pp (log scale)")
        handles, labels = _legend(flat)
        figure.legend(handles, labels, loc="outside upper center", ncols=min(2 * columns, len(labels)))
    return figure


def drawn(fit: FitResult, backend: str) -> list[SeriesFit]:
    """The series of a backend that are drawn: at most `MOST_PANELS`, evenly spaced."""
    series = [s for s in fit.series if s.key["backend"] == backend]
    chosen = np.linspace(0, len(series) - 1, min(MOST_PANELS, len(series))).round().astype(int)
    return [series[i] for i in chosen]


def alt_text(fit: FitResult, backend: str) -> str:
    """What the figure shows, in words, for those who do not see it."""
    parts = []
    for s in drawn(fit, backend):
        pairs = zip(s.points["pp"], s.points["efficiency"], strict=True)
        values = ", ".join(f"{e:.2f} at PP={int(p)}" for p, e in pairs)
        parts.append(f"{s.key['model']} ({s.verdict}): {values}")
    return f"Efficiency against pipeline stages on {backend}. " + "; ".join(parts)


def svg(figure: Figure) -> str:
    """The figure as SVG text that depends on nothing but its content."""
    return figure_bytes(figure, "svg").decode()


def figure_bytes(figure: Figure, kind: str) -> bytes:
    """The figure as a file of ``kind`` (svg, png, pdf), without a date."""
    stream, dated = io.BytesIO(), {"svg": "Date", "pdf": "CreationDate"}
    metadata = {dated[kind]: None, "Creator": None} if kind in dated else None
    with style():
        figure.savefig(stream, format=kind, metadata=metadata, dpi=150)
    return stream.getvalue()


def _panel(ax: Axes, s: SeriesFit, colors: dict[int, Any]) -> None:
    ax.set_title(
        f"{printable(str(s.key['model']))}\n{s.verdict}: {parameter_text(s.estimate)}", fontsize=9, parse_math=False
    )
    if s.points.duplicated("pp").any():
        for c, part in s.points.groupby("concurrency", sort=True):
            here = part.sort_values("pp")
            fitted = next((f.curve for f in s.by_concurrency if f.concurrency == c), None)
            values = s.estimate.values if fitted is None else fitted.values
            _fitted(ax, s, here, values, lw=0.8)
            _measured(ax, here, colors[int(str(c))], f"measured, C={c}", line=True)
        return
    points = s.points.sort_values("pp")
    pp, explained = _from_one(points, "pp"), _from_one(points, "explained")
    ax.plot(pp, explained, ls=":", color=BALANCE, label="without scheduling cost")
    low, high = _band(s, points)
    ax.fill_between(
        pp, explained * low, explained * high, color=FITTED, alpha=0.12, lw=0, label="95 % interval of the fit"
    )
    _fitted(ax, s, points, s.estimate.values, lw=1.5)
    _measured(ax, points, MEASURED, "measured (error bar: 1 sigma)", line=False)


def _band(s: SeriesFit, points: pd.DataFrame) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The 95 % interval of the fitted residual [1]; the curve itself where there is none."""
    pp, load, e = _from_one(points, "pp"), _load(s, points), s.estimate
    curve = s.form.residual(pp, e.values, load)
    if e.covariance is None or e.t_quantile is None:
        return curve, curve
    slope = s.form.jacobian(pp, e.values, load)
    half = e.t_quantile * np.sqrt(np.einsum("ij,jk,ik->i", slope, np.array(e.covariance), slope))
    return np.maximum(curve - half, 0.0), curve + half


def _load(s: SeriesFit, points: pd.DataFrame) -> NDArray[np.float64] | None:
    return _from_one(points, "concurrency") if s.form.needs_concurrency else None


def _fitted(ax: Axes, s: SeriesFit, points: pd.DataFrame, values: Any, lw: float) -> None:
    pp = _from_one(points, "pp")
    curve = _from_one(points, "explained") * s.form.residual(pp, values, _load(s, points))
    refused = s.verdict == "REFUSED"
    ax.plot(
        pp,
        curve,
        ls=(0, (1, 2)) if refused else "--",
        lw=lw,
        color=FITTED,
        label="fitted, refused" if refused else "fitted",
    )


def _measured(ax: Axes, points: pd.DataFrame, color: Any, label: str, *, line: bool) -> None:
    error = points["efficiency"].to_numpy() * np.hypot(
        points["rel_error"].to_numpy(), points["baseline_rel_error"].to_numpy()
    )
    ax.errorbar(points["pp"].to_numpy(dtype=np.float64), points["efficiency"].to_numpy(), yerr=error, fmt="o", ms=4.5,
                capsize=2, ls="-" if line else "none", lw=1, color=color, label=label)  # fmt: skip


def _from_one(points: pd.DataFrame, column: str) -> NDArray[np.float64]:
    """A column with its value at pp = 1 in front, which is 1 for all that is drawn."""
    return np.concatenate([[1.0], points[column].to_numpy(dtype=np.float64)])


def _legend(axes: list[Axes]) -> tuple[list[Any], list[str]]:
    found: dict[str, Any] = {}
    for ax in axes:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    return list(found.values()), list(found)
