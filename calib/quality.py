"""Named validity rules: what a measurement is worth, with the figure seen and its limit.

A rule gives REJECT (the run is set aside) or WARN (it is used, and the warning travels with the coefficient). Nothing
is dropped without appearing among the findings. Limits are set under ``[limits]`` in ``campaign.toml``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import pandas as pd

from calib.campaign import Campaign, Finding, describe_run
from calib.campaign_config import CONFIG_NAME
from calib.errors import CampaignError
from calib.schema import IDENTITY, MEASURES, SERIES, records
from calib.units import METRICS

Row = Mapping[str, Any]
Verdict = Literal["WARN", "REJECT"]
Seen = tuple[float | None, str]  # the figure and the reason in words
Check = Callable[[Row, Mapping[str, object], float], Seen | None]


@dataclass(frozen=True)
class Rule:
    """One rule about a single run. ``limit`` is NaN where the rule has none."""

    name: str
    verdict: Verdict
    meaning: str
    limit: float
    check: Check


def _number(row: Row, name: str) -> float | None:
    value = row.get(name)
    return None if value is None or pd.isna(value) else float(value)


def _no_result(row: Row, facts: Mapping[str, object], limit: float) -> Seen | None:
    if _number(row, "output_tokens_per_s") is None and _number(row, "efficiency") is None:
        return None, "states neither a finite output throughput nor an efficiency"
    return None


def _implausible(row: Row, facts: Mapping[str, object], limit: float) -> Seen | None:
    for name in MEASURES:
        value = _number(row, name)
        if value is not None and not METRICS[name].plausible(value):
            metric = METRICS[name]
            return (
                value,
                f"{name} = {value:g} {metric.unit} is not between {metric.low:g} and {metric.high:g}",
            )
    return None


def _two_results(row: Row, facts: Mapping[str, object], limit: float) -> Seen | None:
    if _number(row, "output_tokens_per_s") is not None and _number(row, "efficiency") is not None:
        return None, "states a throughput and an efficiency; which of them holds is not said"
    return None


def _own_efficiency(row: Row, facts: Mapping[str, object], limit: float) -> Seen | None:
    eta = _number(row, "efficiency")
    if eta is None or int(row["pp"]) > 1 or eta == 1.0:
        return None
    return eta, f"states an efficiency of {eta:g} at pp = 1, where it is 1 by definition"


def _cancelled(row: Row, facts: Mapping[str, object], limit: float) -> Seen | None:
    states = [s for s in ("cancelled", "incomplete") if facts.get(s)]
    return (None, f"the run was {' and '.join(states)}") if states else None


def _errors(row: Row, facts: Mapping[str, object], limit: float) -> Seen | None:
    failed, done = _number(row, "failed_requests"), _number(row, "completed_requests")
    if failed is None or done is None or failed + done == 0:
        return None
    rate = failed / (failed + done)
    return (rate, f"{rate:.1%} of the requests failed; throughput is of the others only") if rate > limit else None


def _short(row: Row, facts: Mapping[str, object], limit: float) -> Seen | None:
    asked, done = facts.get("requested_requests"), _number(row, "completed_requests")
    failed = _number(row, "failed_requests") or 0.0
    if not isinstance(asked, int) or done is None or done + failed >= asked:
        return None
    return done, f"only {done:g} of {asked} requests finished"


def _open_loop(row: Row, facts: Mapping[str, object], limit: float) -> Seen | None:
    load = facts.get("load_type", "concurrency")
    return None if load == "concurrency" else (None, f"load was of type '{load}': the concurrency is not known")


def _urls(row: Row, facts: Mapping[str, object], limit: float) -> Seen | None:
    urls = facts.get("urls", 1)
    if isinstance(urls, int) and urls > 1 and int(row["replicas"]) != urls:
        return float(urls), f"{urls} URLs were served and replicas = {row['replicas']}"
    return None


def _phases(row: Row, facts: Mapping[str, object], limit: float) -> Seen | None:
    phases = facts.get("profiling_phases", 1)
    if isinstance(phases, int) and phases > 1:
        return float(phases), f"{phases} profiling phases are pooled in one summary"
    return None


def _few(row: Row, facts: Mapping[str, object], limit: float) -> Seen | None:
    done, c = _number(row, "completed_requests"), _number(row, "concurrency")
    if done is None or c is None or done >= limit * c:
        return None
    return done / c, f"{done:g} completed requests are {done / c:.1f} per concurrent one"


def _coverage(row: Row, facts: Mapping[str, object], limit: float) -> Seen | None:
    """Little's law: C requests in flight, each OSL tokens in TTFT + (OSL-1)*ITL, against what was counted."""
    x, ttft, itl = (_number(row, n) for n in ("output_tokens_per_s", "ttft_p50_ms", "itl_p50_ms"))
    c = _number(row, "concurrency")
    if x is None or ttft is None or itl is None or c is None or not math.isfinite(x + ttft + itl):
        return None
    osl, replicas = float(row["osl"]), float(row["replicas"])
    in_flight = (ttft + (osl - 1) * itl) / 1000
    if not in_flight > 0:
        return None
    share = x / (c * replicas * osl / in_flight)
    return (share, f"completed requests explain {share:.2f} of the tokens in flight") if share < limit else None


