"""Cells and tables for people: how calib's objects show themselves in a notebook, escaped and bounded in size; cells of a CSV.

Names come from files, so every cell is text, never markup. At most `ROWS` rows are shown, however many there are, and no cell
is longer than `LONGEST`; the frames behind the objects have the rest. Only the standard library is imported here, since a
coefficient file must be shown without pandas.
"""

from __future__ import annotations

import html
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from calib.errors import printable

ROWS = 20
LONGEST = 160  # characters of a cell
SHORT = 30  # characters up to which a cell stays on one line
LEFT, RIGHT = "left", "right"


def counts_text(words: Iterable[str]) -> str:
    """How often each word stands there, e.g. ``3 FIT, 1 WARN``."""
    return ", ".join(f"{n} {v}" for v, n in sorted(Counter(words).items())) or "none"


def span_text(low: float, high: float) -> str:
    """``low to high``, or the one value both are."""
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"


def decimal_text(value: Any, digits: int) -> str:
    """A number with its digits, nothing where it is not known (None, NaN, or pandas' NA, which is not imported here)."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return ""
    return "" if math.isnan(number) else f"{number:.{digits}f}"


def range_text(column: Any) -> str:
    """The span of a column of whole numbers, leaving out what is not known."""
    known = column.dropna()
    if not len(known):
        return "not stated"
    return span_text(int(known.min()), int(known.max()))


def _text(value: object) -> str:
    text = " ".join(printable(str(value)).split())
    return html.escape(text if len(text) <= LONGEST else text[: LONGEST - 1] + "…")


def _cell(value: object, side: str) -> str:
    text = _text(value)
    wrap = ";white-space:nowrap" if len(text) <= SHORT else ""
    return f'<td style="text-align:{side}{wrap}">{text}</td>'


def html_table(columns: Mapping[str, str], rows: Sequence[Iterable[object]], total: int, rest: str) -> str:
    """A table with the text side of each column; ``total`` is the number of rows there are, ``rest`` where they all are."""
    if not rows:
        return "<p>There is nothing to show.</p>"
    head = "".join(f'<th scope="col" style="text-align:{side}">{html.escape(n)}</th>' for n, side in columns.items())
    body = "".join(
        "<tr>" + "".join(_cell(cell, side) for cell, side in zip(row, columns.values(), strict=True)) + "</tr>"
        for row in rows
    )
    more = f"<p>{total - len(rows)} more rows in <code>{rest}</code>.</p>" if total > len(rows) else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def html_block(title: str, says: str, table: str, note: str = "") -> str:
    """A title with a sentence, a table and a note."""
    tail = f"<p>{_text(note)}</p>" if note else ""
    says = html.escape(" ".join(printable(says[:1000]).split()))
    return f"<div><p><strong>{_text(title)}</strong><br>{says}</p>{table}{tail}</div>"


def csv_cell(value: object) -> object:
    """A cell that a spreadsheet shows as the text it is: one that it would take for a formula gets an apostrophe.

    Names come from files, and a model may be called ``=HYPERLINK(...)``. Numbers stay numbers.
    """
    if not isinstance(value, str) or value[:1] not in ("=", "+", "-", "@", "\t", "\r"):
        return value
    try:
        float(value)
    except ValueError:
        return "'" + value
    return value
