"""Tables and figures to HTML, Markdown and JSON. Names come from files, so everything is escaped."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from calib.files import SHORT
from calib.reporting.contents import ReportData, command
from calib.reporting.figure_output import figure_files, report_figures, svg_name
from calib.reporting.headline import changes_text, headline
from calib.reporting.table import Column, json_value


def render_html(data: ReportData) -> str:
    """The report as one self-contained HTML page; its only script sorts, filters and pages tables."""
    files = figure_files(data)
    shown = [
        {"name": f.name, "table": f.table, "alt": f.alt, "caption": f.caption, "src": _data_url(files[svg_name(f)])}
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


def _script() -> str:
    return (resources.files("calib.reporting") / "templates" / "report.js").read_text(encoding="utf-8")


def _data_url(picture: bytes) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(picture).decode()}"


def _raw_attribute(row: Mapping[str, Any], column: Column) -> Markup:
    """The raw number of a cell, by which it is sorted; it is formatted here, so it is a number."""
    value = json_value(row.get(column.key))
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return Markup(f' data-v="{float(value)!r}"')
    return Markup()


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
