"""Observed PP efficiency, and what stage imbalance explains of it.

    eta               = x(tp, pp) / x(tp=G, pp=1)        x = output throughput per GPU, same series and GPU count
    total_penalty     = 1 - eta
    balance_share     = 1 - balance_factor
    scheduling_share  = balance_factor - eta
    residual          = eta / balance_factor

Shares are in percentage points and add up to the total; a negative one is a gain and stays visible. This is the
decomposition with ``reference = "baseline"`` that was published for the H200 campaign (discussion of
ai-dynamo/aiconfigurator pull request 1459). With ``reference = "model"``

    eta               = K * balance_factor * fill_factor * residual
    K                 = ideal(tp, pp, C) / ideal(G, 1, C0)      ideal = `calib.stages.mix.ideal_throughput`

the logarithms add up to that of eta, so their shares add up to 100 % of it. ``explained`` is what the residual multiplies.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from calib.campaign import Campaign, Finding, describe_run
from calib.display import decomposition_html
from calib.errors import BreakdownError, CampaignError, UsageError
from calib.names import BalanceKind, Matching, Reference
from calib.quality import usable
from calib.quantiles import normal_quantile, t_quantile
from calib.schema import SERIES, natural_key, records
from calib.stages import Step, UnknownOpWarning
from calib.stages.mix import BALANCES, balance_factor, ideal_throughput, steady_state
from calib.units import METRICS

NO_BASELINE = "no_baseline"
NO_BALANCE = "no_balance_factor"
NO_MODEL = "no_model_prediction"
NO_LATENCY = "no_latency"
NO_PP_RUN = "no_pp_run"
IMPLAUSIBLE = "implausible_efficiency"
UNKNOWN_OP = "unknown_op"
DATA_PARALLEL = "data_parallel"
# What is noticed only when runs are put beside their baseline; (name, verdict, meaning), as the rules of `calib.quality`.
RULES = (
    (NO_BASELINE, "REJECT", "no usable TP=G/PP=1 run of the series"),
    (NO_BALANCE, "REJECT", "no per-op latencies, so no balance factor"),
    (NO_MODEL, "REJECT", "no ideal throughput of the model's own, which a model reference needs"),
    (NO_LATENCY, "REJECT", "no TTFT and ITL, which the end-effect correction needs"),
    (DATA_PARALLEL, "REJECT", "dp > 1, for which the baseline is not defined"),
    (IMPLAUSIBLE, "REJECT", "an efficiency no pipeline has"),
    (NO_PP_RUN, "WARN", "a baseline without a PP run"),
    (UNKNOWN_OP, "WARN", "an op of no known place in the pipeline"),
)
ERROR_FLOOR = 0.02  # relative error of a throughput where nothing better is known [1]
SMALLEST_FLOOR = 1e-6  # relative; below it the covariance is no longer positive in double precision

# One row an efficiency.
COLUMNS = (
    *SERIES, "tp", "pp", "concurrency", "baseline_concurrency", "baseline_id", "output_tokens_per_s",
    "baseline_output_tokens_per_s", "efficiency", "rel_error", "error_method", "baseline_rel_error",
    "baseline_error_method", "rules", "balance_factor", "balance_status", "total_penalty_pp", "balance_share_pp",
    "balance_share_of_total_pct", "scheduling_share_pp", "k_model", "fill_factor", "explained", "residual",
)  # fmt: skip
LOG_PARTS = {"k_model": "TP scaling and microbatch (K)", "balance_factor": "balance", "fill_factor": "fill",
             "residual": "scheduling and the rest"}  # fmt: skip


@dataclass(frozen=True, repr=False)
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
    reference: Reference = "baseline"
    end_effect: bool = False

    def __repr__(self) -> str:
        return f"<Decomposition of {self.campaign.name}: {len(self.table)} efficiencies, reference {self.reference}>"

    def _repr_html_(self) -> str:
        return decomposition_html(self)

    def log_shares(self) -> pd.DataFrame:
        """The log-additive decomposition: one row a point, one column a part, ``100*ln(part)`` [log-%].

        The parts add up to ``total``, line by line; ``<part>_pct`` is their share of it [%]. With ``reference = "baseline"``
        there is neither K nor fill, and their parts are 0.
        """
        rows = self.table[["backend", "model", "tp", "pp", "concurrency"]].copy()
        total = 100 * np.log(self.table["efficiency"])
        for name in LOG_PARTS:
            rows[name] = 100 * np.log(self.table[name])
        rows["total"] = total
        for name in LOG_PARTS:
            rows[f"{name}_pct"] = 100 * rows[name] / total.where(total.abs() > 1e-9)
        return rows


def decompose(
    campaign: Campaign,
    *,
    matching: Matching | None = None,
    reference: Reference = "baseline",
    error_floor: float = ERROR_FLOOR,
    balance: BalanceKind = "decode",
    end_effect: bool = False,
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
        ``baseline``: the residual is what balance leaves of the efficiency; ``model``: what K, balance and fill leave of it,
        for coefficients that multiply the model's own ideal-PP throughput.
    error_floor
        Relative error of a throughput [1] below which none is believed.
    balance
        Balance of a pure ``decode`` step, of the workload's ``mixed`` steps, or 1 for ``none``.
    end_effect
        Replace every throughput by that of Little's law, ``C*OSL/(TTFT + (OSL-1)*ITL)``, which does not lose the requests
        that a run of fixed duration cuts off; points without the latencies are set aside.

    Raises
    ------
    UsageError
        An unknown matching or reference, or peak matching of ratios that are stated at several concurrencies.
    """
    matching = matching or campaign.config.matching
    _check_options(matching, reference, error_floor, balance)
    runs = usable(campaign)
    findings: list[Finding] = []
    if end_effect:
        runs, findings = _corrected(runs)
    points, missing = _observe(_with_errors(campaign, runs, error_floor), matching, error_floor)
    findings += missing
    kept: list[dict[str, Any]] = []
    for point in points:
        explained, said = _explain(campaign, point, balance, reference)
        findings += [f for f in said if f not in findings]
        if explained:
            kept.append(explained)
    table = pd.DataFrame(kept, columns=list(COLUMNS))
    table = table.astype({"concurrency": "Int64", "baseline_concurrency": "Int64"})
    last = ("concurrency", "pp") if matching == "matched" else ("pp", "concurrency")
    order = ["backend", "backend_version", *(c for c in SERIES if not c.startswith("backend")), *last]
    table = table.sort_values(order, kind="stable", na_position="first", ignore_index=True, key=natural_key)
    return Decomposition(campaign, matching, error_floor, balance, table, tuple(findings), reference, end_effect)


