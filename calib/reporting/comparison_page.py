"""Two coefficient files side by side, as a page and as Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from calib._version import __version__
from calib.coefficients import Comparison
from calib.files import SHORT
from calib.reporting.markdown import MARKDOWN_LINES, escape_markdown, markdown_table
from calib.reporting.page import _page
from calib.reporting.table import Table

NOTABLE_Z = 3.5  # combined standard errors from which a move is worth a look; the nightly job's default alarm


def render_comparison_html(comparison: Comparison, tables: Sequence[Table]) -> str:
    """Two coefficient files side by side, as one page in the form of the report."""
    return _page(
        "compare.html.j2",
        old=comparison.old[:SHORT],
        new=comparison.new[:SHORT],
        text=comparison.describe(),
        verdict=_moved_text(comparison),
        mark="refused" if comparison.verdicts else "warn" if (comparison.largest_z or 0) > NOTABLE_Z else "fit",
        tables={t.name: t for t in tables},
        figures=[],
        version=__version__,
    )


def render_comparison_markdown(comparison: Comparison, tables: Sequence[Table]) -> str:
    """The same for a pull request or a chat, in at most `MARKDOWN_LINES` lines."""
    text = ""
    for rows in range(MARKDOWN_LINES, 0, -1):
        parts = [
            f"# Coefficients {comparison.old[:SHORT]} and {comparison.new[:SHORT]}",
            "",
            escape_markdown(comparison.describe()),
        ]
        for table in tables:
            parts += ["", *markdown_table(table, None, rows)]
        text = "\n".join(parts) + "\n"
        if text.count("\n") <= MARKDOWN_LINES:
            break
    return text


def _moved_text(comparison: Comparison) -> str:
    if comparison.old == comparison.new:
        return "The same"
    if comparison.verdicts:
        return f"{len(comparison.verdicts)} verdicts changed"
    z = comparison.largest_z
    return "Moved" if z is None or z > NOTABLE_Z else "Within their errors"
