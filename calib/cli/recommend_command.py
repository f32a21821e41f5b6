"""The command that names the layout to deploy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from calib.cli.app import app
from calib.cli.options import (
    DEFAULT,
    ConfigOption,
    EngineOption,
    ExtrapolateOption,
    FileOption,
    JsonOption,
    NoCorrectionOption,
    PartitionOption,
    RefusedOption,
    RegistryOption,
)
from calib.cli.output import note, print_json, print_table, say, working
from calib.cli.prediction_setup import ideal_engine, prediction_options, standing_predictors
from calib.errors import UsageError

if TYPE_CHECKING:
    from calib.coefficients import Predictor
    from calib.judging import Question, Recommendation


@app.command("recommend")
def recommend_command(
    gpus: Annotated[int, typer.Option(help="GPUs to deploy on.")],
    model: Annotated[str, typer.Option(help="As in the campaign or the prediction model, e.g. Qwen/Qwen3-8B.")],
    campaign: Annotated[str, typer.Option(help="Folder or name of the campaign whose TP=G/PP1 throughputs are used.")] = DEFAULT,
    engine: EngineOption = None,
    system: Annotated[str | None, typer.Option(help="The campaign's if left out.")] = None,
    backend: Annotated[str | None, typer.Option(help="The campaign's if left out.")] = None,
    backend_version: Annotated[str | None, typer.Option(help="The campaign's if left out.")] = None,
    isl: Annotated[int | None, typer.Option(help="Input tokens; the campaign's if left out.")] = None,
    osl: Annotated[int | None, typer.Option(help="Output tokens; the campaign's if left out.")] = None,
    ttft: Annotated[float | None, typer.Option(help="Limit of the time to first token in ms (not calibrated).")] = None,
    tpot: Annotated[float | None, typer.Option(help="Limit of the time per output token in ms (not calibrated).")] = None,
    concurrency: Annotated[
        list[int] | None, typer.Option(help="For --engine: requests in flight to try; 1, 2, 4, ... 256 if left out.")
    ] = None,
    partition: PartitionOption = None,
    model_config: ConfigOption = None,
    coefficients: FileOption = None,
    registry: RegistryOption = None,
    allow_refused: RefusedOption = None,
    extrapolate: ExtrapolateOption = None,
    no_correction: NoCorrectionOption = False,
    json: JsonOption = False,
) -> None:  # fmt: skip
    """Which (tp, pp, replicas, concurrency) delivers most by calibrated throughput, under latency limits."""
    from calib.cli.registry_tables import choice_rows, left_out_rows

    options = prediction_options(allow_refused, extrapolate, no_correction)
    with working("searching"):
        from calib.judging import campaign_candidates, choose_release
        from calib.measure import load_campaign

        loaded = load_campaign(campaign)
        stated = {"system": system, "backend": backend, "backend_version": backend_version, "isl": isl, "osl": osl}
        question = _question(loaded, model, gpus, stated, ttft, tpot)
        predictors = standing_predictors(coefficients, registry)
        if engine is not None:
            made = _engine_recommendation(question, predictors, engine, partition, model_config, concurrency, options)
        elif no_correction:
            raise UsageError("needs --engine: a measured baseline has nothing to be corrected", field="--no-correction")
        else:
            made = choose_release(
                question, lambda matching: campaign_candidates(loaded, question, matching), predictors, **options
            )
    if json:
        from dataclasses import asdict

        print_json(asdict(made))
        return
    say(made.describe())
    print_table(choice_rows(made))
    print_table(left_out_rows(made))
    if no_correction:
        note("no correction was applied: it is turned off")
    else:
        note(f"corrected by coefficient file {made.applied[:12]} ({made.source})")


def _question(
    campaign: Any, model: str, gpus: int, stated: dict[str, Any], ttft: float | None, tpot: float | None
) -> Question:
    """The question, with what is not stated taken from the campaign, where its runs agree."""
    from calib.judging import Question

    runs = campaign.runs
    own = runs[runs["model"] == model] if (runs["model"] == model).any() else runs
    for name, value in stated.items():
        if value is not None:
            continue
        found = sorted(set(own[name]))
        if len(found) != 1:
            raise UsageError(
                f"is not stated, and the campaign has {len(found)}", field=f"--{name.replace('_', '-')}",
                remedy=f"give one of {', '.join(map(str, found))}",
            )  # fmt: skip
        stated[name] = found[0]
    whole = {"isl": int(stated["isl"]), "osl": int(stated["osl"])}
    return Question(model=model, gpus=gpus, ttft_ms=ttft, tpot_ms=tpot, **(stated | whole))


def _engine_recommendation(
    question: Question,
    predictors: list[Predictor],
    name: str,
    partition: str | None,
    config: Path | None,
    concurrencies: list[int] | None,
    options: dict[str, Any],
) -> Recommendation:
    from calib.integrations import EnginePoint
    from calib.judging import choose_release

    q = question
    engine = ideal_engine(name, q.backend, q.system, partition)
    point = EnginePoint(q.model, q.system, q.backend, 1, 1, q.isl, q.osl, 1, None if config is None else str(config))
    found = engine.candidates(point, q.gpus, concurrencies or [2**i for i in range(9)])
    return choose_release(question, lambda _: found, predictors, reference="model", **options)
