"""Tonight against what is released, or against the first night where nothing is: every alarm of the night."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from calib.coefficients import CoefficientSet
from calib.nightly.alarms.gates import Alarm, Series, compare_stream, describe, scope_of
from calib.nightly.alarms.monitor import family_limit
from calib.nightly.alarms.series import Level, Measured, Move, follow, together
from calib.nightly.campaign_task import load_candidate
from calib.nightly.history import Measurement, latest, measurements
from calib.nightly.night_context import ReleasedReference, Situation
from calib.nightly.prediction_errors import mape_alarms
from calib.nightly.record import Ack, AlarmRecord


def judge(at: Situation) -> tuple[list[AlarmRecord], list[str]]:
    """The alarms that stand at the end of the night, and what is said of the comparisons in words."""
    found: list[Alarm] = []
    said: list[str] = []
    judged: set[str] = set()
    whole: set[str] = set()  # backends of which every model of the reference was measured tonight
    for scope, own in at.streams():
        reference = _reference(at, scope, own)
        if (why := _unavailable(at, scope, own, reference)) is not None:
            said.append(f"{scope}: comparison unavailable: {why}")
            continue
        if reference is None:
            said.append(f"{scope}: measured for the first time; nothing to compare with")
            continue
        judged.add(scope)
        sets = [load_candidate(at.reports, str(e.campaign.report)) for e in own]
        alarms, words = compare_stream(reference.coefficients, sets, at.night, _recent(at, scope, own))
        found += [a for a in alarms if a.scope == scope]
        said += [f"{scope}, against {reference.name}: {w}" for w in words]
        found += mape_alarms(at, scope, reference, own)
        moves, furthest = _moved(at, scope, own, reference)
        found += moves
        said += furthest
        if _models(reference.coefficients, scope) <= {m for s in sets for m in _models(s, scope)}:
            whole.add(scope)
    judged |= {c.campaign for c in at.campaigns if c.digest and c.status != "gone"}
    judged |= {s for s, why in at.sources.items() if why is None}
    held = [a for a in at.before if a.scope not in judged or not _measured(at, a, whole)]
    settled = _settled(at, [*found, *_campaigns_lost(at), *_sources_lost(at)], held)
    still = {(a.kind, a.series) for a in settled}
    said += [f"{a.scope}: closed: {a.kind}, {a.series}" for a in at.before if (a.kind, a.series) not in still]
    return settled, said


def _recent(at: Situation, scope: str, tonight: Sequence[Measurement]) -> list[CoefficientSet]:
    """What was measured of a backend in the nights before that count for coverage."""
    own = [e for e in at.comparable(scope, tonight) if e.night < at.night]
    nights = sorted({e.night for e in own})[::-1][: at.limits.coverage_nights - 1]
    return [load_candidate(at.reports, str(e.campaign.report)) for e in own if e.night in nights]


def _campaigns_lost(at: Situation) -> list[Alarm]:
    """Campaigns that were calibrated the night before and are not any more: their coverage is lost as a whole."""
    lost = [
        c for c in at.campaigns
        if c.campaign in at.calibrated_before and (c.status == "gone" or c.digest is None)
    ]  # fmt: skip
    return [
        Alarm("campaign_lost", c.campaign, c.campaign, c.status, f"not calibrated any more: {c.failure}", at.night)
        for c in lost
    ]


def _sources_lost(at: Situation) -> list[Alarm]:
    """Sources that had campaigns and cannot be looked into: nobody would see what is measured there."""
    return [Alarm("source_lost", s, s, "lost", why, at.night) for s, why in at.sources.items() if why is not None]


def _reference(at: Situation, scope: str, tonight: Sequence[Measurement]) -> ReleasedReference | None:
    """The newest release that covers a backend, else the first comparable night; None where tonight is the first."""
    ours = load_candidate(at.reports, str(tonight[0].campaign.report))
    for coefficients in at.released:
        same = (coefficients.reference, coefficients.matching) == (ours.reference, ours.matching)
        if same and scope in {f"{c.backend} on {c.system}" for c in coefficients.coefficients}:
            own = [e for e in at.history if e.campaign.digest == coefficients.digest or _made(e, coefficients)]
            name = f"the released coefficients {coefficients.digest[:12]}"
            return ReleasedReference(coefficients, name, own[0] if own else None)
    first = next(iter(at.comparable(scope, tonight)), None)
    if first is None or first.night == at.night:
        return None
    loaded = load_candidate(at.reports, str(first.campaign.report))
    return ReleasedReference(loaded, f"night {first.night} ({first.campaign.campaign}; nothing is released)", first)


def _made(entry: Measurement, released: CoefficientSet) -> bool:
    """Whether a release was made from this entry's candidate: the same inputs (only ``supersedes`` was filled in)."""
    same = {i.path: i.sha256 for i in released.inputs} == entry.campaign.inputs
    return same and released.balance_source.step is not None and bool(entry.campaign.digest)


