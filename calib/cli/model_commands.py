"""Commands about the pipeline model: explain, baseline, breakdown."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from calib.cli.app import app
from calib.cli.options import DEFAULT, CampaignArg, JsonOption
from calib.cli.output import baseline_rows, baseline_table, note, print_json, print_table, say
from calib.errors import GateFailedError, UsageError, printable
from calib.files import write_new

if TYPE_CHECKING:
    from calib.pipeline import BreakdownProvider


@app.command("explain")
def explain_command(
    model: Annotated[str, typer.Argument(help="As in the breakdowns, e.g. Qwen/Qwen3-8B.")],
    system: Annotated[str, typer.Option(help="GPU system, e.g. h200_sxm, or a TOML file that describes one.")],
    backend: Annotated[str, typer.Option(help="vllm, sglang or trtllm.")],
    tp: Annotated[int, typer.Option(help="Tensor-parallel degree.")],
    pp: Annotated[int, typer.Option(help="Pipeline stages.")],
    concurrency: Annotated[int, typer.Option(help="Requests in flight.")],
    isl: Annotated[int, typer.Option(help="Input tokens.")] = 4000,
    osl: Annotated[int, typer.Option(help="Output tokens.")] = 1000,
    partition: Annotated[
        str | None, typer.Option(help="How layers are split over stages: even or vllm; the backend's own if left out.")
    ] = None,
    breakdowns: Annotated[Path | None, typer.Option(help="A breakdown file; the shipped ones if left out.")] = None,
    provider: Annotated[str | None, typer.Option(help="'roofline' or 'aiconfigurator' instead of a file.")] = None,
    model_config: Annotated[Path | None, typer.Option(help="Folder with the model's Hugging Face config.json.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Write the figure here (.svg, .png or .pdf).")] = None,
    json: JsonOption = False,
) -> None:
    """The stage picture of one configuration: stage times, cycle, balance, occupancy."""
    from calib.measure import shipped_breakdowns
    from calib.pipeline import Breakdowns, explain_stages

    if provider not in (None, "roofline", "aiconfigurator"):
        raise UsageError("must be 'roofline' or 'aiconfigurator'", field="--provider", value=provider)
    if provider and breakdowns:
        raise UsageError("give either --provider or --breakdowns")
    if plot is not None and plot.suffix not in (".svg", ".png", ".pdf"):
        raise UsageError("must end in .svg, .png or .pdf", field="--plot", value=str(plot))
    asked = _provider(provider or "roofline", system) if provider or system.endswith(".toml") else None
    sources = [] if asked else [Breakdowns.load(breakdowns)] if breakdowns else shipped_breakdowns()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = explain_stages(
            model, system=_system_name(system), backend=backend, tp=tp, pp=pp, concurrency=concurrency, isl=isl, osl=osl,
            partition=partition or ("vllm" if backend == "vllm" else "even"), sources=sources, provider=asked,
            config=model_config,
        )  # fmt: skip
    for text in dict.fromkeys(str(w.message) for w in said):
        note(printable(text))
    if json:
        state = found.state
        factors = ("balance_factor", "fill_factor", "occupancy", "cycle_ms", "ideal_cycle_ms", "traversal_ms")
        print_json(
            {
                "source": found.source,
                "status": found.step.status,
                "stage_times_ms": state.layout.stage_times_ms.tolist(),
            }
            | {name: getattr(state, name) for name in factors}
            | {"mixed_balance_factor": found.mixed_balance}
        )
    else:
        say(found.describe())
    if plot is not None:
        from calib.reporting import draw_stages, figure_bytes

        if not write_new(plot, figure_bytes(draw_stages(found), plot.suffix[1:])):
            raise UsageError("exists already and is not overwritten", file=plot, remedy="choose another name")
        note(f"wrote {plot}")


@app.command("baseline")
def baseline_command(
    campaign: CampaignArg = DEFAULT,
    low: Annotated[float, typer.Option(help="Lower end of the pass band, in %.")] = -15.0,
    high: Annotated[float, typer.Option(help="Upper end of the pass band, in %.")] = 15.0,
    gate: Annotated[bool, typer.Option("--gate", help="Exit 1 where a model fails.")] = False,
    json: JsonOption = False,
) -> None:
    """Hold the model's pp = 1 prediction against the campaign's pp = 1 measurements."""
    from calib.integrations import qualify_baseline
    from calib.measure import load_campaign

    found = qualify_baseline(load_campaign(campaign), band_pct=(low, high))
    rows = baseline_rows(found)
    if json:
        print_json({"band_pct": found.band_pct, "points": rows, "missing": found.missing})
    else:
        print_table(baseline_table(found, rows))
        for key, warning in found.warnings().items():
            say(f"{key[0]} on {key[1]}: {warning}")
        for missing in found.missing:
            note(f"left out: {missing}")
    if gate and found.warnings():
        raise GateFailedError(f"gate --gate: {len(found.warnings())} models fail the band of {low:g} to {high:g} %")


@app.command()
def breakdown(
    campaign: CampaignArg = DEFAULT,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="The breakdown file to write; it is not overwritten.")
    ] = Path("breakdowns.json"),
    provider: Annotated[str, typer.Option(help="'aiconfigurator' (extra 'aic') or 'roofline'.")] = "aiconfigurator",
    version: Annotated[
        list[str] | None,
        typer.Option("--table-version", help="BACKEND=VERSION of the latency tables to use."),
    ] = None,
    model_config: Annotated[
        list[str] | None,
        typer.Option("--model-config", help="MODEL=FOLDER with its Hugging Face config.json."),
    ] = None,
) -> None:
    """Per-op latencies of a campaign's configurations: decode steps, and mixed prefill and decode steps."""
    from calib.measure import compute_breakdowns, find_campaign, read_campaign

    loaded = read_campaign(find_campaign(campaign), breakdowns=False)
    systems = sorted(set(loaded.runs["system"]))
    if len(systems) != 1:
        raise UsageError(f"the campaign has runs of {len(systems)} systems", remedy="split it into one a system")
    chosen = _provider(provider, systems[0], _pairs("--table-version", version))
    found = compute_breakdowns(loaded, chosen, configs=_pairs("--model-config", model_config), progress=_progress)
    if not write_new(out, found.to_json()):
        raise UsageError("exists already and is not overwritten", file=out, remedy="choose another name with --out")
    say(f"Wrote {len(found.steps)} steps to {out} ({found.provider.note})")


def _system_name(system: str) -> str:
    """The system a GPU description is of, where a file is given in place of a name."""
    if not system.endswith(".toml"):
        return system
    from calib.pipeline import load_gpu

    return load_gpu(system).system


def _provider(name: str, system: str, versions: dict[str, str] | None = None) -> BreakdownProvider:
    if name == "roofline":
        from calib.pipeline import RooflineProvider

        return RooflineProvider(system)
    if name != "aiconfigurator":
        raise UsageError("must be 'roofline' or 'aiconfigurator'", field="--provider", value=name)
    from calib.pipeline import AiconfiguratorProvider

    return AiconfiguratorProvider(system, versions)


def _pairs(option: str, values: list[str] | None) -> dict[str, str]:
    pairs = {}
    for value in values or ():
        key, sep, rest = value.partition("=")
        if not (key and sep and rest):
            raise UsageError("must be NAME=VALUE", field=option, value=value)
        pairs[key] = rest
    return pairs


def _progress(items: Iterable[Any], total: int) -> Iterator[Any]:
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    yield from track(items, "breakdowns", total=total, console=console, disable=not console.is_terminal)
