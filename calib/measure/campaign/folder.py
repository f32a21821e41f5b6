"""The files of a campaign folder: which there are, which entry covers each, and which none does."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath

from calib.errors import CampaignError, ContradictionError, UnknownTopologyError
from calib.measure.campaign.config import CONFIG_NAME, CampaignConfig
from calib.measure.campaign.reading import ReadUnits, read_units
from calib.measure.columns import COUNTS, LARGEST_COUNT
from calib.measure.readers.csv_table import read_table
from calib.measure.readers.discover import holds_results
from calib.measure.readers.read_run import ReadRun, UnreadableRun


def _with_engine(run: ReadRun | UnreadableRun, engine: Mapping[str, object]) -> ReadRun | UnreadableRun:
    """The run with its engine flags; what a side-car says of the engine wins over the campaign's general statement."""
    if isinstance(run, UnreadableRun):
        return run
    own = run.facts.get("engine")
    flags = {**engine, **(own if isinstance(own, dict) else {})}
    return replace(run, facts={**run.facts, "engine": flags}) if flags else run


def read_all(
    folder: Path, config: CampaignConfig, read: ReadUnits = read_units
) -> list[tuple[ReadRun | UnreadableRun, Mapping[str, object], str]]:
    """Every run, what its entry in campaign.toml and its folder name state, and where the entry is."""
    toml = folder / CONFIG_NAME
    found: list[tuple[ReadRun | UnreadableRun, Mapping[str, object], str]] = []
    for i, table in enumerate(config.tables):
        path = inside(folder, table.file, toml, f"tables[{i}].file")
        runs = read_table(path, file=table.file, columns=table.columns, ignore=table.ignore)
        found += [(run, {}, "") for run in runs]
    units = covered_units(folder, config)
    engines = [config.engine | entry.engine for entry in config.runs]
    for (_, stated, i), own in zip(units, read([path for path, _, _ in units], folder), strict=True):
        found += [(_with_engine(run, engines[i]), stated, f"runs[{i}]") for run in own]
    return found


def covered_units(folder: Path, config: CampaignConfig) -> list[tuple[Path, Mapping[str, object], int]]:
    """Every result file or folder that an entry covers, what entry and name state of it, and the entry's number.

    Raises
    ------
    CampaignError
        Two entries cover one result.
    ContradictionError
        Entry and name disagree.
    """
    toml = folder / CONFIG_NAME
    units: list[tuple[Path, Mapping[str, object], int]] = []
    covered: dict[Path, int] = {}
    above: dict[Path, int] = {}  # the folders that hold a covered result
    for i, entry in enumerate(config.runs):
        for path, numbers in folders_of(folder, entry.folder, toml, f"runs[{i}]"):
            parents = path.relative_to(folder).parents[:-1]
            others = (covered.get(path), above.get(path), *(covered.get(folder / p) for p in parents))
            if (other := next((o for o in others if o is not None), None)) is not None:
                raise CampaignError(
                    f"covers {path.relative_to(folder).as_posix()}, which runs[{other}] covers too", file=toml,
                    field=f"runs[{i}]", remedy="let one entry cover each result",
                )  # fmt: skip
            covered[path] = i
            above |= {folder / p: i for p in parents}
            stated = entry.given()
            for name, value in numbers.items():
                if stated.setdefault(name, value) != value:
                    raise ContradictionError(
                        f"says {name} = {stated[name]} and the folder name {path.name} says {value}",
                        file=toml, field=f"runs[{i}]", remedy="correct the one that is wrong",
                    )  # fmt: skip
            units.append((path, stated, i))
    return units


def folders_of(folder: Path, pattern: str, toml: Path, label: str) -> list[tuple[Path, dict[str, int]]]:
    """What lies below the campaign folder at a path that matches ``pattern``, with the numbers its placeholders stand for."""
    parts = re.split(r"\{(\w*)\}", pattern)
    if len(set(parts[1::2])) < len(parts[1::2]):
        raise CampaignError(
            "has a placeholder twice", file=toml, field=f"{label}.folder", value=pattern, remedy="use each one once"
        )
    expression = re.escape(parts[0])
    for name, text in zip(parts[1::2], parts[2::2], strict=True):
        if name not in COUNTS:
            raise CampaignError(
                "is not a placeholder", file=toml, field=f"{label}.folder", value="{" + name + "}",
                remedy=f"use one of {', '.join('{' + c + '}' for c in COUNTS)}",
            )  # fmt: skip
        expression += rf"(?P<{name}>[0-9]+)" + re.escape(text)
    candidates = [folder, *sorted(p for p in folder.rglob("*") if not p.is_symlink())]  # "." is the folder itself
    hits = [(p, m) for p in candidates if (m := re.fullmatch(expression, p.relative_to(folder).as_posix()))]
    if not hits:
        raise CampaignError(
            "matches no folder or file",
            file=toml,
            field=f"{label}.folder",
            value=pattern,
            remedy="correct the pattern",
        )
    found = [(p, {k: int(v) for k, v in m.groupdict().items()}) for p, m in hits]
    for path, numbers in found:
        for name, value in numbers.items():
            if not 1 <= value <= LARGEST_COUNT:
                raise UnknownTopologyError(
                    f"is {value} in the folder name {path.name}", file=toml, field=f"{label}.{name}",
                    remedy="rename the folder, or state the degree in the entry",
                )  # fmt: skip
    return found


def inside(folder: Path, name: str, toml: Path, field: str) -> Path:
    """The path of a file named in ``campaign.toml``; `CampaignError` where it leaves the folder or is not there."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        raise CampaignError(
            "leaves the campaign folder",
            file=toml,
            field=field,
            value=name,
            remedy="copy the file into the folder",
        )
    try:
        found = (folder / path).is_file()
    except (OSError, ValueError):  # a name too long, or with a NUL
        found = False
    if not found:
        raise CampaignError(
            "is not a file in the campaign folder",
            file=toml,
            field=field,
            value=name,
            remedy="write it with `calib breakdown CAMPAIGN --out FILE`"
            if field == "balance.file"
            else "correct the name",
        )
    return folder / path


def uncovered(folder: Path, config: CampaignConfig) -> list[tuple[str, str]]:
    """Folders with results that no entry covers, and links, which are not followed: (path, reason), by path.

    A run that nobody reads would be missed by nobody.
    """
    toml = folder / CONFIG_NAME
    covered = {path for i, e in enumerate(config.runs) for path, _ in folders_of(folder, e.folder, toml, f"runs[{i}]")}
    found: list[tuple[str, str]] = []
    for here, below, names in os.walk(folder):
        if folder in covered:
            names = []
        links = sorted(d for d in below if Path(here, d).is_symlink())
        found += [(Path(here, d).relative_to(folder).as_posix(), "is a link, which is not followed") for d in links]
        below[:] = sorted(d for d in below if not (d.startswith(".") or folder in covered or Path(here, d) in covered))
        files = [Path(here, name) for name in sorted(names) if Path(here, name) not in covered]
        if holds_results(files, root=folder):
            shown = Path(here).relative_to(folder).as_posix()
            found.append((shown, "holds results that no [[runs]] entry covers"))
            below[:] = []
    return sorted(found)
