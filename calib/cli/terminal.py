"""A table made to fit the window: columns fold, names shorten in the middle, and nothing is cut off.

What does not fit beside the rest is said another way rather than lost: a value that is the same in every row stands once above
the table, sentences stand below it, and figures that need more room than one window get a second block with the same rows.
"""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from calib.reporting import Column, Table

NARROWEST = 40  # columns of a window below which nothing is laid out any more
GAP = 2  # blanks between two columns
SENTENCE = 26  # characters from which a cell with blanks may wrap
FOLDED = 24  # width that a column of sentences wants at least
TIGHT = 16  # and has to do with
NAME = 14  # least width of a name that is shortened in the middle
ROW_KEYS = (
    "backend",
    "model",
    "key",
    "rule",
    "tp",
    "pp",
    "concurrency",
    "verdict",
)  # what tells the rows of a block apart


def window_width() -> int:
    """Columns of the window: ``COLUMNS`` where it is set, else those of the terminal, 80 for a file or a pipe."""
    return max(NARROWEST, shutil.get_terminal_size((80, 24)).columns)


def wrapped(text: str, indent: str = "") -> list[str]:
    """A paragraph as lines that fit the window; a word that is longer, such as a path, stays whole."""
    return textwrap.wrap(
        text, window_width(), subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    ) or [""]


def shortened(name: str, width: int) -> str:
    """A name of at most ``width`` characters, its middle left out: the ends tell names apart."""
    if len(name) <= width:
        return name
    head = (width - 1) // 2
    return f"{name[:head]}…{name[len(name) - (width - 1 - head) :]}"


