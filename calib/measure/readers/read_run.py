"""What every reader returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class ReadRun:
    """What one file, or one row of it, says about one run.

    ``stated`` holds columns of the run table, ``facts`` what the screening rules need beside them. ``source_row`` is the
    line in a table (1 is the first line of the file) and 0 where the file is one run.
    """

    source_file: str
    source_row: int
    source_sha256: str
    stated: Mapping[str, object]
    facts: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class UnreadableRun:
    """A run that could not be read; it is reported, never dropped."""

    source_file: str
    source_row: int
    reason: str
