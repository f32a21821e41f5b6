"""Every run below a folder, whatever tool wrote it.

aiperf's folders are read as a whole, since a run there is several files and a sweep says which cells should exist; every
other tool's runs are files, each known by its content. Links to folders are not followed, and the order of a listing does not
matter.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

from calib.errors import CampaignError, printable
from calib.measure.readers.aiperf.read import read_runs
from calib.measure.readers.aiperf.summary import is_summary, parse_summary
from calib.measure.readers.formats import READERS, SUFFIXES, Reader, read_file
from calib.measure.readers.read_run import ReadRun, UnreadableRun

# Files beside an aiperf summary, which hold no run of any tool and may be gigabytes; by the names that aiperf gives.
_SIDE_FILE = re.compile(
    r"(inputs|(.*_)?outputs|(.*_)?server_metrics(_export)?|(.*_)?timeslices|profile_export_aiperf\w*|deployment)\.json"
    r"|(profile_export(_raw|_network_latency)?|(.*_)?gpu_telemetry(_export)?|(.*_)?server_metrics(_export)?)\.jsonl"
)
# A packed summary lies outside the folder that aiperf's own reader looks at, so it is read by itself.
_PACKED_AIPERF = Reader(
    "aiperf",
    is_summary,
    lambda document, *, file, digest: [parse_summary(document, file=file, digest=digest)],
)
ALL = (*READERS, _PACKED_AIPERF)
PACKED = (".gz", ".zst")
NOTHING = "holds no result of a tool that can be read: the run failed, or it is another tool's"


def read_path(path: Path, *, root: Path) -> list[ReadRun | UnreadableRun]:
    """The runs of a file or below a folder, sorted, with paths relative to ``root``; one `UnreadableRun` where there is none.

    Raises
    ------
    UnknownTopologyError
        A file states a parallelism degree that is not a positive whole number.
    """
    if path.is_file():
        found = _read_file(path, root)
    else:
        others = [run for file in _files(path) for run in _read_file(file, root)]
        theirs = {r.source_file for r in others}
        # What aiperf's reader could not read may be another tool's, and what no tool wrote is told once.
        own = [r for r in read_runs(path, root=root) if r.source_file not in theirs]
        found = others + [r for r in own if not (isinstance(r, UnreadableRun) and r.source_file == _name(path, root))]
        if not found:
            found = [r for r in own if isinstance(r, UnreadableRun) and "no aiperf summary" not in r.reason]
    found = [_nameable(r) for r in found] or [_nameable(UnreadableRun(_name(path, root), 0, NOTHING))]
    return sorted(found, key=lambda r: (r.source_file, r.source_row, isinstance(r, UnreadableRun) and r.reason))


def _nameable(run: ReadRun | UnreadableRun) -> ReadRun | UnreadableRun:
    """The run, unless its path is no text: it could not be written down, nor found again."""
    if run.source_file.isascii() or not any("\ud800" <= c <= "\udfff" for c in run.source_file):
        return run
    return UnreadableRun(printable(run.source_file), run.source_row, "has a name that is not UTF-8; rename it")


def holds_results(files: Iterable[Path], *, root: Path) -> bool:
    """Whether any of ``files`` is what a tool wrote, runs that failed included."""
    return any(_is_result(path, root) for path in files if path.name.endswith(SUFFIXES) and path.is_file())


def _is_result(path: Path, root: Path) -> bool:
    if path.name.startswith("profile_export"):
        return True
    try:
        return any(isinstance(r, ReadRun) for r in read_file(path, root=root, readers=ALL))
    except CampaignError:
        return True  # some tool's, if an impossible one


def _read_file(path: Path, root: Path) -> list[ReadRun | UnreadableRun]:
    packed = path.name.endswith(PACKED)
    if (
        packed
        and _SIDE_FILE.fullmatch(path.name.rsplit(".", 1)[0])
        and not path.name.startswith("profile_export_aiperf")
    ):
        return [UnreadableRun(_name(path, root), 0, "is packed; files beside an aiperf summary are read unpacked only")]
    try:
        return read_file(path, root=root, readers=ALL if packed else READERS)
    except CampaignError as error:
        if type(error) is not CampaignError:  # a topology that cannot be is no matter of one run
            raise
        return [UnreadableRun(_name(path, root), 0, error.problem)]


def _files(folder: Path) -> Iterator[Path]:
    for here, folders, names in os.walk(folder):
        folders[:] = sorted(f for f in folders if not f.startswith("."))
        for name in sorted(names):
            if _may_hold_runs(name):
                yield Path(here, name)


def _may_hold_runs(name: str) -> bool:
    """Whether a file may be another tool's result, or is packed, which aiperf's own reader does not look into."""
    if not name.endswith(SUFFIXES) or name.startswith("."):
        return False
    return name.endswith(PACKED) or not _SIDE_FILE.fullmatch(name)


def _name(path: Path, root: Path) -> str:
    return PurePosixPath(path.relative_to(root)).as_posix()
