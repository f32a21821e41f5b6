"""``calib demo``: the whole loop without a GPU, against a truth that is known."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from calib.cli.app import app
from calib.cli.output import note, print_findings, print_json, print_table, say
from calib.errors import GateFailedError, UsageError

if TYPE_CHECKING:
    from calib.emulator import Demo, Progress, Scenario
    from calib.workflow import Result, Written


FOUND_WITHIN = 0.02  # of the true s, what the demo has to reach


@app.command()
def demo(
    scenario: Annotated[str, typer.Option("--scenario", "-s", help="Which truth; --list shows them.")] = "clean-log2",
    virtual: Annotated[
        bool, typer.Option("--virtual", help="In virtual time, without HTTP and aiperf: seconds instead of minutes.")
    ] = False,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the campaign and the report.")] = Path("calib-demo"),
    slowdown: Annotated[
        float, typer.Option("--slowdown", help="Seconds for each of the engine's, so that the client's cost does not count.")
    ] = 2.0,
    waves: Annotated[int, typer.Option("--waves", help="Requests per concurrent one.")] = 10,
    seed: Annotated[int, typer.Option("--seed", help="Of the engines' jitter and noise.")] = 0,
    aiperf_venv: Annotated[
        Path | None, typer.Option("--aiperf-venv", help="Environment with aiperf; made in the cache folder if left out.")
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="Show the scenarios and stop.")] = False,
    open_: Annotated[bool, typer.Option("--open", help="Open the report in a browser.")] = False,
    json: Annotated[bool, typer.Option("--json", help="JSON on stdout, in full precision.")] = False,
) -> None:  # fmt: skip
    """The whole loop without a GPU: emulated engines, the real client aiperf, and a truth to be found.

    A finished run is kept: interrupt it with Ctrl-C, and the same command goes on from there.
    """
    from calib.emulator import SCENARIOS, get_scenario

    if list_:
        _list(list(SCENARIOS.values()), json)
        return
    from calib.emulator import Demo

    chosen = get_scenario(scenario)
    if not slowdown > 0:
        raise UsageError("must be positive", field="--slowdown", value=slowdown)
    if not 1 <= waves <= 1000:
        raise UsageError("must be from 1 to 1000", field="--waves", value=waves)
    if seed < 0:
        raise UsageError("must not be negative", field="--seed", value=seed)
    folder = out / (f"{chosen.name}-virtual" if virtual else chosen.name)
    given = Demo(chosen, folder, virtual, slowdown=slowdown, waves=waves, seed=seed, aiperf_venv=aiperf_venv)
    _run(given)
    from calib.workflow import run

    result, written = run(folder, out=out / "reports")
    row = _held_against_truth(chosen, result)
    if json:
        print_json({"campaign": str(folder), "report": str(written.folder), **row})
    else:
        _print(given, result, written, row)
    if open_:
        typer.launch(str((written.folder / "report.html").absolute()))
    if row["as_expected"] != "yes":
        raise GateFailedError(f"the demo did not find what its truth implies: {row['as_expected']}")


def _run(given: Demo) -> None:
    from calib.emulator import run_demo

    done = total = 0
    with _bar() as show:

        def seen(progress: Progress) -> None:
            nonlocal done, total
            if not total:
                _say_start(given, progress)
            done, total = progress.done, progress.total
            show(progress)

        try:
            run_demo(given, show=seen, say=note)
        except KeyboardInterrupt:
            note(
                f"interrupted: {done} of {total or len(given.runs)} runs are kept; the same command goes on from there"
            )
            raise typer.Abort from None


def _say_start(given: Demo, progress: Progress) -> None:
    if progress.kept == progress.total:
        note(f"all {progress.total} runs are there already")
    elif not given.virtual or progress.kept:
        how = "in virtual time" if given.virtual else "of aiperf against emulated engines on loopback"
        kept = f", {progress.kept} are there already" if progress.kept else ""
        note(f"{progress.total} runs {how}{kept}; {_minutes(progress.seconds_left)} left")


def _minutes(seconds: float) -> str:
    return f"about {seconds / 60:.0f} min" if seconds >= 90 else f"about {max(1.0, seconds):.0f} s"


@contextlib.contextmanager
def _bar() -> Iterator[Callable[[Progress], None]]:
    """A progress bar with the time left on stderr; nothing where that is not a terminal."""
    import sys

    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress as RichProgress, TextColumn

    columns = (
        TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[runs]} runs"),
        TextColumn("{task.fields[left]}"),
    )  # fmt: skip
    with RichProgress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting", total=None, runs="0", left="")

        def show(progress: Progress) -> None:
            bar.update(
                task, description=progress.run or "starting", total=progress.seconds_total or None,
                completed=progress.seconds_done, runs=f"{progress.done}/{progress.total}",
                left=f"{_minutes(progress.seconds_left)} left",
            )  # fmt: skip

        yield show


def _held_against_truth(scenario: Scenario, result: Result) -> dict[str, Any]:
    """What was found beside what is true, and whether it is what the scenario promises."""
    fit, rules = result.fit.series[0], {f.rule for f in result.findings}
    s, missing = fit.estimate.values[0], sorted(scenario.rules - rules)
    wrong = []
    if fit.verdict != scenario.verdict:
        wrong.append(f"the verdict is {fit.verdict} and not {scenario.verdict}")
    if scenario.truth is not None and not abs(s - scenario.truth) <= FOUND_WITHIN:
        wrong.append(f"s = {s:.3f} is not within {FOUND_WITHIN} of {scenario.truth}")
    if missing:
        wrong.append(f"no warning by the rule {', '.join(missing)}")
    span = fit.estimate.interval95[0] if fit.estimate.interval95 else None
    return {
        "scenario": scenario.name, "truth": scenario.truth, "s": s, "low95": span.low if span else None,
        "high95": span.high if span else None, "verdict": fit.verdict, "expected_verdict": scenario.verdict,
        "rules": sorted(scenario.rules & rules), "as_expected": "; ".join(wrong) or "yes",
    }  # fmt: skip


def _print(given: Demo, result: Result, written: Written, row: dict[str, Any]) -> None:
    from calib.reporting import report_tables

    shown = report_tables(result.report_data)
    print_table(shown["observed"])
    print_table(shown["coefficients"], 9)
    print_findings(result.findings)
    span = "unknown" if row["low95"] is None else f"{row['low95']:.3f} to {row['high95']:.3f}"
    ok = row["as_expected"] == "yes"
    verdict = f"{row['verdict']}, as it must be" if ok else f"{row['verdict']}; {row['as_expected']}"
    print("\nHeld against the truth")
    print(f"  true s   {'none: the law is another one' if row['truth'] is None else row['truth']}")
    print(f"  found s  {row['s']:.3f}, 95 % interval {span}")
    print(f"  verdict  {verdict}")
    if row["rules"]:
        print(f"  warned   {', '.join(row['rules'])}")
    print()
    say(f"{given.scenario.title}. What it teaches: {given.scenario.teaches}.")
    print(f"\nCampaign  {given.folder}\nReport    {written.folder / 'report.html'}")


def _list(scenarios: list[Scenario], json: bool) -> None:
    from calib.reporting import Column, Table

    rows = tuple({"name": s.name, "verdict": s.verdict, "title": s.title, "teaches": s.teaches} for s in scenarios)
    if json:
        print_json(rows)
        return
    columns = (Column("name", "--scenario"), Column("title", "engine"), Column("teaches", "what it teaches"),
               Column("verdict", "verdict", "verdict"))  # fmt: skip
    print_table(Table("scenarios", f"{len(rows)} scenarios", "", columns, rows))
