"""What tonight is judged by: the nights before, the released sets, the limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from calib.coefficients import CoefficientSet, Registry
from calib.nightly.alarms.monitor import Limits
from calib.nightly.history import Measurement
from calib.nightly.record import Ack, AlarmRecord, CampaignNight


@dataclass(frozen=True)
class ReleasedReference:
    """What a backend is compared with: a released set, or the first night's; ``entry`` is its campaign where on record."""

    coefficients: CoefficientSet
    name: str
    entry: Measurement | None


@dataclass(frozen=True)
class Situation:
    """Everything a comparison looks at; ``history`` includes tonight.

    ``sources`` are those that had campaigns the night before: why one cannot be looked into tonight, None where it can.
    """

    night: int
    history: Sequence[Measurement]
    tonight: Sequence[Measurement]
    released: Sequence[CoefficientSet]
    before: Sequence[AlarmRecord]
    acks: Sequence[Ack]
    limits: Limits
    reports: Path
    campaigns: Sequence[CampaignNight] = ()
    calibrated_before: frozenset[str] = frozenset()
    sources: Mapping[str, str | None] = field(default_factory=dict)

    def comparable(self, scope: str, tonight: Sequence[Measurement]) -> list[Measurement]:
        """What is on record of a backend under the rules and latencies of some of tonight's entries, these included."""
        own = [e for e in self.history if scope in e.scopes]
        return [e for e in own if e in tonight or all(e.agrees(t) for t in tonight)]

    def streams(self) -> list[tuple[str, list[Measurement]]]:
        """Tonight's entries by backend, and by basis where there are several."""
        found = []
        for scope in sorted({s for e in self.tonight for s in e.scopes}):
            entries = [e for e in self.tonight if scope in e.scopes]
            found += [(scope, [e for e in entries if e.basis == b]) for b in sorted({e.basis for e in entries})]
        return found


def released_sets(registry: str | None, base: Path) -> tuple[CoefficientSet, ...]:
    """The standing releases of a registry, newest first.

    Raises
    ------
    RegistryError, CoefficientFileError
        The registry or a file in it is damaged.
    """
    if registry is None:
        return ()
    opened = Registry.open(base / registry)
    return tuple(opened.load(e) for e in opened.current)