def _corrected(runs: pd.DataFrame) -> tuple[pd.DataFrame, list[Finding]]:
    """The runs with Little's-law throughput, and findings for those that state no latencies."""
    seconds = (runs["ttft_p50_ms"] + (runs["osl"].astype(float) - 1) * runs["itl_p50_ms"]) / 1000.0
    x = runs["concurrency"].astype(float) * runs["osl"].astype(float) / seconds * runs["replicas"].astype(float)
    known = x.notna() & runs["output_tokens_per_s"].notna()
    reason = "states no TTFT and ITL, or no concurrency, so its end effect cannot be corrected"
    lost = [_finding(NO_LATENCY, r, reason) for r in records(runs[~known])]
    return runs.assign(output_tokens_per_s=x)[known], lost


def _with_errors(campaign: Campaign, runs: pd.DataFrame, floor: float) -> pd.DataFrame:
    """The runs with the relative error of their throughput [1] and how it was found."""
    found = [_error(r, campaign.facts.get((r["source_file"], r["source_row"]), {}), floor) for r in records(runs)]
    return runs.assign(rel_error=[e for e, _ in found], error_method=[m for _, m in found])


def _check_options(matching: str, reference: str, error_floor: float, balance: str) -> None:
    if matching not in ("peak", "matched"):
        raise UsageError("must be 'peak' or 'matched'", field="matching", value=matching)
    if reference not in ("baseline", "model"):
        raise UsageError("must be 'baseline' or 'model'", field="reference", value=reference)
    if not SMALLEST_FLOOR <= error_floor < 1:
        raise UsageError(f"must lie between {SMALLEST_FLOOR:g} and 1", field="error_floor", value=error_floor)
    if balance not in BALANCES:
        raise UsageError("is not a known balance", field="balance", value=balance, remedy=f"use {', '.join(BALANCES)}")


