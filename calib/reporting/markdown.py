"""The report as Markdown of at most `MARKDOWN_LINES` lines. Names come from files, so everything is escaped."""

from __future__ import annotations

import re

from calib.files import SHORT
from calib.reporting.contents import ReportData
from calib.reporting.headline import changes_text, headline
from calib.reporting.table import Table

MARKDOWN_TABLES = ("observed", "decomposition", "coefficients", "accuracy")
MARKDOWN_LINES = 60
_SHORT_COLUMNS = {"decomposition": 11, "coefficients": 8}  # of the Markdown tables; the rest is in the HTML


def render_markdown(data: ReportData) -> str:
    """The report for a pull request or a chat: at most `MARKDOWN_LINES` lines, with as many rows a table as that allows."""
    for rows in range(MARKDOWN_LINES, 0, -1):
        text = _markdown(data, rows)
        if text.count("\n") <= MARKDOWN_LINES:
            return text
    return _markdown(data, 1)


def _markdown(data: ReportData, rows: int) -> str:
    lines = [
        f"# {escape_markdown(data.campaign.config.title)}",
        "",
        f"Since last time: {escape_markdown(changes_text(data))}",
        "",
    ]
    lines += [
        f"**{escape_markdown(x['backend'])}: {x['verdict']}** {escape_markdown(x['text'])}  " for x in headline(data)
    ]
    tables = data.tables
    for name in MARKDOWN_TABLES:
        lines += ["", *markdown_table(tables[name], _SHORT_COLUMNS.get(name), rows)]
    rejected = [f for f in data.findings if f.verdict == "REJECT"]
    warned = sum(f.verdict in ("WARN", "CORRECTED") for f in data.findings)
    lines += [
        "",
        f"Set aside: {len(rejected)}; warnings: {warned}. Coefficients `{data.coefficients.digest[:SHORT]}`, calib "
        f"{data.coefficients.calib_version}; all tables and figures are in `report.html`.",
    ]
    if data.campaign.config.published:
        lines.append(
            f"Published figures stand beside these in `report.html`. {escape_markdown(data.campaign.config.published.note)}"
        )
    return "\n".join(lines) + "\n"


def markdown_table(table: Table, columns: int | None, limit: int) -> list[str]:
    """The lines of one table, with at most ``limit`` rows and the first ``columns`` columns."""
    if not table.rows:
        return [f"**{table.title}**", "", table.empty]
    shown = table.columns[:columns]
    lines = [
        f"**{escape_markdown(table.title)}**",
        "",
        "| " + " | ".join(escape_markdown(c.label) for c in shown) + " |",
        "|" + "|".join("---:" if c.numeric else "---" for c in shown) + "|",
    ]
    cells = [[escape_markdown(cell) for cell in table.cells(row)[: len(shown)]] for row in table.rows[:limit]]
    lines += ["| " + " | ".join(row) + " |" for row in cells]
    if (more := len(table.rows) - limit) > 0:
        lines.append(f"\n+{more} more rows in `report.html`")
    return lines


def escape_markdown(text: str) -> str:
    """Text that Markdown shows as it is: no markup, no HTML, no table cell of its own."""
    text = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_\[\]|#~$])", r"\\\1", text)