def _unavailable(
    at: Situation, scope: str, tonight: Sequence[Measurement], reference: ReleasedReference | None
) -> str | None:
    """Why tonight cannot be compared: rules, or latencies, are others than the reference's."""
    earlier = [e for e in at.history if scope in e.scopes and e.night < at.night]
    known = reference.entry if reference else None
    if known is None and earlier and not any(e.agrees(t) for e in earlier for t in tonight):
        known = earlier[-1]
    if known is None or all(known.agrees(t) for t in tonight):
        return None
    (rules, revision), (rules_now, revision_now) = known.basis, tonight[0].basis
    if rules != rules_now:
        what = f"the rules changed ({rules[:12]} to {rules_now[:12]})"
    elif revision != revision_now:
        what = f"the latencies behind the balance factors changed ({revision[:12]} to {revision_now[:12]})"
    else:
        what = "the latencies behind the balance factors changed, under the same source and version"
    return f"{what}; a new baseline begins"


def _moved(
    at: Situation, scope: str, tonight: Sequence[Measurement], reference: ReleasedReference
) -> tuple[list[Alarm], list[str]]:
    """Coefficients that moved, and those whose move is acknowledged; and how far the furthest is, in words."""
    alarms: list[Alarm] = []
    furthest: tuple[float, str] | None = None
    same = at.comparable(scope, tonight)
    rows = measurements(latest(same))
    limit = family_limit(at.limits, len(rows))
    for (series, parameter), found in rows.items():
        if (series, parameter) not in measurements(tonight) or scope_of(series) != scope or series[3] is None:
            continue
        start = _start(reference, same, series, parameter)
        name = f"{parameter} of {describe(series)}"
        move = None if start is None else _follow(at, name, start, found, limit)
        if move is None:
            continue
        if alarm := _alarm(at, scope, name, move):
            alarms.append(alarm)
        if furthest is None or abs(move.z) > furthest[0]:
            furthest = (abs(move.z), f"{abs(move.z):.1f} of {move.limit:.1f} standard errors ({name})")
    text = "furthest from the baseline, by the errors that the measurements state"
    return alarms, [f"{scope}: {text}: {furthest[1]}"] if furthest else []


def _start(reference: ReleasedReference, same: Sequence[Measurement], series: Series, parameter: str) -> Level | None:
    """Where the baseline of a coefficient begins; errors as stated by the measurements, where these are on record."""
    entry = reference.entry
    recorded = measurements([entry]).get((series, parameter)) if entry else None
    if recorded and entry:
        own = together(recorded)
        return Level(own.value, own.stderr, entry.night, "reference")
    if level := _published(reference.coefficients, series, parameter):
        return level
    first = measurements(same).get((series, parameter))
    return Level(first[0].value, first[0].stderr, first[0].night, "first") if first else None


def _published(coefficients: CoefficientSet, series: Series, parameter: str) -> Level | None:
    """A coefficient of a file that no night made: its error with the scale of its own scatter taken out again."""
    for c in coefficients.coefficients:
        same = (c.system, c.backend, c.model, c.precision) == (series[0], series[1], series[3], series[4])
        e = c.estimate
        if same and c.backend_versions.covers(series[2]) and parameter in e.parameters and e.stderr:
            i = e.parameters.index(parameter)
            test = next((d for d in c.detectors if d.name.startswith("chi-square") and d.dof == e.dof), None)
            factor = np.sqrt(test.statistic / test.dof) if test and test.dof and test.statistic > 0 else 1.0
            return Level(e.values[i], float(e.stderr[i] / factor), -1, "released")
    return None


