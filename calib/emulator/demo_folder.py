"""The campaign folder of a scenario: what calib has to be told beside the results, and how runs get into it.

Files and runs appear whole or not at all: they are written below ``.work`` and renamed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from calib.emulator.closed_loop import Load
from calib.emulator.physics import EngineSpec, breakdown_step
from calib.emulator.scenarios import DEGREES, GPUS, Scenario
from calib.errors import OutputError
from calib.pipeline import Breakdowns, Provider

WORK = ".work"  # hidden, so that calib does not look into it
SYSTEM, ENGINE_VERSION = "emulated", "0+emulated"
BREAKDOWNS = "breakdowns.json"
SUMMARY = "profile_export_aiperf.json"


@dataclass(frozen=True)
class DemoCell:
    """One run of a campaign: an engine, a load, and the folder of its results."""

    name: str
    spec: EngineSpec
    load: Load


def cells(scenario: Scenario, *, waves: int, seed: int = 0, concurrencies: Iterable[int] = ()) -> list[DemoCell]:
    """The runs of a scenario, in the order they are made; ``waves`` requests per concurrent one."""
    return [
        DemoCell(f"tp{tp}pp{pp}/c{c}", scenario.engine(tp, pp, 1000 * seed + c), Load(c, waves * c, warmup=c))
        for tp, pp in DEGREES
        for c in concurrencies or scenario.concurrencies
    ]


def campaign_files(scenario: Scenario, runs: list[DemoCell], how: str) -> dict[str, bytes]:
    """``campaign.toml`` and the breakdown file; ``how`` says in words how the runs are made."""
    toml = f"""\
format_version = 1
name = "emulated-{scenario.name}"
title = "{scenario.title}"
source = "Not silicon: calib's emulated engine, {how}. Residual: {scenario.law.words}. It teaches: {scenario.teaches}"
matching = "{scenario.matching}"

[defaults]
system = "{SYSTEM}"
gpus = {GPUS}
backend = "{scenario.backend}"
backend_version = "{ENGINE_VERSION}"
"""
    toml += "".join(_entries(scenario))
    partition = runs[0].spec.partition
    toml += f'\n[balance]\nfile = "{BREAKDOWNS}"\npartition = "{partition}"\n'
    provider = Provider(
        name="calib emulator", version=ENGINE_VERSION, system=SYSTEM, note="the emulated engine's own latencies"
    )
    steps = tuple(
        breakdown_step(r.spec, concurrency=r.load.concurrency, isl=r.load.isl, osl=r.load.osl, kind=kind)
        for kind in ("decode", "mixed")
        for r in runs
    )
    breakdowns = Breakdowns(format="calib-breakdowns", format_version=1, provider=provider, steps=steps)
    return {"campaign.toml": toml.encode(), BREAKDOWNS: breakdowns.to_json()}


def _entries(scenario: Scenario) -> list[str]:
    """``[[runs]]``: one for all where the engine's flags are the same, else one for each configuration."""
    flags = {pp: scenario.engine_flags(pp) for _, pp in DEGREES}
    if all(f == flags[1] for f in flags.values()):
        return [f'\n[[runs]]\nfolder = "tp{{tp}}pp{{pp}}"\nengine = {_table(flags[1])}\n']
    return [
        f'\n[[runs]]\nfolder = "tp{tp}pp{pp}"\ntp = {tp}\npp = {pp}\nengine = {_table(flags[pp])}\n'
        for tp, pp in DEGREES
    ]


@contextlib.contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Make the folder and keep other demos out of it meanwhile; the claim ends with the process, whatever ends that.

    Raises
    ------
    OutputError
        Another demo is at work there, or the folder cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise _unwritable(folder, error) from None
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OutputError("another demo is at work in it", file=folder, remedy="wait, or choose --out") from None
        yield
    finally:
        os.close(handle)


def _unwritable(folder: Path, error: OSError) -> OutputError:
    words = f"cannot be written ({error.strerror or error})"
    return OutputError(words, file=folder, remedy="choose another folder with --out")


def prepare(folder: Path, files: Mapping[str, bytes]) -> None:
    """Fill the campaign folder, or find that it is there with the same settings.

    Raises
    ------
    OutputError
        The folder holds something else, or cannot be written.
    """
    try:
        present = {p.name for p in folder.iterdir()} - {WORK} if folder.is_dir() else set()
        other = [n for n in files if n in present and (folder / n).read_bytes() != files[n]]
        if other or (present and not present & files.keys()):
            raise OutputError(
                f"is not what this demo would write: {other[0] if other else 'campaign.toml'} is missing or differs",
                file=folder, remedy="choose another folder with --out, or remove this one",
            )  # fmt: skip
        work = folder / WORK
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        for name in sorted(files.keys() - present):  # campaign.toml last: with it the folder is a campaign
            (work / name).write_bytes(files[name])
            os.replace(work / name, folder / name)
    except OSError as error:
        raise _unwritable(folder, error) from None


def is_done(folder: Path, cell: DemoCell) -> bool:
    """Whether a run is there already, whole."""
    return (folder / cell.name / SUMMARY).is_file()


def keep_files(folder: Path, cell: DemoCell, files: Mapping[str, bytes]) -> None:
    """Put a run's files in place in one step."""
    made = folder / WORK / "run"
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir(parents=True)
    for name, data in files.items():
        (made / name).write_bytes(data)
    keep_folder(folder, cell, made)


def keep_folder(folder: Path, cell: DemoCell, made: Path) -> None:
    """Put a run's finished folder in place in one step."""
    target = folder / cell.name
    target.parent.mkdir(parents=True, exist_ok=True)
    os.replace(made, target)


def _table(flags: Mapping[str, object]) -> str:
    words = (f"{k} = {str(v).lower() if isinstance(v, bool) else repr(v)}" for k, v in flags.items())
    return f"{{ {', '.join(words)} }}"