def _observe(runs: pd.DataFrame, matching: Matching, error_floor: float) -> tuple[list[dict[str, Any]], list[Finding]]:
    """The efficiency of every PP run against its baseline, and what has none."""
    rows = records(runs)  # once: a frame a series would cost more than all that is done with it
    findings: list[Finding] = [_dp_finding(r) for r in rows if r["dp"] > 1]
    points: list[dict[str, Any]] = []
    series: dict[tuple[tuple[bool, Any], ...], list[dict[str, Any]]] = {}
    for row in rows:
        if row["dp"] == 1:
            key = tuple((bool(pd.isna(v)), None if pd.isna(v) else v) for v in (row[name] for name in SERIES))
            series.setdefault(key, []).append(row)
    for _, group in sorted(series.items(), key=lambda item: item[0]):
        stated = [r for r in group if pd.notna(r["efficiency"]) and r["pp"] > 1]
        points += _stated_points(stated, matching, error_floor)
        found, missing = _measured_points([r for r in group if pd.isna(r["efficiency"])], matching)
        points += found
        findings += missing
        if not any(r["pp"] > 1 for r in group):
            reason = f"{len(group)} pp = 1 runs have no PP run of their series to be a baseline of"
            findings.append(_warn(NO_PP_RUN, group[0], reason))
    return points, findings


