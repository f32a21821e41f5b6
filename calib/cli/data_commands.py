"""Commands about measurements: ingest, check, rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from calib.cli.app import app
from calib.cli.options import DEFAULT, JsonOption, StrictOption
from calib.cli.output import (
    finding_rows,
    frame_rows,
    print_finding_list,
    print_findings,
    print_json,
    print_runs,
    print_table,
)

if TYPE_CHECKING:
    from calib.measure import Campaign


PathsArg = Annotated[
    list[str] | None,
    typer.Argument(metavar="[CAMPAIGN]...", help="Folders with a campaign.toml, or names of shipped campaigns."),
]


@app.command()
def ingest(paths: PathsArg = None, strict: StrictOption = False, json: JsonOption = False) -> None:
    """Read campaigns, screen every run, and say what each is worth and why."""
    from calib.workflow import check_strict

    loaded = _load(paths, strict)
    for campaign in loaded:
        check_strict(campaign.findings, strict)
    if json:
        print_json({"campaigns": [_document(c) for c in loaded]})
    else:
        for campaign in loaded:
            _title(campaign, len(loaded))
            print_runs(campaign.runs)
            print_findings(campaign.findings)
    _require_usable(loaded)


@app.command()
def check(paths: PathsArg = None, strict: StrictOption = False, json: JsonOption = False) -> None:
    """What every run is worth: each finding with the figure it saw and its limit, nothing summed up."""
    from calib.reporting import quality_table

    loaded = _load(paths, strict)
    if json:
        print_json({"campaigns": [_document(c) for c in loaded]})
    else:
        for campaign in loaded:
            _title(campaign, len(loaded))
            counts = campaign.runs["verdict"].value_counts()
            print(
                ", ".join(f"{counts.get(v, 0)} {v}" for v in ("OK", "WARN", "CORRECTED", "REJECT"))
                + f" of {len(campaign.runs)} runs"
            )
            print_finding_list(quality_table(campaign.findings, grouped=False))
    _require_usable(loaded)


@app.command()
def rules(json: JsonOption = False) -> None:
    """Every screening rule with its verdict and its limit."""
    import math

    from calib.fitting import COMPARISON_RULES
    from calib.measure import RULES
    from calib.reporting import Column, Table

    rows: list[dict[str, object]] = [
        {"rule": r.name, "verdict": r.verdict, "limit": None if math.isnan(r.limit) else r.limit, "meaning": r.meaning}
        for r in RULES
    ]
    rows.append({"rule": "unreadable", "verdict": "REJECT", "limit": None, "meaning": "a run that could not be read"})
    rows.append({"rule": "not_covered", "verdict": "REJECT", "limit": None, "meaning": "results that no entry covers"})
    rows += [{"rule": n, "verdict": v, "limit": None, "meaning": m} for n, v, m in COMPARISON_RULES]
    if json:
        print_json({"rules": rows})
        return
    columns = (
        Column("rule", "rule"), Column("verdict", "verdict", "verdict"), Column("limit", "limit", "plain"),
        Column("meaning", "meaning"),
    )  # fmt: skip
    print_table(
        Table("rules", "Screening rules; limits are set under [limits] in campaign.toml", "", columns, tuple(rows))
    )


def _load(paths: list[str] | None, strict: bool) -> list[Campaign]:
    from calib.measure import load_campaign

    # There may be no breakdowns yet: they are computed from what is ingested.
    return [_paired(load_campaign(p, breakdowns=False, strict=strict)) for p in paths or [DEFAULT]]


def _paired(campaign: Campaign) -> Campaign:
    """The campaign with what is found where its PP runs are held against their baselines; that needs no balance."""
    from dataclasses import replace

    from calib.errors import CalibError
    from calib.fitting import decompose

    try:
        found = decompose(campaign, balance="none").findings
    except CalibError:  # the run table itself is told; `calib run` says why nothing can be compared
        return campaign
    return replace(campaign, findings=campaign.findings + found)


def _document(campaign: Campaign) -> dict[str, object]:
    learnt = [{"source_file": f, "source_row": r, "fields": dict(m)} for (f, r), m in sorted(campaign.learnt.items())]
    rows, findings = frame_rows(campaign.runs), finding_rows(campaign.findings)
    return {"campaign": campaign.name, "runs": rows, "learnt": learnt, "findings": findings}


def _title(campaign: Campaign, of: int) -> None:
    if of > 1:
        print(f"\n== {campaign.name}: {campaign.config.title}")


def _require_usable(loaded: list[Campaign]) -> None:
    from calib.errors import NothingToFitError

    for campaign in loaded:
        if not (campaign.runs["verdict"] != "REJECT").any():
            raise NothingToFitError(
                f"no usable run is left in campaign '{campaign.name}'", remedy="see the reasons above"
            )
