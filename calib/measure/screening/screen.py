"""Named validity rules: what a measurement is worth, with the figure seen and its limit.

A rule gives REJECT (the run is set aside), CORRECTED (a figure was mended), WARN (it is used, and the warning travels with
the coefficient) or INFO. Nothing is dropped without appearing among the findings. Limits are set under ``[limits]`` in
``campaign.toml``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import pandas as pd

from calib.errors import CampaignError
from calib.measure.campaign.config import CONFIG_NAME
from calib.measure.campaign.load import Campaign
from calib.measure.columns import SERIES
from calib.measure.findings import Finding, FindingVerdict, describe_run
from calib.measure.run_table import records
from calib.measure.screening.catalogue import DISPUTED, RULES
from calib.measure.screening.rule import NONE, Rule, Run, Seen, SeriesRule
from calib.measure.screening.run_rules import RUN_RULES
from calib.measure.screening.series_rules import CAMPAIGN_RULES, SERIES_RULES

_WEIGHT = ("OK", "INFO", "WARN", "CORRECTED", "REJECT")


def screen(campaign: Campaign, *, strict: bool = False) -> Campaign:
    """The campaign with every run's verdict and the findings behind it; ``strict`` turns each WARN into a REJECT.

    Raises
    ------
    CampaignError
        ``[limits]`` names a rule that does not exist or has no limit, or a limit that is none.
    """
    limits = _limits(campaign)
    rows = records(campaign.runs)
    runs = [Run(i, row, campaign.facts.get((row["source_file"], row["source_row"]), {})) for i, row in enumerate(rows)]
    findings: dict[int, list[Finding]] = {run.index: [] for run in runs}
    corrected = campaign.runs.copy()
    for run in runs:
        for rule in RUN_RULES:
            if seen := rule.check(run, limits[rule.name]):
                findings[run.index].append(_finding(rule, run, seen, limits[rule.name], strict))
                for name, value in seen.corrections.items():
                    corrected.loc[run.index, name] = value
    for run, seen in _disputes(campaign, runs):
        findings[run.index].append(_finding(DISPUTED, run, seen, NONE, strict))
    for across, wide in ((False, SERIES_RULES), (True, CAMPAIGN_RULES)):
        for among in wide:
            good = [r for r in runs if not any(f.verdict == "REJECT" for f in findings[r.index])]
            for group in [good] if across else _series(good):
                for run, seen in among.check(group, limits[among.name]):
                    findings[run.index].append(_finding(among, run, seen, limits[among.name], strict))
    corrected["verdict"] = [_worst(findings[i]) for i in range(len(runs))]
    corrected["rules"] = [" ".join(f.rule for f in findings[i] if f.verdict != "INFO") for i in range(len(runs))]
    new = tuple(f for i in sorted(findings) for f in findings[i])
    return replace(campaign, runs=corrected, findings=campaign.findings + new)


def usable(campaign: Campaign) -> pd.DataFrame:
    """The runs that were not rejected."""
    return campaign.runs[campaign.runs["verdict"] != "REJECT"]


def _series(runs: list[Run]) -> list[list[Run]]:
    groups: dict[tuple[str, ...], list[Run]] = {}
    for run in runs:
        groups.setdefault(tuple(str(run.row[n]) for n in SERIES), []).append(run)
    return list(groups.values())


def _limits(campaign: Campaign) -> dict[str, float]:
    limits = {r.name: r.limit for r in RULES}
    for name, value in campaign.config.limits.items():
        if math.isnan(limits.get(name, NONE)):
            raise CampaignError(
                "is not a rule with a limit",
                file=campaign.folder / CONFIG_NAME,
                field=f"limits.{name}",
                remedy=f"use one of {', '.join(sorted(r.name for r in RULES if not math.isnan(r.limit)))}",
            )
        if not 0 <= value < math.inf:
            raise CampaignError(
                "must be finite and not negative", file=campaign.folder / CONFIG_NAME, field=f"limits.{name}", value=value,
                remedy="correct the limit",
            )  # fmt: skip
        limits[name] = value
    return limits


def _finding(rule: Rule | SeriesRule, run: Run, seen: Seen, limit: float, strict: bool) -> Finding:
    verdict: FindingVerdict = seen.verdict or rule.verdict
    if strict and verdict == "WARN":
        verdict = "REJECT"
    return Finding(
        rule.name, verdict, describe_run(run.row), seen.reason, str(run.row["source_file"]), int(run.row["source_row"]),
        seen.figure, None if math.isnan(limit) else limit,
    )  # fmt: skip


def _disputes(campaign: Campaign, runs: list[Run]) -> Iterator[tuple[Run, Seen]]:
    for dispute in campaign.config.disputed:
        for run in runs:
            if str(run.row.get(dispute.field)) == dispute.used:
                reason = f"{dispute.field} {dispute.used} is used, {dispute.claimed} is claimed by {dispute.by}"
                yield run, Seen(None, reason)


def _worst(findings: list[Finding]) -> str:
    return max((f.verdict for f in findings if f.verdict != "INFO"), key=_WEIGHT.index, default="OK")
