"""What earlier nights say, as tonight's comparison needs it: one measurement a campaign, the latest."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from calib.nightly.alarms.gates import Series
from calib.nightly.alarms.series import Measured
from calib.nightly.record import CampaignNight, NightRecord

SERIES_FIELDS = ("system", "backend", "backend_version", "model", "precision")
CONFIGURATION = (*SERIES_FIELDS, "tp", "pp", "concurrency", "isl", "osl")
FITTED = ("new", "changed", "refitted")


@dataclass(frozen=True)
class Measurement:
    """A campaign as one night measured it, with its rows of the record."""

    night: int
    campaign: CampaignNight
    series: tuple[Mapping[str, Any], ...]
    points: tuple[Mapping[str, Any], ...]

    @property
    def basis(self) -> tuple[str, str]:
        """Rule fingerprint and data revision: entries can be compared where both are the same."""
        return (self.campaign.rules, self.campaign.revision)

    @property
    def latencies(self) -> Mapping[tuple[Any, ...], float]:
        """What the stage model explains of each point [1]: the content of the latencies, whatever they call themselves."""
        return {tuple(r[n] for n in CONFIGURATION): r["explained"] for r in self.points if r.get("explained")}

    def agrees(self, other: Measurement) -> bool:
        """Whether two entries can be compared: the same basis, and the same latencies at the points that both have."""
        mine, theirs = self.latencies, other.latencies
        return self.basis == other.basis and all(
            math.isclose(mine[k], theirs[k], rel_tol=1e-9) for k in mine.keys() & theirs.keys()
        )

    def shares_a_point(self, other: Measurement) -> bool:
        """Whether both have the very same measurement somewhere."""
        mine, theirs = ({(tuple(r[n] for n in CONFIGURATION), r["measured"]) for r in e.points} for e in (self, other))
        return bool(mine & theirs)

    @property
    def scopes(self) -> set[str]:
        """The backends and systems it measured."""
        return {f"{r['backend']} on {r['system']}" for r in self.series}


def entries(records: Iterable[NightRecord]) -> list[Measurement]:
    """Every fitted campaign of every night, in order."""
    found = []
    for record in records:
        series, points = _by_campaign(record.series), _by_campaign(record.points)
        fitted = (c for c in record.campaigns if c.status in FITTED and c.digest)
        found += [
            Measurement(record.night, c, tuple(series.get(c.campaign, ())), tuple(points.get(c.campaign, ())))
            for c in fitted
        ]
    return found


def _by_campaign(rows: Iterable[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    found: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        found.setdefault(str(row["campaign"]), []).append(row)
    return found


def latest(found: Sequence[Measurement]) -> list[Measurement]:
    """Every measurement once: of a campaign that grew its last state, of one that was measured anew each of them.

    It grew where it still has a point of the night before, to the last digit; a new measurement has none.
    """
    kept: dict[str, list[Measurement]] = {}
    for e in found:
        own = kept.setdefault(e.campaign.campaign, [])
        if own and own[-1].shares_a_point(e):
            own.pop()
        own.append(e)
    return sorted((e for own in kept.values() for e in own), key=lambda e: (e.night, e.campaign.campaign))


def series_key(row: Mapping[str, Any]) -> Series:
    """The series a row belongs to."""
    system, backend, version, model, precision = (row[n] for n in SERIES_FIELDS)
    return (system, backend, version, model, precision)


def measurements(found: Iterable[Measurement]) -> dict[tuple[Series, str], list[Measured]]:
    """For each series and parameter its measurements, in order of nights; several of one night stand one after another."""
    rows: dict[tuple[Series, str], list[Measured]] = {}
    for e in found:
        for r in e.series:
            if r["stated_stderr"]:
                own = rows.setdefault((series_key(r), r["parameter"]), [])
                own.append(Measured(e.night, r["value"], r["stated_stderr"], r["chi_square"], r["dof"]))
    return rows
