"""The error of predictions, tonight against the baseline: over the intersection of the points that can be predicted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from calib.coefficients import CoefficientSet, Predictor
from calib.errors import PredictionError
from calib.nightly.alarms.gates import Alarm
from calib.nightly.alarms.monitor import mape_rise, mape_stderr
from calib.nightly.history import CONFIGURATION, Measurement, latest, series_key

if TYPE_CHECKING:
    from calib.nightly.night_context import ReleasedReference, Situation


@dataclass(frozen=True)
class NightErrors:
    """Absolute percentage errors [%] by configuration, and what is stated of the error of each measurement [1]."""

    ape: dict[tuple[Any, ...], list[float]]
    stated: dict[tuple[Any, ...], tuple[float, float]]
    series: dict[tuple[Any, ...], tuple[Any, ...]]


def mape_alarms(at: Situation, scope: str, reference: ReleasedReference, tonight: Sequence[Measurement]) -> list[Alarm]:
    """Where the reference predicts worse than it did, or tonight's candidate predicts worse than the reference."""
    alarms = []
    now = errors_of(reference.coefficients, tonight, scope)
    before = errors_of(reference.coefficients, _baseline(at, scope, reference, tonight), scope)
    if alarm := _rise(at, scope, "mape", "the reference predicts worse than it did", before, now, noise=True):
        alarms.append(alarm)
    own = own_errors(tonight, scope)
    if alarm := _rise(at, scope, "mape_candidate", "tonight's candidate predicts worse", now, own, noise=False):
        alarms.append(alarm)
    return alarms


def _baseline(
    at: Situation, scope: str, reference: ReleasedReference, tonight: Sequence[Measurement]
) -> list[Measurement]:
    """The reference's own night and the quiet ones after it, held while an alarm of this backend is open."""
    since = reference.entry.night if reference.entry else 0
    opened = [a.opened for a in at.before if a.scope == scope and a.kind in ("mape", "moved")]
    until = min([at.night, *opened])
    campaigns = {e.campaign.campaign for e in tonight}
    fit = [e for e in at.comparable(scope, tonight) if since <= e.night < until]
    own = [e for e in latest(fit) if e.campaign.campaign not in campaigns or e is reference.entry]
    nights = sorted({e.night for e in own})[: at.limits.baseline_nights + 1]
    return [e for e in own if e.night in nights] or ([reference.entry] if reference.entry else [])


def errors_of(coefficients: CoefficientSet, entries: Iterable[Measurement], scope: str) -> NightErrors:
    """The errors of a set on measured points; points it cannot predict are left out."""
    predictor, found = Predictor(coefficients), NightErrors({}, {}, {})
    for row in _rows(entries, scope):
        point = {n: row[n] for n in CONFIGURATION if row[n] is not None}
        try:
            factor = float(predictor.factor(point, allow_refused={str(row["model"])}).value[0])
        except PredictionError:
            continue
        _add(found, row, factor * float(row["k_model"] if row["k_model"] is not None else 1.0))
    return found


def own_errors(entries: Iterable[Measurement], scope: str) -> NightErrors:
    """The errors of each campaign's own candidate, as its night recorded them."""
    found = NightErrors({}, {}, {})
    for row in _rows(entries, scope):
        if row["predicted"] is not None:
            _add(found, row, float(row["predicted"]))
    return found


def _rows(entries: Iterable[Measurement], scope: str) -> Iterable[Mapping[str, Any]]:
    return (r for e in entries for r in e.points if f"{r['backend']} on {r['system']}" == scope and r["measured"])


def _add(found: NightErrors, row: Mapping[str, Any], predicted: float) -> None:
    measured = float(row["measured"])
    at = tuple(row[n] for n in CONFIGURATION)
    found.ape.setdefault(at, []).append(100.0 * abs(predicted - measured) / measured)
    found.stated[at] = (float(row["rel_error"] or 0.0), float(row["baseline_rel_error"] or 0.0))
    found.series[at] = series_key(row)


def _rise(
    at: Situation, scope: str, kind: str, words: str, before: NightErrors, now: NightErrors, *, noise: bool
) -> Alarm | None:
    common = sorted(before.ape.keys() & now.ape.keys(), key=str)
    if not common:
        return None
    old, new = (float(np.mean([np.mean(e.ape[k]) for k in common])) for e in (before, now))
    old_error, new_error = (_stderr(e, common) if noise else 0.0 for e in (before, now))
    rise, told = mape_rise(
        before=np.array(old), now=np.array(new), before_stderr=np.array(old_error), now_stderr=np.array(new_error),
        limits=at.limits,
    )  # fmt: skip
    if not told:
        return None
    text = f"{words}: MAPE {new:.1f} % against {old:.1f} % over {len(common)} common points, {float(rise):+.1f} points"
    return Alarm(kind, scope, scope, "up", text, at.night)


def _stderr(errors: NightErrors, common: Sequence[tuple[Any, ...]]) -> float:
    """Of the mean over nights of the MAPE [percentage points]."""
    own = np.array([errors.stated[k][0] for k in common])
    shared = np.array([errors.stated[k][1] for k in common])
    names = {s: i for i, s in enumerate(dict.fromkeys(errors.series[k] for k in common))}
    blocks = np.array([names[errors.series[k]] for k in common], dtype=np.intp)
    nights = float(np.mean([len(errors.ape[k]) for k in common]))
    return mape_stderr(own, shared, blocks) / float(np.sqrt(nights))
