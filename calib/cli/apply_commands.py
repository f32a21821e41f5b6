"""Commands that apply coefficient files: predict, apply, recommend."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from calib.cli.app import DEFAULT, JsonOption, app
from calib.cli.output import note, print_json, print_table, working
from calib.cli.registry_commands import RegistryOption
from calib.errors import OutputError, PredictionError, UsageError

if TYPE_CHECKING:
    from calib.operating_points import Points
    from calib.predict import Predictor
    from calib.recommend import Question, Recommendation

FileOption = Annotated[
    Path | None, typer.Option("--coefficients", help="A coefficient file; the newest released one that covers it if left out.")
]  # fmt: skip
RefusedOption = Annotated[
    list[str] | None, typer.Option("--allow-refused", help="Apply this model's coefficient although the data reject its form.")
]  # fmt: skip
ExtrapolateOption = Annotated[
    list[str] | None,
    typer.Option("--extrapolate", help="A field that may lie outside the domain, with a wider interval: 'all', or "
                 "backend_version, tp, pp, gpus, isl, osl, concurrency; may be repeated."),
]  # fmt: skip
NoCorrectionOption = Annotated[
    bool, typer.Option("--no-correction", help="Turn correction off: figures as they come in.")
]
EngineOption = Annotated[
    str | None,
    typer.Option("--engine", help="'aiconfigurator' (extra 'aic'): take ideal throughput and stages from it."),
]
ConfigOption = Annotated[
    Path | None, typer.Option("--model-config", help="Folder with the model's config.json, for --engine.")
]
PartitionOption = Annotated[
    str | None, typer.Option(help="For --engine: how layers are split, even or vllm; the backend's own if left out.")
]


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
    from calib.cli.points import predict_rows, read_points

    single = {
        "model": model, "system": system, "backend": backend, "backend_version": backend_version, "tp": tp, "pp": pp,
        "isl": isl, "osl": osl, "concurrency": concurrency, "precision": precision, "balance_factor": balance_factor,
        "baseline_output_tokens_per_s": baseline, "model_output_tokens_per_s": model_throughput,
    }  # fmt: skip
    given = {k: v for k, v in single.items() if v is not None}
    if (points is None) == (not given):
        raise UsageError("give either --points FILE or one point by --model, --system, --backend, ... ")
    options = _options(allow_refused, extrapolate, no_correction)
    try:
        table = given if points is None else read_points(points)
        if engine is not None:
            predictor = _predictor(file, registry, None, reference="model", options=options)
            rows = list(_engine_rows(predictor, table, engine, partition, model_config, options))
            columns = list(rows[0])
        else:
            predictor = _predictor(file, registry, table, options=options)
            rows, columns = predict_rows(predictor, table, **options)
    except PredictionError as error:
        raise (error if points is None or error.file else error.at(points)) from None
    if unknown := sum(r.get("factor_stderr", 0) is None for r in rows):
        note(f"{unknown} of {len(rows)} points have no interval: their coefficient was fitted on too few points")
    note(_said(predictor, options))
    if json:
        print_json(rows)
        return
    _print_csv(rows, columns)


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
    from calib.integrations.results_table import Options, best_predictor, parse_results
    from calib.provenance import read_bytes, write_new

    try:
        text = read_bytes(results, kind=PredictionError).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise PredictionError(
            f"is not UTF-8 text (byte {error.start})", file=results, remedy="give it as CSV"
        ) from None
    header, rows = parse_results(text, file=str(results))
    given = _options(allow_refused, extrapolate, no_correction)
    options = Options(backend_version, given["allow_refused"], given["extrapolate"], given["correction"])
    made = best_predictor(header, rows, _standing(coefficients, registry), options)
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
    from calib.cli.showing import choice_rows, left_out_rows

    options = _options(allow_refused, extrapolate, no_correction)
    with working("searching"):
        from calib.recommend import campaign_candidates, choose_release
        from calib.workflow import load_campaign

        loaded = load_campaign(campaign)
        stated = {"system": system, "backend": backend, "backend_version": backend_version, "isl": isl, "osl": osl}
        question = _question(loaded, model, gpus, stated, ttft, tpot)
        predictors = _standing(coefficients, registry)
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
    print(made.describe())
    print_table(choice_rows(made))
    print_table(left_out_rows(made))
    if no_correction:
        note("no correction was applied: it is turned off")
    else:
        note(f"corrected by coefficient file {made.applied[:12]} ({made.source})")


def _options(refused: list[str] | None, extrapolate: list[str] | None, no_correction: bool) -> dict[str, Any]:
    """The arguments of a prediction."""
    names = tuple(extrapolate or ())
    return {
        "allow_refused": tuple(refused or ()),
        "extrapolate": True if "all" in names else names,
        "correction": "off" if no_correction else "on",
    }


def _predictor(
    file: Path | None, registry: Path | None, points: Points | None, *, options: dict[str, Any], reference: Any = None
) -> Predictor:
    """The file, else the newest standing release that answers for the points with these options."""
    from calib.predict import Predictor, load_released
    from calib.registry import SHIPPED

    if file is not None:
        return Predictor.load(file, registry=registry)
    return load_released(registry or SHIPPED, points=points, reference=reference, **options)


def _standing(file: Path | None, registry: Path | None) -> list[Predictor]:
    """The file, else every standing release, newest first."""
    from calib.predict import Predictor
    from calib.registry import SHIPPED, Registry

    if file is not None:
        return [Predictor.load(file, registry=registry)]
    opened = Registry.open(registry or SHIPPED)
    return [Predictor(opened.load(e), source=opened.path_of(e)) for e in opened.current]


def _said(predictor: Predictor, options: dict[str, Any]) -> str:
    c = predictor.coefficients
    if options["correction"] == "off":
        return "no correction was applied: it is turned off"
    return f"corrected by coefficient file {c.digest[:12]} ({predictor.source}), reference '{c.reference}'"


def _engine(name: str, backend: str, system: str, partition: str | None) -> Any:
    if name != "aiconfigurator":
        raise UsageError("must be 'aiconfigurator'", field="--engine", value=name)
    from calib.integrations.aiconfigurator import Engine
    from calib.stages.breakdown_aic import AiconfiguratorProvider

    return Engine(AiconfiguratorProvider(system), partition or ("vllm" if backend == "vllm" else "even"))


def _engine_rows(
    predictor: Predictor, table: Any, name: str, partition: str | None, config: Path | None, options: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    """One row a point, through the engine."""
    from calib.integrations.aiconfigurator import EnginePoint

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
        engine = _engine(name, point.backend, point.system, partition)
        version, precision = row["backend_version"], row.get("precision")
        yield engine.predict(predictor, point, backend_version=version, precision=precision, **options).row()


def _question(
    campaign: Any, model: str, gpus: int, stated: dict[str, Any], ttft: float | None, tpot: float | None
) -> Question:
    """The question, with what is not stated taken from the campaign, where its runs agree."""
    from calib.recommend import Question

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
    from calib.integrations.aiconfigurator import EnginePoint
    from calib.recommend import choose_release

    q = question
    engine = _engine(name, q.backend, q.system, partition)
    point = EnginePoint(q.model, q.system, q.backend, 1, 1, q.isl, q.osl, 1, None if config is None else str(config))
    found = engine.candidates(point, q.gpus, concurrencies or [2**i for i in range(9)])
    return choose_release(question, lambda _: found, predictors, reference="model", **options)


def _print_csv(rows: list[dict[str, Any]], columns: list[str]) -> None:
    import csv

    from calib.display import csv_cell

    writer = csv.DictWriter(sys.stdout, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows({k: csv_cell(v) for k, v in row.items()} for row in rows)
