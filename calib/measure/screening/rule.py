"""What a rule is: a name, a verdict, what it means, a limit that can be set, and a check that says the figure it saw."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from calib.measure.findings import FindingVerdict
from calib.names import unknown_value

Row = Mapping[str, Any]
Facts = Mapping[str, object]
NONE = math.nan  # of a rule without a limit


@dataclass(frozen=True)
class Seen:
    """What a check found: the figure, the reason as the predicate of a sentence, and columns it corrects."""

    figure: float | None
    reason: str
    corrections: Mapping[str, float] = field(default_factory=dict)
    verdict: FindingVerdict | None = None  # where it differs from the rule's


@dataclass(frozen=True)
class Run:
    """One run as the rules see it: its index and row in the run table, and what the file says beside it."""

    index: int
    row: Row
    facts: Facts

    def number(self, name: str) -> float | None:
        """A measured column, None where it is not known."""
        value = self.row.get(name)
        return None if value is None or unknown_value(value) else float(value)

    def fact(self, name: str) -> float | None:
        """A fact that is a number, None where it is not known."""
        value = self.facts.get(name)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            return None
        return float(value)


@dataclass(frozen=True)
class Rule:
    """A rule about one run."""

    name: str
    verdict: FindingVerdict
    meaning: str
    limit: float
    check: Callable[[Run, float], Seen | None]


@dataclass(frozen=True)
class SeriesRule:
    """A rule about runs beside each other: the PP runs and the baseline of one series, all concurrencies."""

    name: str
    verdict: FindingVerdict
    meaning: str
    limit: float
    check: Callable[[list[Run], float], Iterable[tuple[Run, Seen]]]
