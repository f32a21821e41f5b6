"""Which (tp, pp, replicas, concurrency) of a number of GPUs delivers most, by calibrated throughput under latency limits.

Candidates come from a campaign (its measured TP=G/PP=1 throughputs are what the coefficients multiply) or from a prediction
model (`calib.integrations.aiconfigurator`). Two configurations are told apart where their difference exceeds the hypotenuse of
the half widths of their 95 % intervals. Latencies are those of the traversal: structure, not calibrated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from calib.coefficients import BASELINE_FIELD, MODEL_FIELD, Correction, Predictor
from calib.errors import NothingReleasedError, PredictionError, ReferenceMismatchError, UsageError
from calib.files import SHORT
from calib.judging.candidates import Candidate, Question
from calib.names import Matching, Reference

Z95 = 1.959964  # of a measured throughput, whose error is stated rather than estimated


@dataclass(frozen=True)
class Choice:
    """A candidate with its calibrated throughput of all replicas [tok/s] and 95 % interval, or why there is none.

    ``told_apart`` is whether it differs from the first choice by more than both intervals; None where one is unknown.
    """

    candidate: Candidate
    value: float
    low: float
    high: float
    flag: str
    told_apart: bool | None = True

    @property
    def extrapolated(self) -> bool:
        """Whether it rests on an extrapolation, or on a form the data reject."""
        return self.flag in ("extrapolated", "refused")


@dataclass(frozen=True)
class Recommendation:
    """The best concurrency of each configuration, best first; what could not be predicted or breaks a limit, with the reason.

    ``within`` are all candidates that keep the limits, whether they could be predicted or not.
    """

    question: Question
    choices: tuple[Choice, ...]
    left_out: tuple[tuple[Candidate, str], ...]
    applied: str
    source: str
    reference: Reference = "baseline"
    within: tuple[Candidate, ...] = ()

    @property
    def best(self) -> Choice:
        """The first choice."""
        return self.choices[0]

    def uncalibrated_best(self) -> Candidate | None:
        """What the model itself would have chosen, over the same candidates and limits."""
        known = [c for c in self.within if c.uncalibrated is not None]
        return max(known, key=lambda c: (c.uncalibrated or 0.0) * c.replicas) if known else None

    def describe(self) -> str:
        """The recommendation in a few sentences."""
        first, load = self.best.candidate, self.best.candidate.concurrency
        at = "its peak concurrency" if load is None else f"concurrency {load}"
        lines = [
            f"{first.name} at {at}: {self.best.value:.0f} tok/s ({self.best.value / self.question.gpus:.0f} tok/s a GPU)"
        ]
        same = [c.candidate.name for c in self.choices[1:] if c.told_apart is False]
        unknown = [c.candidate.name for c in self.choices[1:] if c.told_apart is None]
        if same:
            lines.append(f"not distinguishable from it: {', '.join(same)}")
        if unknown:
            lines.append(f"without an interval, so it is not known whether they differ from it: {', '.join(unknown)}")
        if shaky := [c.candidate.name for c in self.choices if c.extrapolated]:
            lines.append(f"rest on an extrapolation or a refused form: {', '.join(shaky)}")
        if self.reference == "model":
            lines.append("no interval holds the error of the model's own PP=1 prediction, which is not calibrated")
        own = self.uncalibrated_best()
        if own is not None and (own.tp, own.pp, own.replicas) != (first.tp, first.pp, first.replicas):
            lines.append(f"the uncalibrated model would have chosen {own.name}")
        return "; ".join(lines)


def require_reference(predictor: Predictor, wanted: Reference) -> None:
    """Raise where a coefficient file multiplies another quantity.

    Raises
    ------
    ReferenceMismatchError
        With both quantities.
    """
    has = predictor.coefficients.reference
    if has != wanted:
        what = {"model": "a model's own ideal-PP throughput", "baseline": "the throughput measured at TP=G/PP=1"}
        raise ReferenceMismatchError(
            f"is needed here, since {what[wanted]} is what shall be corrected, and the file multiplies {what[has]}",
            file=predictor.source or None,
            field="reference",
            value=wanted,
            remedy=f"give a file fitted with --reference {wanted}",
        )


def recommend(
    question: Question,
    candidates: Collection[Candidate],
    predictor: Predictor,
    *,
    allow_refused: Collection[str] = (),
    extrapolate: bool | Collection[str] = False,
    correction: Correction = "on",
) -> Recommendation:
    """Rank candidates by calibrated throughput; the best concurrency of each (tp, pp, replicas) that keeps the limits.

    Raises
    ------
    NothingReleasedError
        No candidate can be predicted within the limits; with the reason of the first.
    """
    for name in ("ttft_ms", "tpot_ms"):
        limit = getattr(question, name)
        if limit is not None and not 0 < limit < math.inf:
            raise UsageError("is no limit", field=name, value=limit, remedy="give a positive number of milliseconds")
    best: dict[str, Choice] = {}
    left_out: list[tuple[Candidate, str]] = []
    within: list[Candidate] = []
    for candidate in candidates:
        if broken := _broken_limit(question, candidate):
            left_out.append((candidate, broken))
            continue
        within.append(candidate)
        try:
            made = predictor.throughput(
                _point(question, candidate, predictor.coefficients.reference),
                allow_refused=allow_refused, extrapolate=extrapolate, correction=correction,
            )  # fmt: skip
        except PredictionError as error:
            left_out.append((candidate, str(error)))
            continue
        value, high = float(made.value[0]), float(made.high[0])
        half = math.hypot(high - value, Z95 * candidate.rel_error * value) * candidate.replicas
        total = value * candidate.replicas
        choice = Choice(candidate, total, total - half, total + half, str(made.flags[0]))
        if candidate.name not in best or choice.value > best[candidate.name].value:
            best[candidate.name] = choice
    if not best:
        why = left_out[0][1] if left_out else "there are no candidates"
        raise NothingReleasedError(
            f"no configuration of {question.gpus} GPUs can be recommended: {why}",
            remedy="relax the limits, allow an extrapolation, or measure a campaign that covers it",
        )
    ranked = sorted(best.values(), key=lambda c: -c.value)
    choices = tuple(_against(ranked[0], c) for c in ranked)
    applied = predictor.coefficients.digest if correction == "on" else "none"
    return Recommendation(
        question, choices, tuple(left_out), applied, predictor.source, predictor.coefficients.reference, tuple(within)
    )


def _point(question: Question, candidate: Candidate, reference: Reference) -> dict[str, Any]:
    point: dict[str, Any] = {
        name: getattr(question, name) for name in ("model", "system", "backend", "backend_version", "isl", "osl")
    }
    point |= {"tp": candidate.tp, "pp": candidate.pp}
    point[BASELINE_FIELD if reference == "baseline" else MODEL_FIELD] = candidate.multiplied
    if question.precision is not None:
        point["precision"] = question.precision
    if candidate.concurrency is not None:
        point["concurrency"] = candidate.concurrency // candidate.replicas
    if candidate.own_balance is not None:
        point["balance_factor"] = candidate.own_balance
    return point


def _broken_limit(question: Question, candidate: Candidate) -> str:
    for name, limit, value in (
        ("TTFT", question.ttft_ms, candidate.ttft_ms),
        ("TPOT", question.tpot_ms, candidate.tpot_ms),
    ):
        if limit is not None and value is None:
            return f"limit: its {name} is not known, so it cannot be held against {limit:g} ms"
        if limit is not None and value is not None and value > limit:
            return f"limit: its {name} of {value:.1f} ms (not calibrated) is over {limit:g} ms"
    return ""


def _against(first: Choice, other: Choice) -> Choice:
    """Whether a choice is told apart from the first one."""
    if other is first:
        return other
    both = math.hypot(first.high - first.value, other.high - other.value)
    apart = None if math.isnan(both) else first.value - other.value > both
    return Choice(other.candidate, other.value, other.low, other.high, other.flag, apart)


def choose_release(
    question: Question,
    candidates: Callable[[Matching], Collection[Candidate]],
    predictors: Collection[Predictor],
    *,
    reference: Reference = "baseline",
    **options: Any,
) -> Recommendation:
    """The recommendation by the first of the predictors that answers for a configuration with PP > 1.

    ``candidates`` gives those of a matching, ``options`` are those of `recommend`.

    Raises
    ------
    NothingReleasedError
        None does; with what each lacks.
    """
    lacks = []
    for predictor in predictors:
        c = predictor.coefficients
        if c.reference != reference:
            lacks.append(f"{c.digest[:SHORT]} has reference '{c.reference}', not '{reference}'")
            continue
        try:
            made = recommend(question, candidates(c.matching), predictor, **options)
        except NothingReleasedError as error:
            lacks.append(f"{c.digest[:SHORT]}: {error.problem}")
            continue
        # Where no PP > 1 is within the limits, or there is none, PP = 1 is the whole answer.
        if any(x.candidate.pp > 1 for x in made.choices) or all(x.pp == 1 for x in made.within):
            return made
        reasons = [why for candidate, why in made.left_out if candidate.pp > 1]
        lacks.append(f"{c.digest[:SHORT]}: {reasons[0] if reasons else 'no configuration with PP > 1'}")
    raise NothingReleasedError(
        f"no coefficient file answers for {question.model} with PP > 1 ({'; '.join(lacks) or 'nothing is released'})",
        remedy="give a coefficient file with --coefficients, or release one with `calib release`",
    )
