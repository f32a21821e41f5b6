"""A scenario's campaign, run by run: in virtual time, or with the real aiperf over HTTP on loopback.

A finished run is kept and not repeated, so that a demo can be interrupted and goes on where it was.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from calib.emulator.client import Say, ensure_aiperf, profile, served
from calib.emulator.closed_loop import serve
from calib.emulator.demo_folder import (
    WORK,
    DemoCell,
    campaign_files,
    cells,
    claimed,
    is_done,
    keep_files,
    keep_folder,
    prepare,
)
from calib.emulator.result_files import result_files
from calib.emulator.scenarios import Scenario
from calib.emulator.tokenizer import write_tokenizer

AIPERF_START_S = 20.0  # what a start of aiperf takes, until one has been seen
VIRTUAL_S = 0.05


@dataclass(frozen=True)
class Demo:
    """What is run, and how. ``slowdown`` seconds pass for each second of the engine, in real time."""

    scenario: Scenario
    folder: Path
    virtual: bool
    slowdown: float = 2.0
    waves: int = 10
    seed: int = 0
    concurrencies: tuple[int, ...] = ()
    aiperf_venv: Path | None = None

    @property
    def runs(self) -> list[DemoCell]:
        """Every run of the campaign."""
        return cells(self.scenario, waves=self.waves, seed=self.seed, concurrencies=self.concurrencies)

    @property
    def how(self) -> str:
        """In words for ``campaign.toml``: everything that a run depends on beside the scenario."""
        chosen = f"{self.waves} requests per concurrent one, seed {self.seed}"
        if self.virtual:
            return f"in virtual time with result files like those of aiperf ({chosen})"
        return f"measured by aiperf over HTTP on loopback, {self.slowdown:g} times slower than the engine ({chosen})"


@dataclass
class Progress:
    """How far a demo is: runs done of all, and seconds, worked out from the engine before anything is measured."""

    total: int
    done: int = 0
    kept: int = 0
    run: str = ""
    seconds_total: float = 0.0
    seconds_done: float = 0.0
    ahead: dict[str, float] = field(default_factory=dict)

    @property
    def seconds_left(self) -> float:
        """Estimate of the time left [s]."""
        return max(0.0, self.seconds_total - self.seconds_done)


def run_demo(demo: Demo, *, show: Callable[[Progress], None], say: Say) -> Progress:
    """Make every run that is not there yet. ``show`` is called whenever something moves, ``say`` with what takes long.

    Raises
    ------
    OutputError
        The folder holds another campaign or cannot be written.
    ClientError, MissingExtraError
        aiperf or the server cannot be run.
    """
    with claimed(demo.folder):
        return _run(demo, show, say)


def _run(demo: Demo, show: Callable[[Progress], None], say: Say) -> Progress:
    runs = demo.runs
    prepare(demo.folder, campaign_files(demo.scenario, runs, demo.how))
    left = [r for r in runs if not is_done(demo.folder, r)]
    progress = Progress(len(runs), len(runs) - len(left), len(runs) - len(left))
    progress.ahead = {r.name: _expected_s(demo, r) for r in left}
    progress.seconds_total = sum(progress.ahead.values())
    show(progress)
    made = _virtual(demo, left, progress, show) if demo.virtual else _real(demo, left, progress, show, say)
    for _ in made if left else ():
        progress.done += 1
        show(progress)
    shutil.rmtree(demo.folder / WORK, ignore_errors=True)
    return progress


def _expected_s(demo: Demo, run: DemoCell) -> float:
    """How long a run will take [s]: the engine's own time is known before it is measured."""
    if demo.virtual:
        return VIRTUAL_S
    _, measured = serve(run.spec, run.load)
    return AIPERF_START_S + demo.slowdown * max(s.end_ms for s in measured) / 1000.0


def _virtual(demo: Demo, left: list[DemoCell], progress: Progress, show: Callable[[Progress], None]) -> Iterator[None]:
    for run in left:
        progress.run = run.name
        show(progress)
        keep_files(demo.folder, run, result_files(run.spec, run.load, *serve(run.spec, run.load)))
        progress.seconds_done += progress.ahead[run.name]
        yield


def _real(
    demo: Demo, left: list[DemoCell], progress: Progress, show: Callable[[Progress], None], say: Say
) -> Iterator[None]:
    work = demo.folder / WORK
    shutil.rmtree(work, ignore_errors=True)
    aiperf = ensure_aiperf(demo.aiperf_venv, say)
    write_tokenizer(work / "tokenizer")
    for run in left:
        progress.run = run.name
        before, begun = progress.seconds_done, time.monotonic()

        def tick(name: str = run.name, before: float = before, begun: float = begun) -> None:
            progress.seconds_done = before + min(time.monotonic() - begun, progress.ahead[name])
            show(progress)

        with served(run.spec, demo.slowdown, work / "server.log") as url:
            made = profile(aiperf, run.spec, run.load, url=url, name=run.name, work=work, idle=tick)
        keep_folder(demo.folder, run, made)
        took = time.monotonic() - begun
        late = took - progress.ahead[run.name]  # the later starts will be as slow or as quick as this one
        later = progress.total - progress.done - 1
        progress.seconds_done = before + took
        progress.seconds_total += late * (1 + later) if progress.done == progress.kept else late
        yield
