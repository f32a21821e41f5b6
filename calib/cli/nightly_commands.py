"""Commands of the nightly job and its store: nightly, ack, store, sql."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from calib.cli.app import app
from calib.cli.options import JsonOption
from calib.cli.output import note, print_json, say, working
from calib.errors import GateFailedError, StoreError, UsageError

if TYPE_CHECKING:
    from calib.nightly import Night


ConfigArg = Annotated[Path, typer.Argument(metavar="CONFIG.toml", help="The nightly configuration.")]
NightlyOption = Annotated[
    Path | None, typer.Option("--config", "-c", help="The nightly configuration; nightly.toml here if left out.")
]
WorkersOption = Annotated[int, typer.Option("--workers", min=1, max=256, help="Processes that read and fit.")]
SchedulerOption = Annotated[
    str | None, typer.Option("--scheduler", metavar="ADDRESS", help="An existing Dask cluster (extra: dask).")
]
WaitOption = Annotated[float, typer.Option("--wait", min=0, help="Seconds to wait for another job to end.")]
store_app = typer.Typer(no_args_is_help=True, help="The store of measurements and nights: check, rebuild.")
app.add_typer(store_app, name="store")


@app.command()
def nightly(
    config: ConfigArg,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be read; write nothing.")] = False,
    since: Annotated[
        str | None, typer.Option("--since", metavar="DATE", help="Leave out campaigns without a file as new as this.")
    ] = None,
    workers: WorkersOption = 1,
    scheduler: SchedulerOption = None,
    wait: WaitOption = 0.0,
    replay: Annotated[
        int | None, typer.Option("--replay", metavar="NIGHT", help="Calibrate a night again from what it recorded.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Find new results, calibrate them, compare with what is released; exit 1 where an alarm is open."""
    from calib.nightly import Asked, run_night as run_nightly

    asked = Asked(since=_date(since), workers=workers, scheduler=scheduler, wait_s=wait)
    if replay is not None:
        _replay(config, replay, json)
        return
    if dry_run:
        _preview(config, asked, json)
        return
    with working("calibrating"):
        night = run_nightly(config, asked)
    for name, reason in night.failed_sources.items():
        note(f"warning: {name}: {reason}")
    if json:
        print_json(_document(night))
    else:
        _show(night)
    if night.alarms_open:
        raise GateFailedError(
            f"{night.alarms_open} alarm{'s are' if night.alarms_open > 1 else ' is'} open",
            remedy="act on them, or silence each with `calib ack ID --why`",
        )


def _document(night: Night) -> dict[str, Any]:
    from calib.nightly import summary

    record = summary(night.record) if night.record else {}
    return {
        "new": night.new, "results_read": night.read, "campaigns_fitted": night.fitted,
        "folder": str(night.folder) if night.folder else None, "failed_sources": dict(night.failed_sources), **record,
    }  # fmt: skip


def _show(night: Night) -> None:
    from calib.nightly import render_pager

    if night.record is None:
        say("No campaign was found.")
        return
    say(render_pager(night.record))
    for c in night.record.campaigns:
        if c.failure:
            say(f"  not calibrated: {c.campaign}: {c.failure}")
        elif c.changed_files and night.new:
            say(f"  changed under the same name: {c.campaign}: {', '.join(c.changed_files[:5])}")
    for a in night.record.alarms:
        state = f"acknowledged: {a.acknowledged}" if a.acknowledged is not None else "OPEN"
        say(f"  {a.id} {a.kind} {a.series}: {a.text} ({state})")
    if night.new:
        say(f"Wrote {night.folder} ({night.fitted} campaigns fitted, {night.read} run results read)")
    else:
        say(f"Nothing new since night {night.record.night} ({night.folder})")


def _preview(config: Path, asked: Any, json: bool) -> None:
    from calib.nightly import preview

    found: Any = preview(config, asked)
    if json:
        print_json(found)
        return
    for c in found["would_read"]:
        say(f"{c['status']}: {c['campaign']} ({c['new_files']} new files, {len(c['changed_files'])} changed)")
    for name in found["gone"]:
        say(f"gone: {name}")
    for name, reason in found["failed"].items():
        note(f"warning: {name}: {reason}")
    also = "".join(f"; {why}" for why in found["also"])
    would = "a night would be written" if found["would_write"] else "nothing is to be done"
    say(f"{found['unchanged']} campaigns unchanged{also}: {would}")


