"""What the result files of a folder tell about their deployment, and which ``[[runs]]`` entries would cover them.

The parts of `infer` that look; nothing is written here. A claim is one thing that one source says about one run.
"""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from calib.errors import CampaignError
from calib.files import read_bytes
from calib.measure.campaign.reading import learn
from calib.measure.campaign.topology import is_side_car, plain_name
from calib.measure.readers.csv_table import KNOWN, parse_table
from calib.measure.readers.discover import read_path
from calib.measure.readers.hints import Hint
from calib.measure.readers.read_run import ReadRun, UnreadableRun
from calib.measure.readers.side_files import path_hints

NAMED = ("tp", "pp", "dp")  # degrees, which names of folders and files may tell
FIELDS = (
    "model", "precision", "backend", "backend_version", "system", "gpus", "tp", "pp", "dp", "replicas", "isl", "osl",
)  # fmt: skip
HEADER_LIMIT = 2**16
_DEGREES = re.compile(r"(?<![a-z0-9])(?:(?:tp|pp|dp)[-=]?[0-9]{1,9})+(?![a-z0-9])")
_LOAD = re.compile(r"(?<![a-z0-9])(?:concurrency|conc|c)[-=]?([0-9]{1,9})(?![a-z0-9])")
# Folders that tools and people make for the points of one sweep, and for its trials.
_CELL = re.compile(
    r"((concurrency|conc|c|rate|request[-_]rate|isl|osl|trial|run|repeat)[-_=]*\d+(\.\d+)?[-_]*)+|profile_runs|phases|profiling",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Claim:
    """What one source says of a field; ``states`` where calib takes it from there, so that nothing need be written."""

    field: str
    value: object
    where: str
    states: bool


@dataclass(frozen=True, eq=False)
class RunsEntry:
    """One ``[[runs]]`` entry to be: a path, or a pattern of paths, with the runs below it; a table where it is a CSV."""

    folder: str
    placeholders: tuple[str, ...]
    runs: tuple[ReadRun, ...]

    def claims(self, run: ReadRun) -> tuple[Claim, ...]:
        """What is said of a run; the entry's own placeholders state what they stand for."""
        said = (replace(c, states=True) if c.field in self.placeholders and c.where.startswith("the name") else c
                for c in claims_of(run))  # fmt: skip
        return tuple(said)


@dataclass(frozen=True, eq=False)
class TableFile:
    """A CSV whose columns are, in part, those of the run table; ``runs`` where it has figures that calib can take."""

    file: str
    unknown: tuple[str, ...]
    runs: tuple[ReadRun, ...]
    problem: str = ""


@dataclass(frozen=True)
class Sighted:
    """What is in a folder: entries, tables, what could not be read, and remarks in words."""

    entries: tuple[RunsEntry, ...]
    tables: tuple[TableFile, ...]
    unreadable: tuple[UnreadableRun, ...]
    remarks: tuple[str, ...]


def look(folder: Path) -> Sighted:
    """Everything that can be read below ``folder``, grouped into entries."""
    read = [learn(run, folder) for run in read_path(folder, root=folder)]
    units: dict[PurePosixPath, list[ReadRun]] = {}
    for run in (r for r in read if isinstance(r, ReadRun)):
        units.setdefault(_unit(run), []).append(run)
    for path in sorted(units, key=lambda p: len(p.parts), reverse=True):  # the outermost covers what lies below it
        if outer := [p for p in path.parents if p in units]:
            units[outer[-1]] += units.pop(path)
    nameless = [str(p) for p in units if set("{}") & set(str(p))]
    entries = _entries({p: runs for p, runs in units.items() if str(p) not in nameless})
    remarks = [f"{p} has a brace in its name, which campaign.toml cannot name: rename it" for p in nameless]
    unreadable = tuple(r for r in read if isinstance(r, UnreadableRun) and r.source_file != ".")
    return Sighted(entries, tuple(_tables(folder)), unreadable, tuple(remarks))


def claims_of(run: ReadRun) -> tuple[Claim, ...]:
    """What the result file, the files beside it and the names above it say of a run."""
    found = [Claim(f, run.stated[f], run.source_file, True) for f in FIELDS if run.stated.get(f) is not None]
    found += [
        Claim(h.field, h.value, f"{h.file} {h.key}", is_side_car(h, run))
        for h in _hints(run, "hints") if h.kind == "equal" and h.field in FIELDS
    ]  # fmt: skip
    found += [Claim(h.field, h.value, f"the {h.key}", False) for h in _hints(run, "path_hints")]
    return tuple(found)


def gpus_seen(run: ReadRun) -> int | None:
    """How many GPUs the telemetry of a run lists, used or not; None where there is none."""
    seen = [h.value for h in _hints(run, "hints") if h.kind == "at_least" and h.field == "gpus"]
    return max((v for v in seen if isinstance(v, int)), default=None)


def agree(claims: Iterable[Claim]) -> bool:
    """Whether all claims about one field say the same."""
    return len({plain_name(c.value, c.field) for c in claims}) < 2


def _hints(run: ReadRun, fact: str) -> tuple[Hint, ...]:
    hints = run.facts.get(fact, ())
    return hints if isinstance(hints, tuple) else ()


def _unit(run: ReadRun) -> PurePosixPath:
    """The path that an entry names to cover a run: down to the last name that tells a degree, else the sweep's folder."""
    path = PurePosixPath(run.source_file)
    aiperf = run.stated.get("tool") == "aiperf"
    inner = path.parent if aiperf else path
    names = {h.key.removeprefix("name ") for h in path_hints(str(inner))}
    deepest = max((i for i, part in enumerate(inner.parts) if part in names), default=-1)
    if deepest >= 0:
        return PurePosixPath(*inner.parts[: deepest + 1])
    if not aiperf:
        return path
    while inner.parts and _CELL.fullmatch(inner.name):
        inner = inner.parent
    return inner


def _entries(units: Mapping[PurePosixPath, list[ReadRun]]) -> tuple[RunsEntry, ...]:
    """One entry a pattern; paths of their own where a name in the pattern says something that another source denies."""
    groups: dict[tuple[str, tuple[str, ...]], list[PurePosixPath]] = {}
    for path in sorted(units):
        groups.setdefault(_pattern(path, units[path]), []).append(path)
    found = []
    for (pattern, placeholders), paths in groups.items():
        if all(_trusted(placeholders, units[p]) for p in paths):
            found.append(RunsEntry(pattern, placeholders, tuple(r for p in paths for r in units[p])))
        else:
            found += [RunsEntry(str(p), (), tuple(units[p])) for p in paths]
    return tuple(sorted(found, key=lambda e: e.folder))


def _trusted(fields: tuple[str, ...], runs: Iterable[ReadRun]) -> bool:
    return all(agree(c for c in claims_of(run) if c.field == f) for run in runs for f in fields)


def _pattern(path: PurePosixPath, runs: list[ReadRun]) -> tuple[str, tuple[str, ...]]:
    """The path with placeholders for the degrees in its names, and for a concurrency that the results confirm."""
    hints = {h.field: h.key.removeprefix("name ") for h in path_hints(str(path))}
    loads = {run.stated.get("concurrency") for run in runs}
    used: list[str] = []
    parts = []
    for part in path.parts:
        plain_part = part.lower().replace("_", "-")
        cuts: list[tuple[int, int, str]] = []
        if len(plain_part) == len(part):  # a letter whose small form is longer would shift what is cut
            for group in _DEGREES.finditer(plain_part):
                for m in re.finditer(r"([a-z]+)[-=]?([0-9]+)", group[0]):
                    if hints.get(m[1]) == part and m[1] not in used:
                        cuts.append((group.start() + m.start(2), group.start() + m.end(2), m[1]))
                        used.append(m[1])
            stated = [m for m in _LOAD.finditer(plain_part) if loads == {int(m[1])}]
            if len(stated) == 1 and "concurrency" not in used:
                cuts.append((*stated[0].span(1), "concurrency"))
                used.append("concurrency")
        for start, end, name in sorted(cuts, reverse=True):
            part = f"{part[:start]}{{{name}}}{part[end:]}"
        parts.append(part)
    return "/".join(parts) or ".", tuple(used)


def _tables(folder: Path) -> Iterable[TableFile]:
    for here, below, names in os.walk(folder):
        below[:] = sorted(d for d in below if not d.startswith(".") and not Path(here, d).is_symlink())
        for name in sorted(names):
            path = Path(here, name)
            plain_name = not path.is_symlink() and path.is_file()  # links are not followed, and a pipe would never end
            if (
                plain_name
                and name.lower().endswith(".csv")
                and not name.startswith(".")
                and (found := _table(path, folder))
            ):
                yield found


def _table(path: Path, folder: Path) -> TableFile | None:
    """The CSV at ``path``, unless it has no column that tells of pipelines or throughput."""
    file = path.relative_to(folder).as_posix()
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            header = [n.strip() for n in next(csv.reader([stream.readline(HEADER_LIMIT)]), [])]
    except (OSError, UnicodeDecodeError, csv.Error):
        return None
    if not {"tp", "pp", "output_tokens_per_s"} & set(header):
        return None
    unknown = tuple(n for n in header if n not in KNOWN)
    if not {"output_tokens_per_s", "efficiency"} & set(header):
        return TableFile(file, unknown, (), "has no column output_tokens_per_s, nor efficiency")
    try:
        rows = parse_table(read_bytes(path), file=file, columns={}, ignore=unknown)
    except CampaignError as error:
        return TableFile(file, unknown, (), f"{error.field}: {error.problem}" if error.field else error.problem)
    return TableFile(file, unknown, tuple(r for r in rows if isinstance(r, ReadRun)))
