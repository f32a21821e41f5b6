"""Which campaign folders there are, and which of their files changed, from names, sizes and times alone."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from calib.errors import NightlyError, printable
from calib.files import sha256_bytes
from calib.measure import CONFIG_NAME
from calib.nightly.store.writer import Stamp

DEEPEST = 40  # folders below a campaign that are looked into


@dataclass(frozen=True)
class ScannedCampaign:
    """A campaign folder: its key (``source/path``), where it is, and the stamp of every file in it."""

    key: str
    folder: Path
    stamps: Mapping[str, Stamp]

    @property
    def fingerprint(self) -> str:
        """SHA-256 of names, sizes and times."""
        rows = [(name, s.size, s.mtime_ns) for name, s in sorted(self.stamps.items())]
        return sha256_bytes(msgspec.json.encode(rows))

    @property
    def newest_ns(self) -> int:
        """The time of its newest file [ns]."""
        return max((s.mtime_ns for s in self.stamps.values()), default=0)


def scan_campaign(source: str, root: Path, left_out: dict[str, str] | None = None) -> Iterator[ScannedCampaign]:
    """Every folder at or below ``root`` that holds a ``campaign.toml``, in the order of their names; links are not followed.

    Links to campaigns, and folders of that name, are put into ``left_out`` with the reason.

    Raises
    ------
    NightlyError
        ``root`` is not a folder.
    """
    left_out = {} if left_out is None else left_out
    if not root.is_dir():
        raise NightlyError(
            "is not a folder", field="results", value=source, remedy="create it, or correct the configuration"
        )
    for here, below, names in os.walk(root):
        below[:] = sorted(d for d in below if not d.startswith("."))
        for name in below:
            at = printable(f"{source.rstrip('/')}/{(Path(here) / name).relative_to(root).as_posix()}")
            if name == CONFIG_NAME:
                left_out[at] = "is a folder and no file; rename it"
            elif os.path.islink(os.path.join(here, name)) and os.path.exists(os.path.join(here, name, CONFIG_NAME)):
                left_out[at] = "is a link to a campaign, and links are not followed; move the folder here"
        if CONFIG_NAME in names:
            folder = Path(here)
            below[:] = []
            inside = folder.relative_to(root).as_posix()
            key = source.rstrip("/") if inside == "." else f"{source.rstrip('/')}/{inside}"
            yield ScannedCampaign(printable(key), folder, stamps(folder))


def stamps(folder: Path) -> dict[str, Stamp]:
    """The stamp of everything below ``folder`` but hidden folders, by path relative to it."""
    found: dict[str, Stamp] = {}
    todo = [(str(folder), "", 0)]
    while todo:
        here, prefix, depth = todo.pop()
        try:
            with os.scandir(here) as entries:
                for entry in entries:
                    name = f"{prefix}{entry.name}"
                    if entry.is_dir(follow_symlinks=False):
                        if depth < DEEPEST and not entry.name.startswith("."):
                            todo.append((entry.path, f"{name}/", depth + 1))
                        continue
                    status = entry.stat(follow_symlinks=False)
                    regular = stat.S_ISREG(status.st_mode)
                    found[printable(name)] = Stamp(status.st_size if regular else -1, status.st_mtime_ns)
        except OSError:  # unreadable, or gone meanwhile: the reader says so
            found[printable(prefix) or "."] = Stamp(-1, 0)
    return found


@dataclass(frozen=True)
class Changes:
    """Files of one campaign against what the store knows, by name."""

    new: tuple[str, ...]
    changed: tuple[str, ...]
    gone: tuple[str, ...]


def changes(now: Mapping[str, Stamp], before: Mapping[str, Stamp]) -> Changes:
    """What is new, what has another size or time under the same name, and what is gone."""
    return Changes(
        new=tuple(sorted(now.keys() - before.keys())),
        changed=tuple(sorted(n for n in now.keys() & before.keys() if now[n] != before[n])),
        gone=tuple(sorted(before.keys() - now.keys())),
    )


def unit_signatures(units: Iterable[str], seen: Mapping[str, Stamp], code: str) -> dict[str, str]:
    """What each result depends on, as one digest: its files, or those beside it where it is one file, and the readers' code."""
    wanted = set(units)
    own: dict[str, list[tuple[str, int, int]]] = {u: [] for u in wanted}
    beside: dict[str, list[str]] = {}
    for unit in wanted:
        if unit in seen:
            beside.setdefault(unit.rpartition("/")[0], []).append(unit)
    for name in sorted(seen):
        row = (name, seen[name].size, seen[name].mtime_ns)
        parent = name.rpartition("/")[0]
        for unit in beside.get(parent, ()):
            # aiperf's files belong together; any other tool's result is a file of its own.
            if (
                name == unit
                or (parent and len(beside[parent]) == 1)
                or ".aiperf" in name
                or name.startswith("profile_export")
            ):
                own[unit].append(row)
        while parent:
            if parent in own:
                own[parent].append(row)
            parent = parent.rpartition("/")[0]
    return {unit: sha256_bytes(msgspec.json.encode((code, rows))) for unit, rows in own.items()}
