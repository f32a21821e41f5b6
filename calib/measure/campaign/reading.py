"""The runs below a folder, unit by unit, each with what stands beside it: side-cars, server metrics, names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from calib.measure.readers.discover import read_path
from calib.measure.readers.read_run import ReadRun, UnreadableRun
from calib.measure.readers.side_files import path_hints, read_hints


def companions(run: ReadRun) -> list[str]:
    """Files beside the run's own that its figures come from: per-request records, and the other trials of a cell."""
    records, trials = run.facts.get("records_file"), run.facts.get("trial_files")
    hints = run.facts.get("hints", ())
    names = [h.file for h in hints] if isinstance(hints, tuple) else []
    names += [records] if isinstance(records, str) else []
    if isinstance(trials, tuple):
        names += [str(name) for name, *_ in trials]
    return names


Runs = list[ReadRun | UnreadableRun]
ReadUnits = Callable[[Sequence[Path], Path], Iterable[Runs]]


def read_unit(path: Path, root: Path) -> Runs:
    """The runs of one result file or folder, each with what the files beside it say about the deployment."""
    return [learn(run, root) for run in read_path(path, root=root)]


def read_units(paths: Sequence[Path], root: Path) -> Iterable[Runs]:
    """The runs of several results, one after another; `calib.nightly` does the same in parallel, and remembers."""
    return (read_unit(path, root) for path in paths)


def learn(run: ReadRun | UnreadableRun, root: Path) -> ReadRun | UnreadableRun:
    """The run with what the files beside it say about the deployment. Only aiperf has files beside a run."""
    if isinstance(run, UnreadableRun):
        return run
    facts: dict[str, object] = dict(run.facts) | {"path_hints": tuple(path_hints(run.source_file))}
    if run.stated.get("tool") == "aiperf":
        path = root / run.source_file
        hints, said = read_hints(path.parent, root=root, run=path.name)
        facts |= said | {"hints": tuple(hints)}
    return replace(run, facts=facts)
