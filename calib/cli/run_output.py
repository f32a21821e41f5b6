"""The output of the main job: at most `MOST_LINES` lines that answer the question, or every table."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import TYPE_CHECKING

from calib.cli.output import print_findings, print_table
from calib.cli.terminal import rendered, wrapped

if TYPE_CHECKING:
    from calib.reporting import Table
    from calib.workflow import Result, Written

MOST_LINES = 25
LEAST_ROWS = 3


def print_summary(campaign: str, result: Result, written: Written) -> None:
    """The verdict in words, one table, what was set aside, warnings by kind, and where the results are."""
    from calib.reporting import finding_sentences, refusals, summary_table, verdict_paragraphs

    data, table = result.report_data, summary_table(result.fit, result.accuracy)
    tail = ["", *_paragraphs(finding_sentences(data))]
    tail += wrapped(f"`calib check {shlex.quote(campaign)}` lists the warnings; --tables prints every table.")
    tail += _written(result, written)
    drawn, head = _lines(table), [""]
    for sentences in (9, 3, 2, 1):
        head = [*wrapped(data.campaign.config.title), *_paragraphs(verdict_paragraphs(data, sentences)), ""]
        if len(head) + len(drawn) + len(tail) <= MOST_LINES:
            break
    over = len(head) + len(drawn) + len(tail) - MOST_LINES
    if over > 0:
        rows = table.rows[: max(LEAST_ROWS, len(table.rows) - over - 1)]
        drawn = _lines(replace(table, rows=rows))
        drawn.append(f" ... and {len(table.rows) - len(rows)} more; `calib show FILE` lists all of a coefficient file")
    for reason in refusals(result.fit):
        lines = wrapped(reason, indent="  ")
        if len(head) + len(drawn) + len(lines) + len(tail) <= MOST_LINES:
            drawn += lines
    print("\n".join((*head, *drawn, *tail)))


def _paragraphs(texts: list[str]) -> list[str]:
    return [line for text in texts for line in wrapped(text, indent="  ")]


def _lines(table: Table) -> list[str]:
    """The table's lines without the blank ones around it."""
    return [line for line in rendered(table) if line.strip()]


def print_every_table(result: Result) -> None:
    """The tables of the report that a terminal has use for, and the findings."""
    from calib.cli.registry_tables import with_notes
    from calib.reporting import report_tables

    shown = report_tables(result.report_data)
    for name in ("observed", "decomposition", "coefficients", "accuracy", "published_accuracy"):
        if name in shown:
            table = with_notes(shown[name]) if name == "coefficients" else shown[name]
            print_table(table, 11 if name == "decomposition" else None)
    print_findings(result.findings)


def print_written(result: Result, written: Written) -> None:
    """Where the results are."""
    print("\n".join(_written(result, written)))


def _written(result: Result, written: Written) -> list[str]:
    state = "Wrote" if written.new else "Nothing new; these results are there already"
    figures = sum(f.parent != written.folder for f in written.files)
    files = [f.name for f in written.files if f.parent == written.folder]
    named = ", ".join(files) + (f", {figures} figures" if figures else "")
    return [
        f"{state} (digest {result.coefficients.digest[:12]}):",
        f"  {written.folder}/",
        *(f"    {line}" for line in wrapped(named)),
    ]