NONE = math.nan
RULES: tuple[Rule, ...] = (
    Rule("no_result", "REJECT", "no throughput and no efficiency", NONE, _no_result),
    Rule("implausible_value", "REJECT", "a figure no working measurement shows", NONE, _implausible),
    Rule("two_results", "REJECT", "a throughput and an efficiency in one row", NONE, _two_results),
    Rule("baseline_efficiency", "REJECT", "an efficiency other than 1 at pp = 1", NONE, _own_efficiency),
    Rule("cancelled", "REJECT", "cancelled or incomplete run", NONE, _cancelled),
    Rule("error_rate", "REJECT", "share of failed requests", 0.01, _errors),
    Rule("unfinished", "REJECT", "fewer requests finished than asked for", NONE, _short),
    Rule("open_loop", "REJECT", "load was not a fixed concurrency", NONE, _open_loop),
    Rule("several_urls", "REJECT", "several URLs without a replica count", NONE, _urls),
    Rule("pooled_phases", "REJECT", "more than one profiling phase", NONE, _phases),
    Rule("few_requests", "WARN", "completed requests per concurrent one", 10.0, _few),
    Rule("littles_law", "WARN", "coverage of the tokens in flight by completed requests", 0.95, _coverage),
)
DUPLICATE = "duplicate_point"
EDGE = "peak_at_edge"
DISPUTED = "disputed_label"
RULE_NAMES = (*(r.name for r in RULES), DUPLICATE, EDGE, DISPUTED)


def screen(campaign: Campaign) -> Campaign:
    """The campaign with every run's verdict and the findings behind it.

    Raises
    ------
    CampaignError
        ``[limits]`` names a rule that does not exist or has no limit.
    """
    limits = _limits(campaign)
    findings: dict[int, list[Finding]] = {int(i): [] for i in campaign.runs.index}
    rows = dict(enumerate(records(campaign.runs)))
    for index, row in rows.items():
        facts = campaign.facts.get((row["source_file"], row["source_row"]), {})
        for rule in RULES:
            if seen := rule.check(row, facts, limits[rule.name]):
                findings[index].append(_finding(rule.name, rule.verdict, row, seen, limits[rule.name]))
    for index, finding in (*_duplicates(campaign.runs, rows), *_disputes(campaign, rows)):
        findings[index].append(finding)
    rejected = {i for i, f in findings.items() if any(x.verdict == "REJECT" for x in f)}
    for index, finding in _edges(campaign.runs.drop(index=list(rejected)), rows):
        findings[index].append(finding)
    runs = campaign.runs.copy()
    runs["verdict"] = [_worst(findings[int(i)]) for i in runs.index]
    runs["rules"] = [" ".join(f.rule for f in findings[int(i)]) for i in runs.index]
    new = tuple(f for i in sorted(findings) for f in findings[i])
    return replace(campaign, runs=runs, findings=campaign.findings + new)


