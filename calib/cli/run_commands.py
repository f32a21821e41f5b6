"""Commands of the main job: run, decompose, fit, report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from calib.cli.app import app
from calib.cli.options import (
    DEFAULT,
    BalanceOption,
    CampaignArg,
    FloorOption,
    FormOption,
    JsonOption,
    MatchingOption,
    PoolingOption,
    ReferenceOption,
    StrictOption,
    run_options,
)
from calib.cli.output import finding_rows, frame_rows, note, print_findings, print_json, print_table, working
from calib.cli.run_output import print_every_table, print_summary, print_written
from calib.errors import GateFailedError

if TYPE_CHECKING:
    from calib.workflow import Result


@app.command("run")
def run_command(
    campaign: CampaignArg = DEFAULT,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the results.")] = Path("reports"),
    matching: MatchingOption = None,
    error_floor: FloorOption = 0.02,
    balance: BalanceOption = "decode",
    form: FormOption = "log2",
    reference: ReferenceOption = "baseline",
    pooling: PoolingOption = "none",
    strict: StrictOption = False,
    json: JsonOption = False,
    tables: Annotated[bool, typer.Option("--tables", help="Print every table in place of the summary.")] = False,
    gate_error: Annotated[
        float | None,
        typer.Option(
            "--gate-error", help="Exit 1 where the left-out mean error of a backend exceeds this, in percentage points."
        ),
    ] = None,
    gate_refused: Annotated[
        bool, typer.Option("--gate-refused", help="Exit 1 where a coefficient is refused.")
    ] = False,
) -> None:
    """The main job: campaign in, coefficient file and accuracy report out."""
    with working("calibrating"):
        from calib.workflow import run

        result, written = run(
            campaign, out=out, options=run_options(matching, error_floor, strict, balance, form, reference, pooling)
        )
    if json:
        print_json(
            {
                "digest": result.coefficients.digest,
                "new": written.new,
                "folder": str(written.folder),
                "files": [str(f) for f in written.files],
                "coefficients": frame_rows(result.fit.table()),
                "accuracy": frame_rows(result.accuracy.summary),
                "findings": finding_rows(result.findings),
            }
        )
    elif tables:
        print_every_table(result)
        print_written(result, written)
    else:
        print_summary(campaign, result, written)
    _gates(result, gate_error, gate_refused)


@app.command("decompose")
def decompose_command(
    campaign: CampaignArg = DEFAULT,
    matching: MatchingOption = None,
    error_floor: FloorOption = 0.02,
    balance: BalanceOption = "decode",
    reference: ReferenceOption = "baseline",
    strict: StrictOption = False,
    json: JsonOption = False,
) -> None:
    """Observed efficiency, and what stage imbalance explains of it."""
    from calib.errors import NothingToFitError
    from calib.fitting import decompose
    from calib.measure import load_campaign
    from calib.reporting import decomposition_table
    from calib.workflow import check_strict

    loaded = load_campaign(campaign, strict=strict)
    options = run_options(matching, error_floor, strict, balance, reference=reference)
    result = decompose(
        loaded, matching=options.matching, error_floor=options.error_floor, balance=options.balance,
        reference=options.reference,
    )  # fmt: skip
    findings = (*loaded.findings, *result.findings)
    check_strict(findings, strict)
    if json:
        print_json({"campaign": loaded.name, "points": frame_rows(result.table), "findings": finding_rows(findings)})
    else:
        print_table(decomposition_table(result), 11)
        print_findings(findings)
    if result.table.empty:
        raise NothingToFitError(f"no efficiency is left in campaign '{loaded.name}'", remedy="see the reasons above")


@app.command("fit")
def fit_command(
    campaign: CampaignArg = DEFAULT,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write the coefficient file here as well.")] = None,
    matching: MatchingOption = None,
    error_floor: FloorOption = 0.02,
    balance: BalanceOption = "decode",
    form: FormOption = "log2",
    reference: ReferenceOption = "baseline",
    pooling: PoolingOption = "none",
    strict: StrictOption = False,
    json: JsonOption = False,
) -> None:
    """Fit s per model and backend, with interval and verdict."""
    with working("calibrating"):
        from calib.reporting import coefficient_table
        from calib.workflow import calibrate

        result = calibrate(campaign, run_options(matching, error_floor, strict, balance, form, reference, pooling))
    new = result.coefficients.save(out) if out is not None else False
    if json:
        print_json({"digest": result.coefficients.digest, "new": new, "coefficients": frame_rows(result.fit.table())})
        return
    print_table(coefficient_table(result.fit))
    print_findings(result.findings)
    if out is not None:
        print(f"{'Wrote' if new else 'Nothing new:'} {out}")


@app.command("report")
def report_command(
    campaign: CampaignArg = DEFAULT,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the results.")] = Path("reports"),
    matching: MatchingOption = None,
    error_floor: FloorOption = 0.02,
    balance: BalanceOption = "decode",
    form: FormOption = "log2",
    reference: ReferenceOption = "baseline",
    pooling: PoolingOption = "none",
    strict: StrictOption = False,
) -> None:
    """Write coefficient file and report, and print the Markdown report."""
    with working("calibrating"):
        from calib.reporting import render_markdown
        from calib.workflow import run

        result, written = run(
            campaign, out=out, options=run_options(matching, error_floor, strict, balance, form, reference, pooling)
        )
    print(render_markdown(result.report_data))
    note(f"{'wrote' if written.new else 'nothing new:'} {written.folder}")


def _gates(result: Result, gate_error: float | None, gate_refused: bool) -> None:
    refused = [s for s in result.fit.series if s.verdict == "REFUSED"]
    if gate_refused and refused:
        names = ", ".join(f"{s.key['model']} on {s.key['backend']}" for s in refused)
        raise GateFailedError(f"gate --gate-refused: the form is refused for {names}")
    if gate_error is None:
        return
    from calib.judging import PER_MODEL
    from calib.names import ONE_PP

    table = result.accuracy.summary
    for row in table[(table["approach"] == PER_MODEL) & (table["scheme"] == ONE_PP)].to_dict("records"):
        if not row["mean_abs_error_pp"] <= gate_error:  # also where nothing could be predicted
            raise GateFailedError(
                f"gate --gate-error: the left-out mean error of {row['backend']} is {row['mean_abs_error_pp']:.2f} pp, "
                f"over {gate_error:g} pp"
            )
