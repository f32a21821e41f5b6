"""The report as JSON in full precision, and its schema."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from calib.reporting.contents import ReportData, command
from calib.reporting.figure_output import report_figures
from calib.reporting.headline import changes_text, headline
from calib.reporting.table import json_value


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
            rows=tuple({k: json_value(v) for k, v in row.items()} for row in t.rows),
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