def usable(campaign: Campaign) -> pd.DataFrame:
    """The runs that were not rejected."""
    return campaign.runs[campaign.runs["verdict"] != "REJECT"]


def _limits(campaign: Campaign) -> dict[str, float]:
    limits = {r.name: r.limit for r in RULES}
    for name, value in campaign.config.limits.items():
        if math.isnan(limits.get(name, NONE)):
            raise CampaignError(
                "is not a rule with a limit",
                file=campaign.folder / CONFIG_NAME,
                field=f"limits.{name}",
                remedy=f"use one of {', '.join(r.name for r in RULES if not math.isnan(r.limit))}",
            )
        if not 0 <= value < math.inf:
            raise CampaignError(
                "must be finite and not negative", file=campaign.folder / CONFIG_NAME, field=f"limits.{name}", value=value,
                remedy="correct the limit",
            )  # fmt: skip
        limits[name] = value
    return limits


def _finding(rule: str, verdict: Verdict, row: Row, seen: Seen, limit: float) -> Finding:
    return Finding(
        rule, verdict, describe_run(row), seen[1], row["source_file"], row["source_row"],
        seen[0], None if math.isnan(limit) else limit,
    )  # fmt: skip


def _duplicates(runs: pd.DataFrame, rows: dict[int, dict[str, Any]]) -> Iterator[tuple[int, Finding]]:
    """Two runs of one identity: which one is meant is not known, so neither is used."""
    same: dict[tuple[str, ...], list[int]] = {}
    for index in runs.index[runs.duplicated(list(IDENTITY), keep=False)]:
        same.setdefault(tuple(str(rows[int(index)][n]) for n in IDENTITY), []).append(int(index))
    for group in same.values():
        for index in group:
            others = [_place(rows[i]) for i in group if i != index]
            more = f" and {len(others) - 3} more" if len(others) > 3 else ""
            seen = (float(len(group)), f"stands again in {', '.join(others[:3])}{more}; which one holds is not stated")
            yield index, _finding(DUPLICATE, "REJECT", rows[index], seen, NONE)


def _place(row: Row) -> str:
    return f"{row['source_file']} line {row['source_row']}" if row["source_row"] else str(row["source_file"])


def _disputes(campaign: Campaign, rows: dict[int, dict[str, Any]]) -> Iterator[tuple[int, Finding]]:
    for dispute in campaign.config.disputed:
        for index, row in rows.items():
            if str(row.get(dispute.field)) == dispute.used:
                reason = f"{dispute.field} {dispute.used} is used, {dispute.claimed} is claimed by {dispute.by}"
                yield int(index), _finding(DISPUTED, "WARN", row, (None, reason), NONE)


def _edges(runs: pd.DataFrame, rows: dict[int, dict[str, Any]]) -> Iterator[tuple[int, Finding]]:
    """A sweep whose best point is its last one: nothing shows that the server was saturated."""
    measured = runs[runs["output_tokens_per_s"].notna() & runs["concurrency"].notna()]
    for _, group in measured.groupby([*SERIES, "tp", "pp", "dp"], dropna=False, sort=True):
        best = int(group.index[int(group["output_tokens_per_s"].argmax())])
        c = int(group["concurrency"].max())
        if len(group) > 1 and rows[best]["concurrency"] == c:
            seen = (float(c), f"throughput still rises at the last concurrency of the sweep, C={c}")
            yield best, _finding(EDGE, "WARN", rows[best], seen, NONE)


def _worst(findings: list[Finding]) -> str:
    verdicts = {f.verdict for f in findings}
    return "REJECT" if "REJECT" in verdicts else "WARN" if "WARN" in verdicts else "OK"