def _follow(at: Situation, name: str, start: Level, found: Sequence[Measured], limit: float) -> Move | None:
    nights = [together(list(own)) for _, own in itertools.groupby(found, key=lambda m: m.night)]
    known = {a.id for a in at.before if a.kind == "moved" and a.series == name}
    acks = {a.night: a.id for a in at.acks if a.id in known or _of_series(at, a, name)}
    return follow(start, nights, limits=at.limits, limit=limit, acks=acks)


def _alarm(at: Situation, scope: str, name: str, move: Move) -> Alarm | None:
    """The alarm of a coefficient that is off, or that was when its move was acknowledged."""
    text = (
        f"{move.value:.4f} against a baseline of {move.baseline:.4f}: {move.z:+.1f} combined standard errors "
        f"(limit {move.limit:.2f})"
    )
    if move.opened is not None:
        return Alarm("moved", scope, name, "up" if move.z > 0 else "down", text, move.opened)
    if move.acknowledged is not None:
        ack = next(a for a in at.acks if a.id == move.acknowledged)
        old = next((a for a in at.before if a.kind == "moved" and a.series == name and a.id == ack.id), None)
        state, opened, words = (old.state, old.opened, old.text) if old else ("up", ack.night, text)
        return Alarm("moved", scope, name, state, words, opened, ack.why)
    return None


def _of_series(at: Situation, ack: Ack, name: str) -> bool:
    """Whether an acknowledgement is of this coefficient's move; its id says so for any night the alarm may have opened."""
    nights = range(1, at.night + 1)
    return any(Alarm("moved", "", name, s, "", n).id == ack.id for s in ("up", "down") for n in nights)


def _models(s: CoefficientSet, scope: str) -> set[str]:
    return {c.model for c in s.coefficients if c.model and f"{c.backend} on {c.system}" == scope}


def _measured(at: Situation, a: AlarmRecord, whole: set[str]) -> bool:
    """Whether tonight's measurements speak of what an alarm is about: a part of a backend closes no alarm of another part."""
    tonight = {k for e in at.tonight for k in measurements([e])}
    if a.kind == "moved":
        return a.series in {f"{parameter} of {describe(series)}" for series, parameter in tonight}
    if a.kind in ("verdict", "version"):
        model, pooled = a.series.rpartition(", ")[0], describe((*_NOWHERE, None, None)).rpartition(", ")[0]
        return model == pooled or model in {describe(series).rpartition(", ")[0] for series, _ in tonight}
    return a.scope in whole if a.kind in ("mape", "mape_candidate") else True


_NOWHERE = ("", "", "")


def _settled(at: Situation, found: Sequence[Alarm], held: Sequence[AlarmRecord]) -> list[AlarmRecord]:
    """Tonight's alarms with the ids they had, those that tonight says nothing of, and what was acknowledged."""
    before = {(a.kind, a.series, a.state): a for a in at.before}
    reasons = {a.id: a.why for a in at.acks}
    records: dict[str, AlarmRecord] = {}
    for alarm in found:
        old = before.get((alarm.kind, alarm.series, alarm.state))
        own = alarm if old is None or alarm.kind == "moved" else replace(alarm, opened=old.opened)
        records[own.id] = _record(own, own.acknowledged or reasons.get(own.id))
    for a in held:
        if a.id not in records:
            records[a.id] = AlarmRecord(**{**_fields(a), "acknowledged": reasons.get(a.id, a.acknowledged)})
    return sorted(records.values(), key=lambda a: (a.acknowledged is not None, a.scope, a.kind, a.series, a.id))


def _fields(a: AlarmRecord) -> Mapping[str, Any]:
    return {n: getattr(a, n) for n in AlarmRecord.__struct_fields__}


def _record(a: Alarm, acknowledged: str | None) -> AlarmRecord:
    return AlarmRecord(
        id=a.id, kind=a.kind, scope=a.scope, series=a.series, state=a.state, opened=a.opened, text=a.text,
        acknowledged=acknowledged,
    )  # fmt: skip
