"""The cells that a sweep should have and has not.

What a sweep asked for stands in its aggregate; one that was interrupted wrote none, so then its command line is read. The
rest of a sweep of which only a part was asked for is not missing.
"""

from __future__ import annotations

import itertools
import math
import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from calib.measure.readers.aiperf.cells import Cell, aggregate_root, aggregated_in, sweep_root
from calib.measure.readers.aiperf.settings import flat
from calib.measure.readers.aiperf.tree import Document, Tree
from calib.measure.readers.read_run import UnreadableRun

MOST_CELLS = 10_000
ARTIFACTS = ("--artifact-dir", "--artifact-directory", "--output-artifact-dir")
OPTIONS = {"--concurrency": "concurrency", "--request-rate": "rate"}  # options that take a list, for sweeps cut short


def missing_cells(
    cells: Iterable[Cell], failed: Mapping[Path, Mapping[str, object]], tree: Tree, root: Path
) -> Iterator[UnreadableRun]:
    """The cells that a sweep should have and has not.

    Parameters
    ----------
    cells
        What was read.
    failed
        Folder of a cell that is reported already -> its parameters.
    """
    cells = list(cells)
    cells = [c for c in cells if "stale" not in c.run.facts] or cells  # an old cell must not stand in for a new one
    for sweep in tree.sweeps:
        place = aggregate_root(sweep.path)
        if not place.is_relative_to(tree.top):
            continue  # a part of the sweep was asked for
        inside = [c.parameters for c in cells if aggregated_in(c.folder, tree) == place]
        inside += [p for folder, p in failed.items() if aggregated_in(folder, tree) == place]
        shown = sweep.path.relative_to(root).as_posix()
        yield from _missing(_asked(sweep), inside, shown, trials=_trials(sweep))
    cut: dict[str, list[Cell]] = {}
    for cell in cells:
        if cell.sweep and aggregated_in(cell.folder, tree) is None:
            cut.setdefault(cell.group, []).append(cell)
    for members in cut.values():  # a sweep that was interrupted writes no aggregate: its command says what was asked
        place = _commanded_root(members[0]) or sweep_root([c.folder for c in members], tree)
        if not place.is_relative_to(tree.top):
            continue
        inside = [c.parameters for c in members]
        inside += [p for folder, p in failed.items() if folder.is_relative_to(place)]
        yield from _missing(_commanded(members[0]), inside, place.relative_to(root).as_posix())


def _missing(
    asked: Mapping[str, list[Any]], there: list[Mapping[str, object]], shown: str, trials: int = 1
) -> Iterator[UnreadableRun]:
    unknown = [n for n in asked if not any(_lookup(p, n) for p in there)] if there else []
    if unknown:
        yield UnreadableRun(shown, 0, f"sweeps {', '.join(unknown)}, which no cell states: missing cells are not known")
        return
    if (size := math.prod(len(values) for values in asked.values())) > MOST_CELLS:
        yield UnreadableRun(shown, 0, f"asks for {size} cells, which is too many to look for")
        return
    for values in itertools.product(*asked.values()) if asked else ():
        wanted = dict(zip(asked, values, strict=True))
        named = ", ".join(f"{n}={v}" for n, v in wanted.items())
        found = sum(all(v in _lookup(p, n) for n, v in wanted.items()) for p in there)
        if not found:
            yield UnreadableRun(shown, 0, f"the cell {named} of the sweep is missing: it failed or was not run")
        elif found < trials:
            reason = f"{trials - found} of {trials} trials of the cell {named} are missing: they failed or were not run"
            yield UnreadableRun(shown, 0, reason)


def _trials(sweep: Document) -> int:
    metadata = sweep.content.get("metadata")
    trials = metadata.get("num_trials_per_value") if isinstance(metadata, dict) else None
    return trials if isinstance(trials, int) else 1


def _lookup(parameters: Mapping[str, object], name: str) -> list[object]:
    """Values of the parameters whose path is ``name`` or ends in it: a sweep shortens its names where they differ."""
    return [v for path, v in parameters.items() if path == name or path.endswith(f".{name}")]


def _asked(sweep: Document) -> dict[str, list[Any]]:
    metadata = sweep.content.get("metadata")
    parameters = metadata.get("sweep_parameters") if isinstance(metadata, dict) else None
    return {
        str(p["name"]): p["values"]
        for p in (parameters if isinstance(parameters, list) else [])
        if isinstance(p, dict) and "name" in p and isinstance(p.get("values"), list)
    }


def _commanded(cell: Cell) -> dict[str, list[Any]]:
    """The lists of values that the command swept."""
    asked: dict[str, list[Any]] = {}
    for option, values in _options(cell):
        if option in OPTIONS and "," in values:
            try:
                asked[OPTIONS[option]] = [float(v) if "." in v else int(v) for v in values.split(",")]
            except ValueError:
                continue
    return asked


def _commanded_root(cell: Cell) -> Path | None:
    """The folder of the whole command, as many levels above the cell's as the command's own paths say."""
    own = PurePosixPath(str(dict(flat(cell.document["input_config"])).get("artifacts.dir") or ""))
    for option, value in _options(cell):
        if option in ARTIFACTS and own != PurePosixPath(value) and own.is_relative_to(value):
            levels = len(own.relative_to(value).parts)
            return cell.folder.parents[levels - 1] if levels <= len(cell.folder.parents) else None
    return None


def _options(cell: Cell) -> Iterable[tuple[str, str]]:
    try:
        return itertools.pairwise(shlex.split(str(cell.info.get("cli_command") or "")))
    except ValueError:  # an open quotation mark
        return ()
