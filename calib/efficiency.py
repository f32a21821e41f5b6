"""Observed PP efficiency, and what stage imbalance explains of it.

    eta               = x(tp, pp) / x(tp=G, pp=1)        x = output throughput per GPU, same series and GPU count
    total_penalty     = 1 - eta
    balance_share     = 1 - balance_factor
    scheduling_share  = balance_factor - eta
    residual          = eta / balance_factor

Shares are in percentage points and add up to the total; a negative one is a gain and stays visible. This is the
decomposition with ``reference = "baseline"`` that was published for the H200 campaign (discussion of
ai-dynamo/aiconfigurator pull request 1459).
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from calib.campaign import Campaign, Finding, describe_run
from calib.coefficients import BalanceKind, Matching
from calib.errors import BreakdownError, CampaignError, UsageError
from calib.quality import usable
from calib.schema import SERIES, natural_key, records
from calib.stages import Step, UnknownOpWarning
from calib.stages.mix import BALANCES, balance_factor
from calib.units import METRICS

NO_BASELINE = "no_baseline"
NO_BALANCE = "no_balance_factor"
NO_PP_RUN = "no_pp_run"
IMPLAUSIBLE = "implausible_efficiency"
UNKNOWN_OP = "unknown_op"
DATA_PARALLEL = "data_parallel"
# What is noticed only when runs are put beside their baseline; (name, verdict, meaning), as the rules of `calib.quality`.
RULES = (
    (NO_BASELINE, "REJECT", "no usable TP=G/PP=1 run of the series"),
    (NO_BALANCE, "REJECT", "no per-op latencies, so no balance factor"),
    (DATA_PARALLEL, "REJECT", "dp > 1, for which the baseline is not defined"),
    (IMPLAUSIBLE, "REJECT", "an efficiency no pipeline has"),
    (NO_PP_RUN, "WARN", "a baseline without a PP run"),
    (UNKNOWN_OP, "WARN", "an op of no known place in the pipeline"),
)
ERROR_FLOOR = 0.02  # relative error of a throughput where nothing better is known [1]

# One row an efficiency; `f` below is the residual.
COLUMNS = (
    *SERIES, "tp", "pp", "concurrency", "baseline_concurrency", "baseline_id", "output_tokens_per_s",
    "baseline_output_tokens_per_s", "efficiency", "rel_error", "baseline_rel_error", "rules",
    "balance_factor", "balance_status", "total_penalty_pp", "balance_share_pp", "balance_share_of_total_pct",
    "scheduling_share_pp", "residual",
)  # fmt: skip


@dataclass(frozen=True)
class Decomposition:
    """Efficiencies of a campaign with their decomposition.

    Attributes
    ----------
    table : DataFrame
        One row an observed efficiency with pp > 1; columns `COLUMNS`. Efficiencies, errors, balance and residual are
        ratios [1], shares and penalties percentage points, throughput tok/s.
    findings : tuple of Finding
        Series and points that could not be used, and why.
    """

    campaign: Campaign
    matching: Matching
    error_floor: float
    balance: BalanceKind
    table: pd.DataFrame
    findings: tuple[Finding, ...]


def decompose(
    campaign: Campaign,
    *,
    matching: Matching | None = None,
    reference: str = "baseline",
    error_floor: float = ERROR_FLOOR,
    balance: BalanceKind = "decode",
) -> Decomposition:
    """Observed efficiencies of all usable runs with pp > 1, decomposed.

    Parameters
    ----------
    campaign
        As `load_campaign` returns it, screened.
    matching
        ``peak``: each side at its best concurrency; ``matched``: the same concurrency on both sides. The campaign's own
        where it is None.
    reference
        Only ``baseline``, the TP=G/PP=1 measurement of the same campaign.
    error_floor
        Relative error of a throughput [1] below which none is believed.
    balance
        Balance of a pure ``decode`` step, of the workload's ``mixed`` steps, or 1 for ``none``.

    Raises
    ------
    UsageError
        An unknown matching or reference, or peak matching of ratios that are stated at several concurrencies.
    """
    matching = matching or campaign.config.matching
    _check_options(matching, reference, error_floor, balance)
    points, findings = _observe(usable(campaign), matching, error_floor)
    kept: list[dict[str, Any]] = []
    for point in points:
        explained, said = _explain(campaign, point, balance)
        findings += [f for f in said if f not in findings]
        if explained:
            kept.append(explained)
    table = pd.DataFrame(kept, columns=list(COLUMNS))
    table = table.astype({"concurrency": "Int64", "baseline_concurrency": "Int64"})
    last = ("concurrency", "pp") if matching == "matched" else ("pp", "concurrency")
    order = ["backend", "backend_version", *(c for c in SERIES if not c.startswith("backend")), *last]
    table = table.sort_values(order, kind="stable", na_position="first", ignore_index=True, key=natural_key)
    return Decomposition(campaign, matching, error_floor, balance, table, tuple(findings))


def _check_options(matching: str, reference: str, error_floor: float, balance: str) -> None:
    if matching not in ("peak", "matched"):
        raise UsageError("must be 'peak' or 'matched'", field="matching", value=matching)
    if reference != "baseline":
        raise UsageError(
            "is not available", field="reference", value=reference,
            remedy="use 'baseline'; a model reference needs the model's own ideal-PP prediction",
        )  # fmt: skip
    if not 0 < error_floor < 1:
        raise UsageError("must lie between 0 and 1", field="error_floor", value=error_floor)
    if balance not in BALANCES:
        raise UsageError("is not a known balance", field="balance", value=balance, remedy=f"use {', '.join(BALANCES)}")


def _observe(runs: pd.DataFrame, matching: Matching, error_floor: float) -> tuple[list[dict[str, Any]], list[Finding]]:
    """The efficiency of every PP run against its baseline, and what has none."""
    findings: list[Finding] = [_dp_finding(r) for r in records(runs[runs["dp"] > 1])]
    points: list[dict[str, Any]] = []
    for _, group in runs[runs["dp"] == 1].groupby(list(SERIES), dropna=False, sort=True):
        stated = group[group["efficiency"].notna()]
        points += _stated_points(stated[stated["pp"] > 1], matching, error_floor)
        found, missing = _measured_points(group[group["efficiency"].isna()], matching, error_floor)
        points += found
        findings += missing
        if not (group["pp"] > 1).any():
            reason = f"{len(group)} pp = 1 runs have no PP run of their series to be a baseline of"
            findings.append(_warn(NO_PP_RUN, records(group)[0], reason))
    return points, findings


def _explain(
    campaign: Campaign, point: dict[str, Any], balance: BalanceKind
) -> tuple[dict[str, Any] | None, list[Finding]]:
    """The point with its shares, or None, and what is to be said of it."""
    limit = METRICS["efficiency"].high
    if point["efficiency"] > limit:
        reason = f"an efficiency of {point['efficiency']:g} is over {limit:g}, which no pipeline has"
        return None, [_finding(IMPLAUSIBLE, point, reason)]
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", UnknownOpWarning)
        step, factor, reason = _balance(campaign, point, balance)
    findings = [_warn(UNKNOWN_OP, point, str(w.message)) for w in said]
    if step is None or factor is None:
        return None, [*findings, _finding(NO_BALANCE, point, f"{reason}, so its balance factor is unknown")]
    return _decomposed(point, step, factor), findings


def _stated_points(group: pd.DataFrame, matching: Matching, floor: float) -> list[dict[str, Any]]:
    """Published ratios: the baseline was not published, so it can only be known to the floor."""
    many = group.groupby(["tp", "pp"])["concurrency"].nunique().gt(1).any()
    if matching == "peak" and many:
        raise CampaignError(
            "does not apply: ratios at several concurrencies have no common peak",
            field="matching", value="peak", remedy="use 'matched'",
        )  # fmt: skip
    points = []
    for row in records(group):
        baseline = "|".join(str(row[name]) for name in (*SERIES, "concurrency"))
        points.append(_point(row, row["efficiency"], row["concurrency"], np.nan, baseline, floor, floor))
    return points


def _measured_points(
    group: pd.DataFrame, matching: Matching, floor: float
) -> tuple[list[dict[str, Any]], list[Finding]]:
    """Efficiencies of one series from throughputs, and the runs that have no baseline."""
    if group.empty:
        return [], []
    base = group[(group["pp"] == 1) & (group["tp"] == group["gpus"])]
    rest = group[~group.index.isin(base.index)]
    if matching == "peak":
        base, rest = _best(base, []), _best(rest, ["tp", "pp"])
    points, findings = [], []
    baselines = records(base)
    for row in records(rest):
        same = [b for b in baselines if matching == "peak" or _same_concurrency(b, row)]
        if not same:
            at = "" if matching == "peak" else " at this concurrency"
            reason = f"has no usable TP{row['gpus']}/PP1 run of the same series{at} to be compared with"
            findings.append(_finding(NO_BASELINE, row, reason))
            continue
        b = same[0]
        eta = row["output_tokens_per_s"] / b["output_tokens_per_s"]
        baseline = f"{b['source_file']}:{b['source_row']}"
        if row["pp"] > 1:
            x0 = b["output_tokens_per_s"]
            points.append(_point(row, eta, b["concurrency"], x0, baseline, _error(row, floor), _error(b, floor)))
    return points, findings


def _best(group: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """The run of highest throughput for each of ``by``; ties go to the lower concurrency, never to file order."""
    ordered = group.sort_values(["output_tokens_per_s", "concurrency"], ascending=[False, True], kind="stable")
    return ordered.groupby(by, sort=True).head(1) if by else ordered.head(1)


def _same_concurrency(a: dict[str, Any], b: dict[str, Any]) -> bool:
    x, y = a["concurrency"], b["concurrency"]
    return (pd.isna(x) and pd.isna(y)) or (not pd.isna(x) and not pd.isna(y) and x == y)


def _error(row: dict[str, Any], floor: float) -> float:
    """Relative error of one throughput [1]: stated, or the wave quantisation of a closed loop, never below the floor.

    A closed loop that completes n requests at concurrency C is cut within a wave, which leaves a uniform error of
    relative standard deviation ``C/(n*sqrt(12))``.
    """
    x, stated = row["output_tokens_per_s"], row["output_tokens_per_s_stderr"]
    if pd.notna(stated):
        return max(floor, float(stated) / float(x))
    n, c = row["completed_requests"], row["concurrency"]
    if pd.isna(n) or pd.isna(c) or n <= 0:
        return floor
    return max(floor, float(c) / (float(n) * 12**0.5))


def _point(
    row: dict[str, Any],
    eta: float,
    base_c: Any,
    base_x: float,
    baseline_id: str,
    error: float,
    base_error: float,
) -> dict[str, Any]:
    point = {name: row[name] for name in (*SERIES, "tp", "pp", "concurrency", "output_tokens_per_s", "rules")}
    return point | {
        "efficiency": float(eta),
        "baseline_concurrency": base_c,
        "baseline_output_tokens_per_s": base_x,
        "baseline_id": baseline_id,
        "rel_error": error,
        "baseline_rel_error": base_error,
        "source_file": row["source_file"],
        "source_row": row["source_row"],
    }


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


def _decomposed(point: dict[str, Any], step: Step, balance: float) -> dict[str, Any]:
    eta = point["efficiency"]
    total = 1 - eta
    return point | {
        "balance_factor": balance,
        "balance_status": step.status,
        "total_penalty_pp": 100 * total,
        "balance_share_pp": 100 * (1 - balance),
        "balance_share_of_total_pct": 100 * (1 - balance) / total if total > 0 else np.nan,
        "scheduling_share_pp": 100 * (balance - eta),
        "residual": eta / balance,
    }


def _finding(rule: str, row: dict[str, Any], reason: str) -> Finding:
    return Finding(rule, "REJECT", describe_run(row), reason, row.get("source_file", ""), row.get("source_row", 0))


def _warn(rule: str, row: dict[str, Any], reason: str) -> Finding:
    subject = f"{row['model']} {row['backend']}"
    return Finding(rule, "WARN", subject, reason)


def _dp_finding(row: dict[str, Any]) -> Finding:
    return _finding(DATA_PARALLEL, row, f"dp = {row['dp']}: the TP=G/PP=1 baseline is defined for dp = 1")
