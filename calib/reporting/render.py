"""Tables and figures to HTML, Markdown and JSON. Names come from files, so everything is escaped."""

from __future__ import annotations

import base64
import math
import re
from typing import Any

import msgspec
import numpy as np
import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined

from calib.provenance import SHORT
from calib.reporting.headline import headline
from calib.reporting.plots import alt_text, plot_efficiency, svg
from calib.reporting.table import Table
from calib.reporting.tables import ReportData

MARKDOWN_TABLES = ("observed", "decomposition", "coefficients", "accuracy")
MARKDOWN_LINES = 60
_SHORT_COLUMNS = {"decomposition": 11, "coefficients": 8}  # of the Markdown tables; the rest is in the HTML


def render_html(data: ReportData) -> str:
    """The report as one self-contained HTML page."""
    figures = []
    for backend in sorted({str(s.key["backend"]) for s in data.fit.series}):
        text = base64.b64encode(svg(plot_efficiency(data.fit, backend)).encode()).decode()
        figures.append(
            {
                "backend": backend,
                "alt": alt_text(data.fit, backend),
                "src": f"data:image/svg+xml;base64,{text}",
            }
        )
    return _environment().get_template("report.html.j2").render(
        campaign=data.campaign.config,
        coefficients=data.coefficients,
        short=data.coefficients.digest[:SHORT],
        headline=headline(data),
        tables=data.tables,
        figures=figures,
        published=data.campaign.config.published,
    )  # fmt: skip


def render_markdown(data: ReportData) -> str:
    """The report for a pull request or a chat: at most `MARKDOWN_LINES` lines, with as many rows a table as that allows."""
    for rows in range(MARKDOWN_LINES, 0, -1):
        text = _markdown(data, rows)
        if text.count("\n") <= MARKDOWN_LINES:
            return text
    return _markdown(data, 1)


def _markdown(data: ReportData, rows: int) -> str:
    lines = [f"# {_md(data.campaign.config.title)}", ""]
    lines += [f"**{_md(x['backend'])}: {x['verdict']}** {_md(x['text'])}  " for x in headline(data)]
    tables = data.tables
    for name in MARKDOWN_TABLES:
        lines += ["", *_markdown_table(tables[name], _SHORT_COLUMNS.get(name), rows)]
    rejected = [f for f in data.findings if f.verdict == "REJECT"]
    warned = sum(f.verdict in ("WARN", "CORRECTED") for f in data.findings)
    lines += [
        "",
        f"Set aside: {len(rejected)}; warnings: {warned}. Coefficients `{data.coefficients.digest[:SHORT]}`, calib "
        f"{data.coefficients.calib_version}; all tables and figures are in `report.html`.",
    ]
    if data.campaign.config.published:
        lines.append(
            f"Published figures stand beside these in `report.html`. {_md(data.campaign.config.published.note)}"
        )
    return "\n".join(lines) + "\n"


def render_json(data: ReportData) -> bytes:
    """Every table in full precision, for machines. Numbers that are not known are null."""
    tables = {
        name: {
            "title": t.title,
            "note": t.note,
            "columns": [{"key": c.key, "label": c.label} for c in t.columns],
            "rows": [{k: plain(v) for k, v in row.items()} for row in t.rows],
        }
        for name, t in data.tables.items()
    }
    document = {
        "format": "calib-report",
        "format_version": 1,
        "campaign": data.campaign.name,
        "coefficients_digest": data.coefficients.digest,
        "headline": headline(data),
        "tables": tables,
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("calib.reporting"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["verdict_class"] = lambda v: (
        str(v).lower() if v in ("FIT", "WARN", "REFUSED", "REJECT") else "none"
    )
    return environment


def _markdown_table(table: Table, columns: int | None, limit: int) -> list[str]:
    if not table.rows:
        return [f"**{table.title}**", "", table.empty]
    shown = table.columns[:columns]
    lines = [
        f"**{_md(table.title)}**",
        "",
        "| " + " | ".join(_md(c.label) for c in shown) + " |",
        "|" + "|".join("---:" if c.numeric else "---" for c in shown) + "|",
    ]
    cells = [[_md(cell) for cell in table.cells(row)[: len(shown)]] for row in table.rows[:limit]]
    lines += ["| " + " | ".join(row) + " |" for row in cells]
    if (more := len(table.rows) - limit) > 0:
        lines.append(f"\n+{more} more rows in `report.html`")
    return lines


def _md(text: str) -> str:
    """Text that Markdown shows as it is: no markup, no HTML, no table cell of its own."""
    text = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_\[\]|#~$])", r"\\\1", text)


def plain(value: Any) -> Any:
    """A cell as JSON has it: a plain number or text, null where it is not known."""
    if value is None or value is pd.NA:
        return None
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
