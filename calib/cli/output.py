"""What the commands print: tables and JSON on stdout, notes on stderr."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from calib.integrations import Qualification
    from calib.measure import Finding
    from calib.reporting import Table


def note(text: str) -> None:
    """A line on stderr."""
    from calib.cli.terminal import wrapped

    line = f"calib: {text}"
    # One line in a log, where it is searched for; whole words in a window.
    print("\n".join(wrapped(line, "  ")) if sys.stderr.isatty() else line, file=sys.stderr)


def say(text: str) -> None:
    """Sentences on stdout, each line wrapped to the window."""
    from calib.cli.terminal import wrapped

    for line in text.splitlines():
        blanks = line[: len(line) - len(line.lstrip())]
        print("\n".join(wrapped(line, f"{blanks}  ")))


@contextlib.contextmanager
def working(text: str) -> Iterator[None]:
    """A spinner on stderr while something takes a while; nothing where that is not a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(text):
        yield


def print_json(document: object) -> None:
    """A document on stdout, in full precision."""
    import msgspec

    sys.stdout.write(msgspec.json.format(msgspec.json.encode(document, enc_hook=str), indent=1).decode() + "\n")


def frame_rows(frame: Any) -> list[dict[str, Any]]:
    """A frame's rows with unknown values as null."""
    from calib.reporting import json_value

    return [{k: json_value(v) for k, v in row.items()} for row in frame.to_dict("records")]


def finding_rows(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    """Findings as plain rows."""
    from dataclasses import asdict

    return [asdict(f) for f in findings]


def print_table(table: Table, columns: int | None = None) -> None:
    """A table on stdout, made to fit the window; ``columns`` limits how many of its columns are shown."""
    from calib.cli.terminal import print_laid

    print_laid(table, table.filled[:columns] if columns else None)


def print_runs(runs: Any) -> None:
    """The run table."""
    from calib.reporting import Column, Table

    columns = (
        Column("model", "model"), Column("backend", "backend"), Column("backend_version", "version"),
        Column("tp", "TP", "int"), Column("pp", "PP", "int"), Column("isl", "ISL", "int"), Column("osl", "OSL", "int"),
        Column("concurrency", "C", "int"), Column("output_tokens_per_s", "tok/s", "points"),
        Column("efficiency", "efficiency [1]", "ratio"), Column("verdict", "verdict", "verdict"), Column("rules", "rules"),
    )  # fmt: skip
    has_ratio, has_rate = runs["efficiency"].notna().any(), runs["output_tokens_per_s"].notna().any()
    hidden = {"efficiency"} if not has_ratio else {"output_tokens_per_s"} if not has_rate else set()
    shown = tuple(c for c in columns if c.key not in hidden)
    rows = tuple(runs.to_dict("records"))
    print_table(Table("runs", f"{len(rows)} runs", "", shown, rows, "No run could be read."))


def print_finding_list(table: Table) -> None:
    """Findings as paragraphs: a table of them has more sentences than a window has room for."""
    from calib.cli.terminal import print_text

    print_text(f"\n{table.title}", "bold")
    if not table.rows:
        say(table.empty)
    for row in table.rows:
        cells = dict(zip((c.key for c in table.columns), table.cells(row), strict=True))
        where = f" ({cells['source']})" if cells["source"] else ""
        limit = f"; the limit is {cells['limit']}" if cells["limit"] else ""
        say(f"{cells['verdict']} {cells['rule']}: {cells['subject']}{where}\n  {cells['reason']}{limit}")


def print_findings(findings: tuple[Finding, ...]) -> None:
    """Everything that was set aside or corrected in full; warnings by rule, since they repeat over a sweep."""
    from calib.reporting import Column, Table, quality_table

    rejected = tuple(f for f in findings if f.verdict in ("REJECT", "CORRECTED"))
    if rejected:
        print_finding_list(quality_table(rejected))
    rules: dict[str, list[Finding]] = {}
    for f in findings:
        if f.verdict in ("WARN", "INFO"):
            rules.setdefault(f.rule, []).append(f)
    rows = tuple(
        {
            "rule": rule,
            "verdict": found[0].verdict,
            "n": len(found),
            "example": f"{found[0].subject}: {found[0].reason}",
        }
        for rule, found in sorted(rules.items())
    )
    columns = (
        Column("rule", "rule"), Column("verdict", "verdict", "verdict"), Column("n", "runs", "int"),
        Column("example", "for example"),
    )  # fmt: skip
    if rows:
        print_table(Table("warnings", "Warnings and remarks", "", columns, rows))


def baseline_rows(found: Qualification) -> list[dict[str, Any]]:
    """The points of a baseline qualification as plain rows."""
    return [
        {
            "model": p.model, "backend": p.backend, "tp": p.tp, "concurrency": p.concurrency, "measured": p.measured,
            "predicted": p.predicted, "error_pct": p.error_pct, "within": "yes" if found.within(p) else "no",
            "fits_memory": {True: "yes", False: "no", None: "unknown"}[p.fits_memory],
        }
        for p in found.points
    ]  # fmt: skip


def baseline_table(found: Qualification, rows: list[dict[str, Any]]) -> Table:
    """The same as a table."""
    from calib.reporting import Column, Table

    low, high = found.band_pct
    columns = (
        Column("model", "model"), Column("backend", "backend"), Column("tp", "TP", "int"),
        Column("concurrency", "C [requests]", "int"), Column("measured", "measured [tok/s]", "points"),
        Column("predicted", "predicted [tok/s]", "points"), Column("error_pct", "error [%]", "points"),
        Column("within", f"within {low:+g} to {high:+g} %"), Column("fits_memory", "KV cache fits"),
    )  # fmt: skip
    return Table("baseline", "The model's pp = 1 prediction against silicon", "", columns, tuple(rows))
