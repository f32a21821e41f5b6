"""The figures of a report, drawn once for page and files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from calib.reporting.contents import ReportData

if TYPE_CHECKING:
    from calib.reporting.figures import Shown


def report_figures(data: ReportData) -> list[Shown]:
    """The figures of a report whose table is shown, in the order of the tables; none where they are not wanted."""
    if not data.figures:
        return []
    from calib.reporting.figures import figures

    found = figures(data.fit, data.everywhere or data.shown, data.model)
    return [f for f in found if f.table in data.tables]


def figure_files(data: ReportData) -> dict[str, bytes]:
    """Every figure as ``figures/<name>.svg`` and ``.png``, without a date; drawn once for page and files."""
    from calib.reporting.efficiency_figure import figure_bytes

    if data.figures and not data.drawn:
        for f in report_figures(data):
            figure = f.draw()
            data.drawn[svg_name(f)] = figure_bytes(figure, "svg")
            figure.set_layout_engine("none")  # laid out by now: the same again would take as long as drawing
            data.drawn[svg_name(f).replace(".svg", ".png")] = figure_bytes(figure, "png")
    return data.drawn if data.figures else {}


def svg_name(figure: Shown) -> str:
    """The path of a figure below the report."""
    return f"figures/{figure.name}.svg"
