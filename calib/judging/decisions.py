"""Does the prediction choose the right configuration? Kendall's tau, top-1 and regret, before and after calibration.

An ideal PP model is not a little wrong but upside down, so the decision is a result on the same footing as the error. For
each model and backend the configurations (tp, pp) of one GPU count are ranked by predicted throughput and held against what was
measured: at the model's own optimum concurrency (as the uncalibrated model's published predictions are stated), and at
matched concurrency.

    regret = 1 - measured(chosen) / measured(best)        in % of throughput
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pandas as pd

from calib.arrays import Array
from calib.fitting import Decomposition, decompose, kendall_tau
from calib.judging.left_out import ONE_MODEL, Data, Way, left_out, thinned
from calib.measure import SERIES, Campaign, usable
from calib.pipeline import ideal_throughput

UNCALIBRATED, CALIBRATED, CALIBRATED_BY_OTHERS = "uncalibrated model", "calibrated", "calibrated, this model left out"
OWN_OPTIMUM = "own optimum"
COLUMNS = (
    "backend", "model", "at", "concurrency", "approach", "configurations", "tau", "chosen", "best", "hit", "regret_pct",
)  # fmt: skip


@dataclass(frozen=True)
class Decision:
    """One ranking against what was measured; ``tau`` NaN where every configuration is predicted the same."""

    tau: float
    chosen: str
    best: str
    regret_pct: float

    @property
    def hit(self) -> bool:
        """Whether the chosen configuration is one of the best."""
        return self.regret_pct == 0.0


def decide(*, predicted: Array, measured: Array, names: list[str]) -> Decision:
    """Rank configurations by predicted throughput and see what the first choice costs."""
    tau = kendall_tau(predicted, measured)
    first = int(np.argmax(predicted))
    best = int(np.argmax(measured))
    return Decision(tau, names[first], names[best], float(100 * (1 - measured[first] / measured[best])))


def rank_decisions(decomposition: Decomposition) -> pd.DataFrame:
    """One row a (model, backend, concurrency, approach); columns `COLUMNS`. Empty for campaigns of ratios.

    Calibrated predictions multiply the measured TP=G/PP=1 throughput: in sample by the model's own coefficient, and, with
    this model left out, by the pool of the others.
    """
    campaign = decomposition.campaign
    rows = [*_own_optimum(campaign, decomposition), *_matched(campaign, decomposition)]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def summarize_decisions(table: pd.DataFrame) -> pd.DataFrame:
    """Over the concurrencies of each model: rankings, how often the best was chosen, mean tau, mean and worst regret."""
    rows = []
    for (backend, model, at, approach), group in table.groupby(["backend", "model", "at", "approach"], sort=False):
        rows.append(
            {
                "backend": backend, "model": model, "at": at, "approach": approach, "rankings": len(group),
                "hits": int(group["hit"].sum()), "tau": float(group["tau"].mean()),
                "regret_pct": float(group["regret_pct"].mean()), "worst_regret_pct": float(group["regret_pct"].max()),
                "chosen": ", ".join(dict.fromkeys(group["chosen"])), "best": ", ".join(dict.fromkeys(group["best"])),
            }
        )  # fmt: skip
    return pd.DataFrame(rows)


def _own_optimum(campaign: Campaign, decomposition: Decomposition) -> list[dict[str, Any]]:
    table = decomposition.table
    if decomposition.matching != "peak":
        table = _decomposed(campaign, decomposition, "peak")
    stated = {
        (r["model"], r["backend"], int(r["tp"]), int(r["pp"])): float(r["predicted_tokens_per_s_per_gpu"])
        for r in campaign.published.get("uncalibrated", ())
    }
    return _decided(campaign, table, OWN_OPTIMUM, "log2", stated)


def _matched(campaign: Campaign, decomposition: Decomposition) -> list[dict[str, Any]]:
    table = decomposition.table
    if decomposition.matching != "matched":
        table = _decomposed(campaign, decomposition, "matched")
    if table.empty or table["concurrency"].isna().any():
        return []
    several = table.groupby(["backend", "model"])["concurrency"].nunique().min() >= 3
    return _decided(campaign, table, "matched concurrency", "log2_concurrency" if several else "log2", None)


def _decomposed(campaign: Campaign, like: Decomposition, matching: str) -> pd.DataFrame:
    runs = usable(campaign)
    if runs["efficiency"].notna().any():
        return like.table.iloc[:0]
    return decompose(
        campaign, matching=cast(Any, matching), reference=like.reference, error_floor=like.error_floor,
        balance=like.balance, end_effect=like.end_effect,
    ).table  # fmt: skip


def _decided(
    campaign: Campaign,
    table: pd.DataFrame,
    at: str,
    form: str,
    stated: Mapping[tuple[str, str, int, int], float] | None,
) -> list[dict[str, Any]]:
    """Every ranking of one matching; ``stated`` the uncalibrated predictions, computed from the steps where None."""
    rows: list[dict[str, Any]] = []
    measured = thinned(table[table["baseline_output_tokens_per_s"].notna()])
    for _, backend in measured.groupby(["system", "backend", "backend_version"], dropna=False, sort=False):
        data = Data.of(backend)
        own = left_out(Way(form, "model", "decode").predict, data, "in-sample")
        others = left_out(Way(form, "partial", "decode").predict, data, ONE_MODEL)
        frame = backend.assign(own=own, others=others)
        keys = [*SERIES, *(["concurrency"] if stated is None else [])]
        for _, group in frame.groupby(keys, dropna=False, sort=False):
            rows += _rankings(campaign, group, at, stated)
    return rows


def _rankings(
    campaign: Campaign, group: pd.DataFrame, at: str, stated: Mapping[tuple[str, str, int, int], float] | None
) -> list[dict[str, Any]]:
    first = group.iloc[0]
    base = float(first["baseline_output_tokens_per_s"])
    shapes = [(int(first["gpus"]), 1), *((int(t), int(p)) for t, p in zip(group["tp"], group["pp"], strict=True))]
    names = [f"TP{t}/PP{p}" for t, p in shapes]
    measured = np.array([base, *group["output_tokens_per_s"]], dtype=np.float64)
    model, backend = str(first["model"]), str(first["backend"])
    if stated is None:
        ideal = [_ideal(campaign, first, tp, pp) for tp, pp in shapes]
    else:
        ideal = [stated.get((model, backend, tp, pp)) for tp, pp in shapes]
    rankings: dict[str, Array] = {}
    if all(x is not None for x in ideal):
        rankings[UNCALIBRATED] = np.array(ideal, dtype=np.float64)
    rankings[CALIBRATED] = base * np.array([1.0, *group["own"]])
    rankings[CALIBRATED_BY_OTHERS] = base * np.array([1.0, *group["others"]])
    rows = []
    for approach, predicted in rankings.items():
        if np.isnan(predicted).any():
            continue
        d = decide(predicted=predicted, measured=measured, names=names)
        rows.append(
            {
                "backend": backend, "model": model, "at": at,
                "concurrency": int(first["concurrency"]) if stated is None else None, "approach": approach,
                "configurations": len(names), "tau": d.tau, "chosen": d.chosen, "best": d.best, "hit": d.hit,
                "regret_pct": d.regret_pct,
            }
        )  # fmt: skip
    return rows


def _ideal(campaign: Campaign, row: pd.Series, tp: int, pp: int) -> float | None:
    if campaign.breakdowns is None:
        return None
    at = {name: int(row[name]) for name in ("isl", "osl", "concurrency")}
    return ideal_throughput(campaign.breakdowns, str(row["model"]), str(row["backend"]), tp=tp, pp=pp, **at)
