"""Which (tp, pp, replicas, concurrency) of a number of GPUs delivers most, by calibrated throughput under latency limits.

Candidates come from a campaign (its measured TP=G/PP=1 throughputs are what the coefficients multiply) or from a prediction
model (`calib.integrations.aiconfigurator`). Two configurations are told apart where their difference exceeds the hypotenuse of
the half widths of their 95 % intervals. Latencies are those of the traversal: structure, not calibrated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from calib.campaign import Campaign
from calib.efficiency import decompose
from calib.errors import NothingReleasedError, PredictionError, ReferenceMismatchError, UsageError
from calib.names import Matching, Reference
from calib.operating_points import BASELINE_FIELD, MODEL_FIELD
from calib.predict import Correction, Predictor
from calib.provenance import SHORT
from calib.schema import records
from calib.stages.latency import traversal_latency
from calib.stages.mix import ideal_throughput

Z95 = 1.959964  # of a measured throughput, whose error is stated rather than estimated


@dataclass(frozen=True)
class Candidate:
    """One configuration before calibration.

    ``concurrency`` [requests] is that of the whole deployment, shared evenly by its ``replicas``; None for the peak, whatever
    it is. ``multiplied`` is what the factor multiplies, ``uncalibrated`` what the model itself says [tok/s of one replica], at
    its own optimum where ``concurrency`` is None; ``own_balance`` the model's balance times occupancy [1], None to take the
    file's; ``rel_error`` the relative error of ``multiplied`` [1].
    """

    tp: int
    pp: int
    replicas: int
    concurrency: int | None
    multiplied: float
    uncalibrated: float | None = None
    own_balance: float | None = None
    ttft_ms: float | None = None
    tpot_ms: float | None = None
    rel_error: float = 0.0

    @property
    def name(self) -> str:
        """E.g. ``TP4/PP2 x1``."""
        return f"TP{self.tp}/PP{self.pp} x{self.replicas}"


@dataclass(frozen=True)
class Question:
    """What is deployed, and the limits: TTFT and TPOT [ms], None for no limit."""

    model: str
    system: str
    backend: str
    backend_version: str
    isl: int
    osl: int
    gpus: int
    precision: str | None = None
    ttft_ms: float | None = None
    tpot_ms: float | None = None


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


def shapes(gpus: int) -> Iterator[tuple[int, int, int]]:
    """Every (tp, pp, replicas) of ``gpus`` GPUs with tp and pp powers of two.

    Raises
    ------
    UsageError
        ``gpus`` is below 1.
    """
    if gpus < 1:
        raise UsageError("must be at least 1", field="gpus", value=gpus)
    powers = [2**i for i in range(gpus.bit_length()) if 2**i <= gpus]
    for pp in powers:
        for tp in reversed(powers):
            if gpus % (tp * pp) == 0:
                yield tp, pp, gpus // (tp * pp)


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


def campaign_candidates(campaign: Campaign, question: Question, matching: Matching) -> list[Candidate]:
    """Every (tp, pp) of the campaign's GPU count, from its measured TP=G/PP=1 throughputs, with replicas to fill the GPUs.

    ``peak``: one candidate a configuration, without a concurrency. ``matched``: one at each measured concurrency.

    Raises
    ------
    UsageError
        The campaign has no baseline of the model, or its replicas do not fill the GPUs.
    """
    table = decompose(campaign, matching=matching).table
    own = table[(table["model"] == question.model) & (table["backend"] == question.backend)]
    own = own[(own["isl"] == question.isl) & (own["osl"] == question.osl) & own["baseline_output_tokens_per_s"].notna()]
    if own.empty:
        known = ", ".join(sorted(set(table["model"]))) or "none"
        raise UsageError(
            f"has no measured TP=G/PP=1 throughput in campaign '{campaign.name}' (models it has: {known})",
            field="model", value=question.model, remedy="name another campaign, or use --engine aiconfigurator",
        )  # fmt: skip
    own = _one_series(own, question)
    baselines = {(int(r["gpus"]), r["baseline_concurrency"]): r for r in records(own)}
    found: list[Candidate] = []
    for (gpus, load), row in baselines.items():
        replicas, rest = divmod(question.gpus, gpus)
        if rest or not replicas:
            continue
        for tp, pp, one in shapes(gpus):
            if one == 1:
                found.append(
                    _measured(campaign, question, row, (tp, pp, replicas), None if matching == "peak" else int(load))
                )
    if not found:
        sizes = ", ".join(str(g) for g, _ in baselines)
        raise UsageError(
            f"is no multiple of the GPUs whose TP=G/PP=1 was measured ({sizes})", field="gpus", value=question.gpus,
            remedy="use --engine aiconfigurator, or measure that baseline",
        )  # fmt: skip
    return found


def _one_series(own: pd.DataFrame, question: Question) -> pd.DataFrame:
    """The rows of the version, system and precision that are asked for, where the campaign has several.

    Raises
    ------
    UsageError
        None of several is asked for.
    """
    for field in ("system", "backend_version", "precision"):
        known, asked = list(dict.fromkeys(None if v != v else v for v in own[field])), getattr(question, field)
        if len(known) > 1 and asked not in known:
            raise UsageError(
                f"is measured for several of the campaign's baselines ({', '.join(map(str, known))})", field=field,
                value=asked, remedy="name one of them",
            )  # fmt: skip
        if len(known) > 1:
            own = own[own[field] == asked]
    return own


def _measured(
    campaign: Campaign, question: Question, row: Mapping[str, Any], shape: tuple[int, int, int], load: int | None
) -> Candidate:
    tp, pp, replicas = shape
    at: dict[str, Any] = {"tp": tp, "pp": pp, "isl": question.isl, "osl": question.osl}
    stated = row["baseline_concurrency"]
    c = load if load is not None or stated is None or stated != stated else int(stated)
    ideal = latency = None
    if c is not None and campaign.breakdowns is not None and campaign.config.balance is not None:
        b, partition = campaign.breakdowns, campaign.config.balance.partition
        ideal = ideal_throughput(b, question.model, question.backend, concurrency=c, **at)
        decode = b.find(question.model, question.backend, concurrency=c, **at)
        mixed = b.find(question.model, question.backend, concurrency=c, kind="mixed", **at)
        latency = traversal_latency(decode, mixed, partition, c) if decode and mixed else None
    if load is None:
        ideal = _stated(campaign, question, tp, pp) or ideal
    return Candidate(
        tp, pp, replicas, None if load is None else load * replicas, float(row["baseline_output_tokens_per_s"]), ideal, None,
        latency.ttft_ms if latency else None, latency.tpot_ms if latency else None, float(row["baseline_rel_error"]),
    )  # fmt: skip


def _stated(campaign: Campaign, question: Question, tp: int, pp: int) -> float | None:
    """What the uncalibrated model was published to say at its own optimum [tok/s], where the campaign has it."""
    for r in campaign.published.get("uncalibrated", ()):
        if (r["model"], r["backend"], int(r["tp"]), int(r["pp"])) == (question.model, question.backend, tp, pp):
            return float(r["predicted_tokens_per_s_per_gpu"]) * tp * pp
    return None


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
