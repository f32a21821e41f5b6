"""What balance, fill and the model itself explain of one efficiency, and what they leave as its residual."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd

from calib.errors import BreakdownError
from calib.fitting.comparison_rules import IMPLAUSIBLE, NO_BALANCE, NO_MODEL, UNKNOWN_OP
from calib.fitting.matching import point_finding, point_warning
from calib.measure import Campaign, Finding
from calib.names import BalanceKind, Reference
from calib.pipeline import Step, UnknownOpWarning, balance_factor, ideal_throughput, steady_state_of
from calib.units import METRICS


def explain_point(
    campaign: Campaign, point: dict[str, Any], balance: BalanceKind, reference: Reference
) -> tuple[dict[str, Any] | None, list[Finding]]:
    """The point with its shares, or None, and what is to be said of it."""
    limit = METRICS["efficiency"].high
    if point["efficiency"] > limit:
        reason = f"an efficiency of {point['efficiency']:g} is over {limit:g}, which no pipeline has"
        return None, [point_finding(IMPLAUSIBLE, point, reason)]
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", UnknownOpWarning)
        step, factor, reason = _balance(campaign, point, balance)
    findings = [point_warning(UNKNOWN_OP, point, str(w.message)) for w in said]
    if step is None or factor is None:
        return None, [*findings, point_finding(NO_BALANCE, point, f"{reason}, so its balance factor is unknown")]
    k = fill = 1.0
    if reference == "model":
        ideal = _ideal_ratio(campaign, point)
        if ideal is None or campaign.config.balance is None:
            reason = (
                "the breakdown file has no decode and mixed step of it and of its baseline, or no concurrency is stated"
            )
            return None, [*findings, point_finding(NO_MODEL, point, reason)]
        k, fill = ideal, steady_state_of(step, campaign.config.balance.partition, int(point["concurrency"])).occupancy
    return _decomposed(point, step, factor, k, fill), findings


def _ideal_ratio(campaign: Campaign, point: dict[str, Any]) -> float | None:
    """K: the model's ideal throughput of a point over that of its baseline [1]."""
    if campaign.breakdowns is None or pd.isna(point["concurrency"]) or pd.isna(point["baseline_concurrency"]):
        return None
    model, backend = point["model"], point["backend"]
    workload = {"isl": int(point["isl"]), "osl": int(point["osl"])}
    tp, pp, c = (int(point[name]) for name in ("tp", "pp", "concurrency"))
    own = ideal_throughput(campaign.breakdowns, model, backend, tp=tp, pp=pp, concurrency=c, **workload)
    c0, gpus = int(point["baseline_concurrency"]), int(point["gpus"])
    base = ideal_throughput(campaign.breakdowns, model, backend, tp=gpus, pp=1, concurrency=c0, **workload)
    return None if own is None or base is None else own / base


def _balance(campaign: Campaign, point: dict[str, Any], balance: BalanceKind) -> tuple[Step | None, float | None, str]:
    """The decode step of a point and its balance factor, or why there is none."""
    breakdowns, config = campaign.breakdowns, campaign.config.balance
    if breakdowns is None or config is None:
        return None, None, "the campaign names no breakdown file"
    c = None if pd.isna(point["concurrency"]) else int(point["concurrency"])
    tp, pp, isl, osl = (int(point[name]) for name in ("tp", "pp", "isl", "osl"))
    try:
        step = breakdowns.find(point["model"], point["backend"], tp=tp, pp=pp, isl=isl, osl=osl, concurrency=c)
        if step is None:
            return None, None, "the breakdown file has no step for it"
        factor = balance_factor(breakdowns, step, config.partition, balance)
    except BreakdownError as error:
        return None, None, f"the breakdown file {error.problem}"
    return step, factor, "the breakdown file has no mixed step for it"


def _decomposed(point: dict[str, Any], step: Step, balance: float, k: float, fill: float) -> dict[str, Any]:
    eta = point["efficiency"]
    total = 1 - eta
    return point | {
        "balance_factor": balance,
        "balance_status": step.status,
        "total_penalty_pp": 100 * total,
        "balance_share_pp": 100 * (1 - balance),
        "balance_share_of_total_pct": 100 * (1 - balance) / total if total > 0 else np.nan,
        "scheduling_share_pp": 100 * (balance - eta),
        "k_model": k,
        "fill_factor": fill,
        "explained": k * balance * fill,
        "residual": eta / (k * balance * fill),
    }
