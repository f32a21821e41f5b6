"""What could be deployed: every (tp, pp, replicas, concurrency) with the throughput a factor multiplies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from calib.errors import UsageError
from calib.fitting import decompose
from calib.measure import Campaign, records
from calib.names import Matching
from calib.pipeline import ideal_throughput, traversal_latency


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


def gpu_layouts(gpus: int) -> Iterator[tuple[int, int, int]]:
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
        for tp, pp, one in gpu_layouts(gpus):
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
