"""What was set aside or warned about, and how a run is named in a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from calib.names import unknown_value

FindingVerdict = Literal["INFO", "WARN", "CORRECTED", "REJECT"]


@dataclass(frozen=True)
class Finding:
    """One thing that was noticed about a run or a series: nothing is dropped without one of these."""

    rule: str
    verdict: FindingVerdict
    subject: str
    reason: str
    source_file: str = ""
    source_row: int = 0
    seen: float | None = None
    limit: float | None = None


def describe_run(row: Mapping[str, Any]) -> str:
    """One run in words, for findings and messages."""
    c = row.get("concurrency")
    at = "" if c is None or unknown_value(c) else f" C={int(c)}"
    return f"{row['model']} {row['backend']} TP{int(row['tp'])}/PP{int(row['pp'])}{at}"
