"""The command that applies a coefficient file to operating points."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from calib.cli.app import app
from calib.cli.options import (
    ConfigOption,
    EngineOption,
    ExtrapolateOption,
    JsonOption,
    NoCorrectionOption,
    PartitionOption,
    RefusedOption,
    RegistryOption,
)
from calib.cli.output import note, print_json
from calib.cli.prediction_setup import ideal_engine, prediction_options
from calib.errors import PredictionError, UsageError

if TYPE_CHECKING:
    from calib.coefficients import Points, Predictor


@app.command()
def predict(
    file: Annotated[
        Path | None, typer.Argument(help="A coefficient file; the newest released one that covers it if left out.")
    ] = None,
    points: Annotated[
        Path | None,
        typer.Option("--points", help="CSV: model, system, backend, backend_version, tp, pp, isl, osl, optional concurrency, "
                     "precision, balance_factor, baseline_output_tokens_per_s or model_output_tokens_per_s."),
    ] = None,
    model: Annotated[str | None, typer.Option(help="For one point instead of --points; with the options below.")] = None,
    system: Annotated[str | None, typer.Option()] = None,
    backend: Annotated[str | None, typer.Option()] = None,
    backend_version: Annotated[str | None, typer.Option()] = None,
    tp: Annotated[int | None, typer.Option()] = None,
    pp: Annotated[int | None, typer.Option()] = None,
    isl: Annotated[int | None, typer.Option()] = None,
    osl: Annotated[int | None, typer.Option()] = None,
    concurrency: Annotated[int | None, typer.Option()] = None,
    precision: Annotated[str | None, typer.Option()] = None,
    balance_factor: Annotated[float | None, typer.Option(help="Your own model's, where the file has none.")] = None,
    baseline: Annotated[float | None, typer.Option(help="Output throughput at TP=G/PP1 on the same GPUs, in tok/s.")] = None,
    model_throughput: Annotated[
        float | None, typer.Option(help="The model's own ideal-PP output throughput, in tok/s, for reference 'model'.")
    ] = None,
    engine: EngineOption = None,
    partition: PartitionOption = None,
    model_config: ConfigOption = None,
    registry: RegistryOption = None,
    allow_refused: RefusedOption = None,
    extrapolate: ExtrapolateOption = None,
    no_correction: NoCorrectionOption = False,
    json: JsonOption = False,
) -> None:  # fmt: skip
    """Apply a coefficient file to operating points. Loads numpy and nothing heavier, unless --engine is given."""
    from calib.cli.point_tables import csv_rows, read_points

    single = {
        "model": model, "system": system, "backend": backend, "backend_version": backend_version, "tp": tp, "pp": pp,
        "isl": isl, "osl": osl, "concurrency": concurrency, "precision": precision, "balance_factor": balance_factor,
        "baseline_output_tokens_per_s": baseline, "model_output_tokens_per_s": model_throughput,
    }  # fmt: skip
    given = {k: v for k, v in single.items() if v is not None}
    if (points is None) == (not given):
        raise UsageError("give either --points FILE or one point by --model, --system, --backend, ... ")
    options = prediction_options(allow_refused, extrapolate, no_correction)
    try:
        table = given if points is None else read_points(points)
        if engine is not None:
            predictor = _predictor(file, registry, None, reference="model", options=options)
            rows = list(_engine_rows(predictor, table, engine, partition, model_config, options))
            columns = list(rows[0])
        else:
            predictor = _predictor(file, registry, table, options=options)
            rows, columns = csv_rows(predictor, table, **options)
    except PredictionError as error:
        raise (error if points is None or error.file else error.at(points)) from None
    _say(predictor, options, rows)
    if json:
        print_json(rows)
    else:
        _print_csv(rows, columns)


def _predictor(
    file: Path | None, registry: Path | None, points: Points | None, *, options: dict[str, Any], reference: Any = None
) -> Predictor:
    """The file, else the newest standing release that answers for the points with these options."""
    from calib.coefficients import SHIPPED, Predictor, load_released

    if file is not None:
        return Predictor.load(file, registry=registry)
    return load_released(registry or SHIPPED, points=points, reference=reference, **options)


def _say(predictor: Predictor, options: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    """On stderr: how many points have no interval, and which file was applied."""
    if unknown := sum(r.get("factor_stderr", 0) is None for r in rows):
        note(f"{unknown} of {len(rows)} points have no interval: their coefficient was fitted on too few points")
    c = predictor.coefficients
    if options["correction"] == "off":
        note("no correction was applied: it is turned off")
    else:
        note(f"corrected by coefficient file {c.digest[:12]} ({predictor.source}), reference '{c.reference}'")


def _engine_rows(
    predictor: Predictor, table: Any, name: str, partition: str | None, config: Path | None, options: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    """One row a point, through the engine."""
    from calib.integrations import EnginePoint

    needed = ("model", "system", "backend", "backend_version", "tp", "pp", "isl", "osl", "concurrency")
    if missing := [n for n in needed if n not in table]:
        raise UsageError("is needed with --engine", field=missing[0], remedy="state it for every point")
    if extra := [n for n in table if n.endswith("tokens_per_s") or n == "balance_factor"]:
        raise UsageError("is what --engine works out", field=extra[0], remedy="leave it out")
    count = max(len(v) if isinstance(v, list) else 1 for v in table.values())
    for i in range(count):
        row = {k: v[i] if isinstance(v, list) else v for k, v in table.items()}
        whole = {k: int(row[k]) for k in ("tp", "pp", "isl", "osl", "concurrency")}
        point = EnginePoint(
            row["model"], row["system"], row["backend"], config=None if config is None else str(config), **whole
        )
        engine = ideal_engine(name, point.backend, point.system, partition)
        version, precision = row["backend_version"], row.get("precision")
        yield engine.predict(predictor, point, backend_version=version, precision=precision, **options).row()


def _print_csv(rows: list[dict[str, Any]], columns: list[str]) -> None:
    import csv

    from calib.notebook import csv_cell

    writer = csv.DictWriter(sys.stdout, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows({k: csv_cell(v) for k, v in row.items()} for row in rows)
