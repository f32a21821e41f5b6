"""`calib plan`: what to measure next."""

from __future__ import annotations

from typing import Annotated

import typer

from calib.cli.app import app
from calib.cli.options import DEFAULT, CampaignArg, FloorOption, JsonOption, MatchingOption, run_options
from calib.cli.output import frame_rows, note, print_json, print_table, say, working


@app.command("plan")
def plan_command(
    campaign: CampaignArg = DEFAULT,
    model: Annotated[str | None, typer.Option(help="Whose s shall be narrowed; all of them if left out.")] = None,
    backend: Annotated[str | None, typer.Option(help="Where a model was measured on several.")] = None,
    repeats: Annotated[int, typer.Option(help="Runs that a candidate adds.")] = 1,
    run_minutes: Annotated[float, typer.Option(help="Minutes a run takes, start-up and warm-up included.")] = 10.0,
    drift: Annotated[float | None, typer.Option(help="Change of s that must be found; a tenth of s if left out.")] = None,
    power: Annotated[float, typer.Option(help="Probability with which it must be found.")] = 0.95,
    tp_spread: Annotated[
        float | None, typer.Option(help="How far TP scaling may be off, relative; found in the campaign if left out.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the simulated campaigns.")] = 0,
    matching: MatchingOption = None,
    error_floor: FloorOption = 0.02,
    json: JsonOption = False,
) -> None:  # fmt: skip
    """Which next runs narrow the interval of s most per GPU-hour, and how many repeats find a drift."""
    with working("planning"):
        from calib.fitting import decompose, fit
        from calib.judging import PlanOptions, plan_runs
        from calib.measure import load_campaign
        from calib.reporting import plan_table

        options = run_options(matching, error_floor, False, "decode")
        fitted = fit(
            decompose(load_campaign(campaign), matching=options.matching, error_floor=error_floor), drift=False
        )
        asked = PlanOptions(
            repeats=repeats, run_minutes=run_minutes, drift=drift, power=power, tp_spread=tp_spread, seed=seed
        )
        names: list[tuple[str, str | None]] = [(str(s.key["model"]), s.key["backend"]) for s in fitted.series]
        wanted = [(m, b) for m, b in names if model in (None, m) and backend in (None, b)]
        plans = [plan_runs(fitted, model=m, backend=b, options=asked) for m, b in wanted or [(str(model), backend)]]
    if json:
        print_json(
            [
                {
                    "model": p.series.key["model"], "backend": p.series.key["backend"], "tp_spread": p.tp_spread,
                    "tp_spread_from": p.spread_from, "drift": p.drift, "power": p.power,
                    "repeats_for_drift": p.repeats_for_drift, "seed": seed, "candidates": frame_rows(p.candidates),
                }
                for p in plans
            ]
        )  # fmt: skip
        return
    for p in plans:
        print_table(plan_table(p))
        say(plan_table(p).note)
        if p.series.verdict == "REFUSED":
            note(f"the form is refused for {p.series.key['model']}: more runs will not make it fit")