def _replay(config: Path, night: int, json: bool) -> None:
    from dataclasses import asdict

    from calib.nightly import replay_night

    found = replay_night(config, night)
    if json:
        print_json([asdict(r) for r in found])
    else:
        for r in found:
            say(f"{r.campaign}: {r.problem or f'same digest {r.recorded[:12]}'}")
    if bad := [r for r in found if r.problem]:
        raise StoreError(
            f"{len(bad)} of {len(found)} campaigns cannot be replayed, the first is {bad[0].campaign} ({bad[0].problem})",
            file=config, remedy="restore the inputs, or use the calib version of that night",
        )  # fmt: skip


@app.command()
def ack(
    alarm: Annotated[str, typer.Argument(metavar="ID", help="The alarm, as the report names it.")],
    why: Annotated[str, typer.Option("--why", help="Why it may be silent; stands in the reports.")],
    config: NightlyOption = None,
) -> None:
    """Silence one alarm until the next change."""
    from calib.nightly import acknowledge, default_config, job_folders

    made, known = acknowledge(job_folders(config or default_config()).out, alarm, why)
    say(f"Acknowledged {made.id} ({known.kind}, {known.series}) until the next change: {made.why}")


@store_app.command("check")
def store_check(config: NightlyOption = None, json: JsonOption = False) -> None:
    """Compare digests and counts of the store with what lies on the disk; exit 3 where they differ."""
    from dataclasses import asdict

    from calib.nightly import check_night_store, default_config

    path = config or default_config()
    problems, counts = check_night_store(path)
    if json:
        print_json({"problems": [asdict(p) for p in problems], "compared": counts})
    else:
        for p in problems:
            say(f"{p.what} {p.file}: {p.reason}")
        say(f"Compared {counts['files']} files, {counts['parts']} parts and {counts['nights']} nights")
    if problems:
        raise StoreError(
            f"{len(problems)} things differ from what was stored, the first is {problems[0].file} ({problems[0].reason})",
            file=path, remedy="run `calib nightly` for changed results, `calib store rebuild` for a damaged store",
        )  # fmt: skip


@store_app.command("rebuild")
def store_rebuild(
    config: NightlyOption = None,
    workers: WorkersOption = 1,
    scheduler: SchedulerOption = None,
    wait: WaitOption = 0.0,
) -> None:
    """Delete the store and build it again from raw files and the records of the nights."""
    from calib.nightly import Asked, default_config, rebuild_store

    with working("rebuilding"):
        found = rebuild_store(config or default_config(), Asked(workers=workers, scheduler=scheduler, wait_s=wait))
    for name, reason in found.failed_sources.items():
        note(f"warning: {name}: {reason}")
    say(f"Rebuilt from {found.campaigns} campaigns and {found.nights} nights")


@app.command()
def sql(
    query: Annotated[str, typer.Argument(help="A query in DuckDB's SQL; the store is read-only.")],
    config: NightlyOption = None,
    store: Annotated[
        Path | None, typer.Option("--store", help="The store's folder, instead of a configuration.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Ask the store: CSV on stdout, or JSON. `SHOW TABLES` lists what there is."""
    import sys

    from calib.cli.output import frame_rows
    from calib.nightly import default_config, job_folders, open_store

    with open_store(store or job_folders(config or default_config()).store) as opened:
        frame = opened.sql(query)
    if json:
        print_json(frame_rows(frame))
    else:
        frame.to_csv(sys.stdout, index=False, lineterminator="\n")


def _date(text: str | None) -> dt.date | None:
    if text is None:
        return None
    try:
        return dt.date.fromisoformat(text)
    except ValueError:
        raise UsageError("is not a date", field="--since", value=text, remedy="write it as 2026-11-30") from None
