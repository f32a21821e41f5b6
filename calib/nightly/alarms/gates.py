"""A stream of campaigns (one system and backend) against what is released for it: coverage, verdicts, versions.

The comparison itself is `calib.coefficients.comparison.compare`, the one engine that reports and releases use as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from calib.coefficients import Coefficient, CoefficientSet, compare
from calib.errors import ReferenceMismatchError
from calib.files import sha256_bytes

Series = tuple[str, str, str, str | None, str | None]  # system, backend, backend version, model, precision
Point = tuple[str, str, str, int, int, int | None, int, int]  # system, backend, model, tp, pp, concurrency, isl, osl
SHOWN = 4  # points of a loss that are named


@dataclass(frozen=True)
class Alarm:
    """One thing a person should act on.

    ``scope`` is the backend and system it belongs to, ``state`` what exactly is the matter: an acknowledgement holds as long
    as it stays the same. ``opened`` is the night since which it stands.
    """

    kind: str
    scope: str
    series: str
    state: str
    text: str
    opened: int
    acknowledged: str | None = None

    @property
    def id(self) -> str:
        """Eight hex digits that stay the same as long as the alarm is open for the same reason."""
        return sha256_bytes(f"{self.kind}|{self.series}|{self.state}|{self.opened}".encode())[:8]


@dataclass(frozen=True)
class Lost:
    """Coverage that the reference had and tonight has not: whole series, and points of the others."""

    series: tuple[Series, ...]
    points: tuple[Point, ...]


def fitted_points(sets: Iterable[CoefficientSet]) -> set[Point]:
    """Configurations that coefficients were fitted with. Peak concurrencies wander, so they are left out there."""
    return {
        (b.system, b.backend, b.model, b.tp, b.pp, b.concurrency if s.matching == "matched" else None, b.isl, b.osl)
        for s in sets for b in s.balance_factors if b.fitted
    }  # fmt: skip


def lost_coverage(reference: CoefficientSet, tonight: Sequence[CoefficientSet]) -> Lost:
    """What the reference covers, of the backends that were measured tonight, and no set of tonight does."""
    streams = {(c.system, c.backend) for s in tonight for c in s.coefficients}
    models = {(c.system, c.backend, c.model, c.precision) for s in tonight for c in s.coefficients}
    gone = [c for c in reference.coefficients if c.model and (c.system, c.backend) in streams
            and (c.system, c.backend, c.model, c.precision) not in models]  # fmt: skip
    lost_models = {(c.system, c.backend, c.model) for c in gone}
    points = sorted(fitted_points([reference]) - fitted_points(tonight), key=str)
    kept = (p for p in points if p[:2] in streams and p[:3] not in lost_models)
    return Lost(tuple(_series(c) for c in gone), tuple(kept))


def compare_stream(
    reference: CoefficientSet, tonight: Sequence[CoefficientSet], night: int, recent: Sequence[CoefficientSet] = ()
) -> tuple[list[Alarm], list[str]]:
    """Alarms of one stream but those of moved values, and what is said of the comparison in words.

    ``tonight`` are the candidates of the campaigns that were measured tonight, ``recent`` those of nights before that count
    for coverage as well.
    """
    alarms: list[Alarm] = []
    said: list[str] = []
    comparable = []
    for candidate in tonight:
        try:
            compared = compare(reference, candidate)
        except ReferenceMismatchError as error:
            said.append(f"comparison unavailable: {error.problem}")
            continue
        comparable.append(candidate)
        said.append(compared.describe())
        for changed in compared.verdicts:
            if changed.key[3] is None and _models(reference, changed.key) != _models(candidate, changed.key):
                continue  # a pool of other models is another pool: what is lost of it is told as coverage
            series = describe(changed.key)
            text = f"verdict changed from {changed.old} to {changed.new}"
            alarms.append(Alarm("verdict", scope_of(changed.key), series, f"{changed.old}>{changed.new}", text, night))
    if not comparable:
        return alarms, said
    covering = [*comparable, *recent]
    return [*alarms, *_versions(reference, comparable, night), *_coverage(reference, covering, night)], said


def _models(s: CoefficientSet, series: Series) -> set[str]:
    """The models of a backend in a set."""
    return {c.model for c in s.coefficients if c.model and (c.system, c.backend) == series[:2]}


def _versions(reference: CoefficientSet, tonight: Sequence[CoefficientSet], night: int) -> list[Alarm]:
    alarms = []
    for c in (c for s in tonight for c in s.coefficients if c.model):
        own = [o for o in reference.coefficients if (o.system, o.backend, o.model) == (c.system, c.backend, c.model)]
        version = c.backend_versions.first
        if own and not any(o.backend_versions.covers(version) for o in own):
            known = ", ".join(dict.fromkeys(o.backend_versions.first for o in own))
            text = f"backend version {version} is not covered by the released coefficients, which know {known}"
            alarms.append(Alarm("version", scope_of(_series(c)), describe(_series(c)), version, text, night))
    return alarms


def _coverage(reference: CoefficientSet, tonight: Sequence[CoefficientSet], night: int) -> list[Alarm]:
    lost, alarms = lost_coverage(reference, tonight), []
    for series in lost.series:
        text = "the whole series is lost: it was covered and no campaign has it now"
        alarms.append(Alarm("series_lost", scope_of(series), describe(series), "lost", text, night))
    for system, backend in dict.fromkeys(p[:2] for p in lost.points):
        own = [p for p in lost.points if p[:2] == (system, backend)]
        shown = ", ".join(_point(p) for p in own[:SHOWN]) + (
            f" and {len(own) - SHOWN} more" if len(own) > SHOWN else ""
        )
        state = sha256_bytes(repr(own).encode())[:8]
        scope = f"{backend} on {system}"
        alarms.append(Alarm("points_lost", scope, scope, state, f"{len(own)} points lost: {shown}", night))
    return alarms


def scope_of(series: Series) -> str:
    """Backend and system of a series."""
    return f"{series[1]} on {series[0]}"


def describe(series: Series) -> str:
    """A series in words."""
    system, backend, version, model, precision = series
    return f"{model or 'any model'}{f' ({precision})' if precision else ''}, {backend} {version} on {system}"


def _series(c: Coefficient) -> Series:
    return (c.system, c.backend, c.backend_versions.first, c.model, c.precision)


def _point(p: Point) -> str:
    at = "" if p[5] is None else f" C={p[5]}"
    return f"{p[2]} TP{p[3]}/PP{p[4]}{at}"
