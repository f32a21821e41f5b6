"""The command that corrects a table of the aiconfigurator command."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from calib.cli.app import app
from calib.cli.options import (
    ExtrapolateOption,
    FileOption,
    JsonOption,
    NoCorrectionOption,
    RefusedOption,
    RegistryOption,
)
from calib.cli.output import note, print_json
from calib.cli.prediction_setup import prediction_options, standing_predictors
from calib.errors import OutputError, PredictionError


@app.command("apply")
def apply_command(
    results: Annotated[Path, typer.Argument(help="pareto.csv or best_config_topn.csv of the aiconfigurator command.")],
    coefficients: FileOption = None,
    registry: RegistryOption = None,
    backend_version: Annotated[
        str | None, typer.Option(help="Engine version to look coefficients up by, in place of the table's.")
    ] = None,
    allow_refused: RefusedOption = None,
    extrapolate: ExtrapolateOption = None,
    no_correction: NoCorrectionOption = False,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write the table here; stdout if left out.")] = None,
    json: JsonOption = False,
) -> None:
    """Correct and re-rank a table of the aiconfigurator command; what changed is said on stderr."""
    from calib.files import read_bytes, write_new
    from calib.integrations import ApplyOptions, best_predictor, parse_results

    try:
        text = read_bytes(results, kind=PredictionError).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise PredictionError(
            f"is not UTF-8 text (byte {error.start})", file=results, remedy="give it as CSV"
        ) from None
    header, rows = parse_results(text, file=str(results))
    given = prediction_options(allow_refused, extrapolate, no_correction)
    options = ApplyOptions(backend_version, given["allow_refused"], given["extrapolate"], given["correction"])
    made = best_predictor(header, rows, standing_predictors(coefficients, registry), options)
    for line in made.describe():
        note(line)
    if made.applied == "none":
        note("no correction was applied: it is turned off")
    elif not made.corrected:
        note(f"nothing was corrected by coefficient file {made.applied[:12]} ({made.source})")
    else:
        note(f"corrected by coefficient file {made.applied[:12]} ({made.source})")
    if made.corrected == 0 and not no_correction and any(int(r["pp"]) > 1 for r in made.rows):
        note(
            "see what is covered with `calib show`; --extrapolate widens the domain, --backend-version replaces the table's"
        )
    if out is not None:
        if not write_new(out, made.to_csv().encode()):
            raise OutputError(
                "exists already and is not overwritten", file=out, remedy="choose another name with --out"
            )
        note(f"wrote {out}")
    elif json:
        print_json(made.rows)
    else:
        sys.stdout.write(made.to_csv())