def _explain(
    campaign: Campaign, point: dict[str, Any], balance: BalanceKind, reference: Reference
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
    k = fill = 1.0
    if reference == "model":
        ideal = _ideal_ratio(campaign, point)
        if ideal is None or campaign.config.balance is None:
            reason = (
                "the breakdown file has no decode and mixed step of it and of its baseline, or no concurrency is stated"
            )
            return None, [*findings, _finding(NO_MODEL, point, reason)]
        k, fill = ideal, steady_state(step, campaign.config.balance.partition, int(point["concurrency"])).occupancy
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


def _stated_points(group: list[dict[str, Any]], matching: Matching, floor: float) -> list[dict[str, Any]]:
    """Published ratios: the baseline was not published, so it can only be known to the floor."""
    loads: dict[tuple[int, int], set[Any]] = {}
    for row in group:
        if pd.notna(row["concurrency"]):
            loads.setdefault((row["tp"], row["pp"]), set()).add(row["concurrency"])
    if matching == "peak" and any(len(c) > 1 for c in loads.values()):
        raise CampaignError(
            "does not apply: ratios at several concurrencies have no common peak",
            field="matching", value="peak", remedy="use 'matched'",
        )  # fmt: skip
    points = []
    for row in group:
        baseline = "|".join(str(row[name]) for name in (*SERIES, "concurrency"))
        base = {"rel_error": floor, "error_method": "floor"}
        points.append(_point(row | base, row["efficiency"], row["concurrency"], np.nan, baseline, base))
    return points


def _measured_points(group: list[dict[str, Any]], matching: Matching) -> tuple[list[dict[str, Any]], list[Finding]]:
    """Efficiencies of one series from throughputs, and the runs that have no baseline."""
    baselines = [r for r in group if r["pp"] == 1 and r["tp"] == r["gpus"]]
    rest = [r for r in group if not (r["pp"] == 1 and r["tp"] == r["gpus"])]
    if matching == "peak":
        baselines, rest = _best(baselines), _best(rest)
    points, findings = [], []
    for row in rest:
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
            points.append(_point(row, eta, b["concurrency"], b["output_tokens_per_s"], baseline, b))
    return points, findings


def _best(group: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The run of highest throughput of each (tp, pp); ties go to the lower concurrency, never to file order."""
    best: dict[tuple[int, int], dict[str, Any]] = {}
    for row in sorted(group, key=_rank):
        best.setdefault((row["tp"], row["pp"]), row)
    return [best[key] for key in sorted(best)]


def _rank(row: dict[str, Any]) -> tuple[float, float]:
    c = row["concurrency"]
    return -float(row["output_tokens_per_s"]), np.inf if pd.isna(c) else float(c)


def _same_concurrency(a: dict[str, Any], b: dict[str, Any]) -> bool:
    x, y = a["concurrency"], b["concurrency"]
    return (pd.isna(x) and pd.isna(y)) or (not pd.isna(x) and not pd.isna(y) and x == y)


def _error(row: dict[str, Any], facts: Mapping[str, object], floor: float) -> tuple[float, str]:
    """Relative error of one throughput [1] and the method it was found by; never below the floor.

    Repeats: the error of their mean, widened by Student's t where they are few. Per-request records: the block bootstrap
    over the steady window, which the reader computed. Else the wave quantisation of a closed loop: one that completes n
    requests at concurrency C is cut within a wave, which leaves a uniform error of relative standard deviation
    ``C/(n*sqrt(12))``, far below the ``1/sqrt(n)`` of independent requests.
    """
    x, stated = row["output_tokens_per_s"], row["output_tokens_per_s_stderr"]
    steady, trials = facts.get("steady_rel_error"), facts.get("trials")
    n, c = row["completed_requests"], row["concurrency"]
    error, method = 0.0, "floor"
    if pd.notna(stated) and isinstance(trials, int) and trials > 1:
        widened = t_quantile(0.975, trials - 1) / normal_quantile(0.975)
        error, method = float(stated) / float(x) * widened, f"between {trials} repeats"
    elif pd.notna(stated):
        error, method = float(stated) / float(x), "stated"
    elif isinstance(steady, float):
        error, method = steady, "block bootstrap of the steady window"
    elif pd.notna(n) and pd.notna(c) and n > 0:
        error, method = float(c) / (float(n) * 12**0.5), "wave quantisation"
    return (error, method) if error > floor else (floor, "floor" if method == "floor" else f"floor, above {method}")


def _point(
    row: dict[str, Any],
    eta: float,
    base_c: Any,
    base_x: float,
    baseline_id: str,
    base: Mapping[str, Any],
) -> dict[str, Any]:
    kept = ("tp", "pp", "concurrency", "output_tokens_per_s", "rel_error", "error_method", "rules")
    point = {name: row[name] for name in (*SERIES, *kept)}
    return point | {
        "efficiency": float(eta),
        "baseline_concurrency": base_c,
        "baseline_output_tokens_per_s": base_x,
        "baseline_id": baseline_id,
        "baseline_rel_error": base["rel_error"],
        "baseline_error_method": base["error_method"],
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


def _finding(rule: str, row: dict[str, Any], reason: str) -> Finding:
    return Finding(rule, "REJECT", describe_run(row), reason, row.get("source_file", ""), row.get("source_row", 0))


def _warn(rule: str, row: dict[str, Any], reason: str) -> Finding:
    subject = f"{row['model']} {row['backend']}"
    return Finding(rule, "WARN", subject, reason)


def _dp_finding(row: dict[str, Any]) -> Finding:
    return _finding(DATA_PARALLEL, row, f"dp = {row['dp']}: the TP=G/PP=1 baseline is defined for dp = 1")
