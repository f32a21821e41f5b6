"""Cells of sweeps: which summary is which cell and trial, and which are copies or leftovers.

A cell is known by what its files state (`run_info.variation_values`, else its own configuration), never by the name of
its folder. What belongs together shares a ``sweep_id`` (0.9 and later) or, before that, a ``benchmark_id``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from calib.measure.readers.aiperf.request_records import RecordSummary
from calib.measure.readers.aiperf.settings import flat
from calib.measure.readers.aiperf.tree import RunFolder, Tree
from calib.measure.readers.read_run import ReadRun, UnreadableRun

IDENTITY = ("model", "isl", "osl", "concurrency")
IDENTIFYING_FACTS = ("load_type", "rate", "urls", "requested_requests", "duration_limited")


@dataclass(frozen=True)
class Cell:
    """One summary that was read, with what tells it from others."""

    folder: Path
    run: ReadRun
    document: Mapping[str, Any]
    records: RecordSummary | None
    config: Mapping[str, Any] | None = None  # run_config.json: only cells of sweeps and multi-runs have one

    @property
    def info(self) -> Mapping[str, Any]:
        """``run_info``, from 0.9 on."""
        info = self.document.get("run_info")
        return info if isinstance(info, dict) else {}

    @property
    def variation(self) -> Mapping[str, object]:
        """What the sweep varied, by full path; empty for a run that is not of a sweep, and before 0.9."""
        values = self.info.get("variation_values")
        return values if isinstance(values, dict) else {}

    @property
    def benchmark(self) -> str:
        """The run's own id; before 0.9 that of the whole command. Empty where unknown."""
        return str(self.run.facts.get("benchmark_id", ""))

    @property
    def started(self) -> str:
        """Naive local time, as text that sorts in time; empty where unknown."""
        return str(self.run.facts.get("start_time", ""))

    @property
    def group(self) -> str:
        """What all runs of one command share; empty where the version wrote no id."""
        return self.sweep or self.benchmark

    @property
    def sweep(self) -> str:
        """Id of the sweep or multi-run; empty for a single run, and before 0.9."""
        return str(self.info.get("sweep_id") or (self.config or {}).get("sweep_id") or "")

    @property
    def identity(self) -> str:
        """Everything that makes two runs trials of one cell."""
        stated = [self.run.stated.get(name) for name in IDENTITY]
        facts = [self.run.facts.get(name) for name in IDENTIFYING_FACTS]
        return msgspec.json.encode([sorted(self.variation.items()), stated, facts]).decode()

    @property
    def parameters(self) -> Mapping[str, object]:
        """Path -> value, to look a sweep's parameter up in."""
        return stated_parameters(self.document)


def stated_parameters(document: Mapping[str, Any]) -> Mapping[str, object]:
    """What a summary says was varied, else all that it was asked for."""
    info = document.get("run_info")
    values = info.get("variation_values") if isinstance(info, dict) else None
    return values if isinstance(values, dict) and values else dict(flat(document.get("input_config")))


def split_copies(cells: list[Cell]) -> tuple[list[Cell], list[UnreadableRun]]:
    """Runs that stand there once, and a report of every further copy.

    Two summaries are of one run where the content is the same, or the benchmark, the cell and the trial are; before 0.9,
    when all cells and trials of a sweep shared their ``benchmark_id`` and no trial was stated, the start must be too. Of
    several the one beside its per-request file is kept: a summary of one phase that was moved has none.
    """
    kept: list[Cell] = []
    copies: list[UnreadableRun] = []
    first: dict[tuple[object, ...], Cell] = {}
    for cell in sorted(cells, key=lambda c: (c.records is None, c.run.source_file)):
        keys: list[tuple[object, ...]] = [("content", cell.run.source_sha256)]
        if cell.benchmark and cell.info.get("trial") is not None:
            keys.append((cell.benchmark, cell.identity, str(cell.info["trial"])))
        elif cell.benchmark or cell.started:
            keys.append((cell.benchmark, cell.identity, cell.started))
        original = next((first[key] for key in keys if key in first), None)
        if original:
            reason = f"is of the run that is read from {original.run.source_file}: a copy of it, or one of its phases"
            copies.append(UnreadableRun(cell.run.source_file, 0, reason))
        else:
            kept.append(cell)
            first |= dict.fromkeys(keys, cell)
    return kept, copies


def split_leftovers(cells: list[Cell], tree: Tree) -> tuple[list[Cell], list[UnreadableRun], dict[str, str]]:
    """Runs left in a folder that another command used later.

    Returns
    -------
    cells, left, stale
        The runs that stay, those that are set aside, and source file -> reason for runs that stay and are older than
        what was last run in their folder.
    """
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        if cell.group and (cell.sweep or cell.config is not None):
            groups.setdefault(cell.group, []).append(cell)
    roots = {name: sweep_root([c.folder for c in members], tree) for name, members in groups.items()}
    starts = {name: min(c.started for c in members) for name, members in groups.items()}
    left: dict[str, UnreadableRun] = {}
    stale: dict[str, str] = {}
    for name, root in roots.items():
        later = [o for o in roots if o != name and roots[o] == root and starts[o] > starts[name]]
        for cell in groups[name]:
            if later:
                stale[cell.run.source_file] = _reused(starts[later[0]], later[0])
        for cell in (c for c in cells if c.folder == root and c.group != name):
            if cell.started > starts[name]:
                stale |= {c.run.source_file: _reused(cell.started, cell.benchmark) for c in groups[name]}
            else:
                reason = f"is left of an earlier run: {_reused(starts[name], name)}"
                left[cell.run.source_file] = UnreadableRun(cell.run.source_file, 0, reason)
    return [c for c in cells if c.run.source_file not in left], list(left.values()), stale


def _reused(start: str, name: str) -> str:
    return f"the folder was used again at {start or 'an unknown time'} by {name}"


def sweep_root(folders: list[Path], tree: Tree) -> Path:
    """The folder that one sweep was written to: where its aggregate says, else above all its cells."""
    root = aggregated_in(folders[0], tree)
    if root and all(f.is_relative_to(root) for f in folders):
        return root
    outer = {_outside_trials(f) for f in folders}
    if len(outer) == 1:
        only = outer.pop()
        return only if only not in folders else only.parent
    common = outer.pop()
    while not all(f.is_relative_to(common) for f in outer):
        common = common.parent
    return common


def aggregated_in(folder: Path, tree: Tree) -> Path | None:
    """The nearest folder above that an aggregate is of: a sweep may stand below another one."""
    roots = [root for sweep in tree.sweeps if folder.is_relative_to(root := aggregate_root(sweep.path))]
    return max(roots, key=lambda r: len(r.parts), default=None)


def _outside_trials(folder: Path) -> Path:
    return next((p.parent for p in (folder, *folder.parents) if p.name == "profile_runs"), folder)


def aggregate_root(path: Path) -> Path:
    """The folder of the sweep whose aggregate is at ``path``: above ``sweep_aggregate``, or ``aggregate/sweep_aggregate``."""
    folder = path.parent
    for name in ("sweep_aggregate", "aggregate"):
        folder = folder.parent if folder.name == name else folder
    return folder


def cell_parameters(folder: RunFolder) -> Mapping[str, object]:
    """What the ``run_config.json`` of a cell without a summary says about which cell it is."""
    config = folder.config or {}
    variation = config.get("variation")
    values = variation.get("values") if isinstance(variation, dict) else None
    if isinstance(values, dict) and values:
        return values
    return dict(flat(config.get("cfg") or config.get("user_config") or {}))
