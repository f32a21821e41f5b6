"""Figures for notebooks: those of the report, as objects that show themselves wherever they are the last line of a cell."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure

from calib.errors import UsageError
from calib.files import write_new
from calib.fitting import FitResult
from calib.pipeline import Explanation
from calib.reporting.efficiency_figure import draw_efficiency, figure_bytes, svg
from calib.reporting.stage_figure import draw_stages

KINDS = ("svg", "png", "pdf")


@dataclass(frozen=True)
class Picture:
    """A figure that a notebook shows as SVG, whatever its plotting backend is; ``figure`` is matplotlib's own object."""

    figure: Figure

    def _repr_svg_(self) -> str:
        return svg(self.figure)

    def save(self, path: str | Path) -> None:
        """Write the figure to a new .svg, .png or .pdf file.

        Raises
        ------
        UsageError
            Another kind of file, or the file is there already.
        OutputError
            The folder cannot be written.
        """
        path = Path(path)
        if (kind := path.suffix[1:]) not in KINDS:
            raise UsageError("must end in .svg, .png or .pdf", field="path", value=str(path))
        if not write_new(path, figure_bytes(self.figure, kind)):
            raise UsageError("exists already and is not overwritten", file=path, remedy="choose another name")


def plot_efficiency(fit: FitResult, backend: str) -> Picture:
    """Efficiency [1] against pp [stages] for every model of a backend: measured, fitted, and what balance alone explains.

    Raises
    ------
    UsageError
        Nothing was fitted for the backend.
    """
    known = sorted({str(s.key["backend"]) for s in fit.series})
    if backend not in known:
        raise UsageError("was not fitted", field="backend", value=backend, remedy=f"name one of {', '.join(known)}")
    return Picture(draw_efficiency(fit, backend))


def plot_stages(explanation: Explanation) -> Picture:
    """Stage times [ms] of one configuration with their hops, against the ideal and the realised cycle."""
    return Picture(draw_stages(explanation))
