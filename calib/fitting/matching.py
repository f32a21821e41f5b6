"""Each PP run beside its baseline: which two runs are compared, and how well each is known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from calib.errors import CampaignError
from calib.fitting.comparison_rules import DATA_PARALLEL, NO_BASELINE, NO_LATENCY, NO_PP_RUN
from calib.fitting.quantiles import normal_quantile, t_quantile
from calib.measure import SERIES, Campaign, Finding, describe_run, records
from calib.names import Matching


def corrected(runs: pd.DataFrame) -> tuple[pd.DataFrame, list[Finding]]:
    """The runs with Little's-law throughput, and findings for those that state no latencies."""
    seconds = (runs["ttft_p50_ms"] + (runs["osl"].astype(float) - 1) * runs["itl_p50_ms"]) / 1000.0
    x = runs["concurrency"].astype(float) * runs["osl"].astype(float) / seconds * runs["replicas"].astype(float)
    known = x.notna() & runs["output_tokens_per_s"].notna()
    reason = "states no TTFT and ITL, or no concurrency, so its end effect cannot be corrected"
    lost = [point_finding(NO_LATENCY, r, reason) for r in records(runs[~known])]
    return runs.assign(output_tokens_per_s=x)[known], lost


def with_errors(campaign: Campaign, runs: pd.DataFrame, floor: float) -> pd.DataFrame:
    """The runs with the relative error of their throughput [1] and how it was found."""
    found = [_error(r, campaign.facts.get((r["source_file"], r["source_row"]), {}), floor) for r in records(runs)]
    return runs.assign(rel_error=[e for e, _ in found], error_method=[m for _, m in found])


def observe(runs: pd.DataFrame, matching: Matching, error_floor: float) -> tuple[list[dict[str, Any]], list[Finding]]:
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
            findings.append(point_warning(NO_PP_RUN, group[0], reason))
    return points, findings


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
            findings.append(point_finding(NO_BASELINE, row, reason))
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


def point_finding(rule: str, row: dict[str, Any], reason: str) -> Finding:
    """A rejection of one run or point by a rule of the comparison."""
    return Finding(rule, "REJECT", describe_run(row), reason, row.get("source_file", ""), row.get("source_row", 0))


def point_warning(rule: str, row: dict[str, Any], reason: str) -> Finding:
    """A warning about one run or point by a rule of the comparison."""
    subject = f"{row['model']} {row['backend']}"
    return Finding(rule, "WARN", subject, reason)


def _dp_finding(row: dict[str, Any]) -> Finding:
    return point_finding(DATA_PARALLEL, row, f"dp = {row['dp']}: the TP=G/PP=1 baseline is defined for dp = 1")
