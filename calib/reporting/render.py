"""Tables and figures to HTML, Markdown and JSON. Names come from files, so everything is escaped."""

from __future__ import annotations

import base64
import hashlib
import math
import re
import shlex
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np
import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from calib._version import __version__
from calib.drift import Comparison
from calib.provenance import SHORT
from calib.reporting.headline import changes_text, headline
from calib.reporting.table import Column, Table
from calib.reporting.tables import ReportData

if TYPE_CHECKING:
    from calib.reporting.figures import Shown

MARKDOWN_TABLES = ("observed", "decomposition", "coefficients", "accuracy")
MARKDOWN_LINES = 60
NOTABLE_Z = 3.5  # combined standard errors from which a move is worth a look; the nightly job's default alarm
_SHORT_COLUMNS = {"decomposition": 11, "coefficients": 8}  # of the Markdown tables; the rest is in the HTML


def render_html(data: ReportData) -> str:
    """The report as one self-contained HTML page; its only script sorts, filters and pages tables."""
    files = figure_files(data)
    shown = [
        {"name": f.name, "table": f.table, "alt": f.alt, "caption": f.caption, "src": _data_url(files[_svg_name(f)])}
        for f in report_figures(data)
    ]
    return _page("report.html.j2",
        campaign=data.campaign.config,
        coefficients=data.coefficients,
        short=data.coefficients.digest[:SHORT],
        headline=headline(data),
        changes=changes_text(data),
        tables=data.tables,
        figures=shown,
        command=command(data),
    )  # fmt: skip


def _page(template: str, **values: Any) -> str:
    """A page of a template, with the one script it may run."""
    script = _script()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        _environment()
        .get_template(template)
        .render(script=script, script_hash=f"sha256-{digest}", raw=_raw_attribute, **values)
    )


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
            _md(comparison.describe()),
        ]
        for table in tables:
            parts += ["", *_markdown_table(table, None, rows)]
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


def report_figures(data: ReportData) -> list[Shown]:
    """The figures of a report whose table is shown, in the order of the tables."""
    from calib.reporting.figures import figures  # matplotlib: not for commands that draw nothing

    found = figures(data.fit, data.everywhere or data.shown, data.model)
    return [f for f in found if f.table in data.tables]


def figure_files(data: ReportData) -> dict[str, bytes]:
    """Every figure as ``figures/<name>.svg`` and ``.png``, without a date; drawn once for page and files."""
    from calib.reporting.plots import figure_bytes

    if not data.drawn:
        for f in report_figures(data):
            figure = f.draw()
            data.drawn[_svg_name(f)] = figure_bytes(figure, "svg")
            figure.set_layout_engine("none")  # laid out by now: the same again would take as long as drawing
            data.drawn[_svg_name(f).replace(".svg", ".png")] = figure_bytes(figure, "png")
    return data.drawn


def _svg_name(figure: Shown) -> str:
    return f"figures/{figure.name}.svg"


def command(data: ReportData) -> str:
    """The command that makes these results again."""
    c, parts = data.coefficients, ["calib", "run", data.campaign.name]
    for option, value, default in (
        ("--matching", c.matching, data.campaign.config.matching),
        ("--balance", c.balance_source.step, "decode"),
        ("--form", c.form, "log2"),
        ("--reference", c.reference, "baseline"),
        ("--pooling", c.pooling, "none"),
        ("--error-floor", f"{c.error_floor:g}", "0.02"),
    ):
        parts += [option, value] if value != default else []
    return " ".join(shlex.quote(p) for p in parts)


def _script() -> str:
    return (resources.files("calib.reporting") / "templates" / "report.js").read_text(encoding="utf-8")


def _data_url(picture: bytes) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(picture).decode()}"


def _raw_attribute(row: Mapping[str, Any], column: Column) -> Markup:
    """The raw number of a cell, by which it is sorted; it is formatted here, so it is a number."""
    value = plain(row.get(column.key))
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return Markup(f' data-v="{float(value)!r}"')
    return Markup()


def render_markdown(data: ReportData) -> str:
    """The report for a pull request or a chat: at most `MARKDOWN_LINES` lines, with as many rows a table as that allows."""
    for rows in range(MARKDOWN_LINES, 0, -1):
        text = _markdown(data, rows)
        if text.count("\n") <= MARKDOWN_LINES:
            return text
    return _markdown(data, 1)


def _markdown(data: ReportData, rows: int) -> str:
    lines = [f"# {_md(data.campaign.config.title)}", "", f"Since last time: {_md(changes_text(data))}", ""]
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


class _Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    pass


class ReportColumn(_Record, frozen=True, kw_only=True):
    """A column of a table; the unit is in the label."""

    key: str
    label: str


class ReportTable(_Record, frozen=True, kw_only=True):
    """A table of the report in full precision; a number that is not known is null."""

    title: str
    note: str
    columns: tuple[ReportColumn, ...]
    rows: tuple[dict[str, str | float | bool | None], ...]


class ReportFigure(_Record, frozen=True, kw_only=True):
    """A figure; it is in ``figures/<name>.svg`` and ``.png`` beside the report."""

    name: str
    table: str
    caption: str
    alt: str


class ReportLine(_Record, frozen=True, kw_only=True):
    """What the first screen says of one backend."""

    backend: str
    verdict: Literal["FIT", "WARN", "REFUSED"]
    text: str


class ReportDocument(_Record, frozen=True, kw_only=True):
    """``report.json``: everything that the HTML shows."""

    format: Literal["calib-report"]
    format_version: Literal[1]
    campaign: str
    title: str
    source: str
    coefficients_digest: str
    calib_version: str
    command: str
    headline: tuple[ReportLine, ...]
    changes: str
    figures: tuple[ReportFigure, ...]
    tables: dict[str, ReportTable]


def render_json(data: ReportData) -> bytes:
    """Every table in full precision, for machines. Numbers that are not known are null."""
    tables = {
        name: ReportTable(
            title=t.title,
            note=t.note,
            columns=tuple(ReportColumn(key=c.key, label=c.label) for c in t.columns),
            rows=tuple({k: plain(v) for k, v in row.items()} for row in t.rows),
        )
        for name, t in data.tables.items()
    }
    document = ReportDocument(
        format="calib-report",
        format_version=1,
        campaign=data.campaign.name,
        title=data.campaign.config.title,
        source=data.campaign.config.source,
        coefficients_digest=data.coefficients.digest,
        calib_version=data.coefficients.calib_version,
        command=command(data),
        headline=tuple(msgspec.convert(x, ReportLine) for x in headline(data)),
        changes=changes_text(data),
        figures=tuple(
            ReportFigure(name=f.name, table=f.table, caption=f.caption, alt=f.alt) for f in report_figures(data)
        ),
        tables=tables,
    )
    return msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"


def report_schema() -> dict[str, Any]:
    """The JSON Schema of ``report.json`` (draft 2020-12), generated from the types above."""
    schema = msgspec.json.schema(ReportDocument)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "calib-report", **schema}


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