@dataclass(frozen=True)
class Laid:
    """One column as it is shown: its cells, the room of the widest and the least it can do with, whether it is of sentences."""

    column: Column
    cells: tuple[str, ...]
    sentence: bool
    width: int
    least: int

    @classmethod
    def of(cls, column: Column, cells: Iterable[str]) -> Laid:
        """With the room it would like; a column is one of sentences where a long cell has blanks to wrap at."""
        texts = tuple(cells)
        width = max([_longest_word(column.label), *(len(t) for t in texts)])
        sentence = not column.numeric and any(len(t) > SENTENCE and " " in t for t in texts)
        return cls(column, texts, sentence, width, min(width, FOLDED) if sentence else width)

    def tightened(self) -> Laid:
        """With sentences in a narrower column."""
        return replace(self, least=min(self.least, TIGHT)) if self.sentence else self

    def shortened(self) -> Laid:
        """With names shortened in the middle; numbers, phrases and sentences as they are."""
        if self.column.numeric or self.sentence or self.width <= NAME:
            return self
        room = max(NAME, _longest_word(self.column.label))
        kept = tuple(t if " " in t else shortened(t, room) for t in self.cells)
        if len(set(kept)) < len(set(self.cells)):  # two names that would look the same
            return self
        return Laid.of(self.column, kept)

    def folded(self) -> Laid:
        """With phrases that may wrap at their blanks."""
        if self.column.numeric or self.sentence or not any(" " in t for t in self.cells):
            return self
        words = [_longest_word(self.column.label), *(_longest_word(t) for t in self.cells)]
        return replace(self, least=min(self.width, max(FOLDED // 2, *words)))


def _longest_word(text: str) -> int:
    return max((len(w) for w in text.split()), default=0)


@dataclass(frozen=True)
class Layout:
    """A table laid out: what is said above, blocks of columns with the same rows, and sentences below by row."""

    above: tuple[str, ...]
    blocks: tuple[tuple[Laid, ...], ...]
    below: tuple[tuple[str, str], ...]


def lay_out(table: Table, width: int, columns: Sequence[Column] | None = None) -> Layout:
    """The table as it fits into ``width`` characters, by the least change that does."""
    shown = table.filled if columns is None else columns
    rows = [table.cells(row, tuple(shown)) for row in table.rows]
    laid = [Laid.of(c, (r[i] for r in rows)) for i, c in enumerate(shown)]
    above: list[str] = []
    if not _fits(laid, width) and len(rows) > 1:
        same = [c for c in laid if len(set(c.cells)) == 1 and not c.sentence and c.column.kind != "verdict"]
        above = [f"{c.column.label}: {c.cells[0]}" for c in same if c.cells[0]]
        laid = [c for c in laid if c not in same]
    below: list[tuple[str, str]] = []
    last = [c for i, c in enumerate(laid) if c.sentence and any(x.column.numeric for x in laid[:i])]
    if not _fits(laid, width) and last:  # a sentence before the first figure says what the row is, and stays
        laid = [c for c in laid if c not in last]
        below = _below(laid, last)
    for change in (Laid.tightened, Laid.shortened, Laid.folded):
        for c in sorted(laid, key=lambda c: -c.width):  # the widest first, and no more of them than it takes
            laid = laid if _fits(laid, width) else [change(x) if x is c else x for x in laid]
    return Layout(tuple(above), tuple(_blocks(laid, width)), tuple(below))


def _fits(columns: Sequence[Laid], width: int) -> bool:
    return sum(c.least + GAP for c in columns) <= width


def _below(columns: Sequence[Laid], sentences: Sequence[Laid]) -> list[tuple[str, str]]:
    """``(row, sentence)``; rows that say the same are named together."""
    keys = [c for c in columns if c.column.key in ROW_KEYS] or list(columns[:1])
    said: dict[str, list[str]] = {}
    for i in range(len(sentences[0].cells) if sentences else 0):
        text = "; ".join(c.cells[i] for c in sentences if c.cells[i])
        if text:
            said.setdefault(text, []).append(" ".join(_labelled(c, i) for c in keys if c.cells[i]))
    return [(", ".join(rows), text) for text, rows in said.items()]


def _labelled(column: Laid, row: int) -> str:
    """A number with the word that says what it is."""
    label = column.column.label.split()[0]
    return f"{label}{column.cells[row]}" if column.column.numeric else column.cells[row]


def _blocks(columns: Sequence[Laid], width: int) -> Iterable[tuple[Laid, ...]]:
    """The columns in as few blocks as fit, each with the columns that tell its rows apart."""
    if _fits(columns, width):
        yield tuple(columns)
        return
    keys = [c for c in columns if c.column.key in ROW_KEYS] or list(columns[:1])
    while len(keys) > 1 and not _fits(keys, width * 2 // 3):
        keys.pop()
    block = list(keys)
    for c in (c for c in columns if c not in keys):
        if not _fits([*block, c], width) and len(block) > len(keys):
            yield tuple(block)
            block = list(keys)
        block.append(c)
    yield tuple(block)


def print_text(text: str, style: str = "") -> None:
    """A line on stdout, in a style where that is a terminal."""
    from rich.text import Text

    _console().print(Text(text, style=style), soft_wrap=True)


def print_laid(table: Table, columns: Sequence[Column] | None = None) -> None:
    """The table on stdout, under its title."""
    from rich.text import Text

    console = _console()
    console.print(Text(f"\n{table.title}", style="bold"))
    if not table.rows:
        console.print(Text(table.empty))
        return
    _draw(table, columns, console)


def rendered(table: Table) -> list[str]:
    """The lines of a table without its title, as they are to be printed on stdout."""
    console = _console()
    with console.capture() as kept:
        _draw(table, None, console)
    return kept.get().splitlines()


def _draw(table: Table, columns: Sequence[Column] | None, console: Console) -> None:
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    layout = lay_out(table, console.width, columns)
    for line in wrapped("; ".join(layout.above)) if layout.above else ():
        console.print(Text(line), soft_wrap=True)
    colors = {"FIT": "green", "WARN": "yellow", "REFUSED": "red", "REJECT": "red"}
    for block in layout.blocks:
        drawn = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True, padding=(0, 1))
        for c in block:
            # A heading wraps to the width of its cells, so that what room there is goes to the sentences.
            label = textwrap.fill(c.column.label, c.width, break_on_hyphens=False)
            drawn.add_column(
                Text(label), justify="right" if c.column.numeric else "left", no_wrap=c.least == c.width, overflow="fold",
                min_width=min(c.least, console.width - GAP),
            )  # fmt: skip
        for i in range(len(table.rows)):
            drawn.add_row(*(Text(c.cells[i], style=colors.get(c.cells[i], "")) for c in block))
        console.print(drawn)
    for row, text in layout.below:
        for line in wrapped(f"{row}: {text}", indent="  "):
            console.print(Text(line), soft_wrap=True)


def _console() -> Console:
    import errno

    from rich.console import Console

    class Quiet(Console):
        def on_broken_pipe(self) -> None:  # rich would end the process with 1, which means a failed gate here
            raise BrokenPipeError(errno.EPIPE, "the reader went away")

    return Quiet(highlight=False, width=window_width(), file=sys.stdout)
