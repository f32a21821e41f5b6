"""The files of aiperf runs below a folder, told apart by content: any of them may be renamed by an export prefix.

Nothing here looks at what a run measured. Aggregates, slices of time and server metrics have no metric of a run at their
top level and so are no summaries; the copies below ``phases/`` are named by their manifest. Links to folders are not
followed, since a loop must not hang the job; one that leads out of the folder is reported.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from calib.errors import CampaignError
from calib.files import read_bytes, sha256_bytes
from calib.measure.readers.aiperf.summary import is_summary, load_document
from calib.measure.readers.read_run import UnreadableRun

SIZE_LIMIT = 32 * 2**20
READY = ".aiperf_results_ready.json"
MANIFEST = "phase_manifest.json"
# Data sets, answers and scrapes: large, and never a run.
PASSED_OVER = ("inputs.json", "outputs.json", "server_metrics.json", "server_metrics_export.json")


@dataclass(frozen=True)
class Document:
    """A JSON file as read."""

    path: Path
    digest: str
    content: Mapping[str, Any]


@dataclass
class RunFolder:
    """One folder that holds something of a run.

    ``ready`` is what the marker file says, None where there is none; ``config`` is ``run_config.json``, which only the
    cells of sweeps and multi-runs have.
    """

    path: Path
    summaries: list[Document] = field(default_factory=list)
    records: list[Path] = field(default_factory=list)
    config: Mapping[str, Any] | None = None
    ready: bool | None = None
    has_log: bool = False

    def records_of(self, summary: Path) -> Path | None:
        """The per-request file that belongs to a summary: of its name, else the only one beside the only summary."""
        stems = (summary.stem, summary.stem.removesuffix("_aiperf"))
        for path in self.records:
            if path.stem in stems:
                return path
        return self.records[0] if len(self.records) == len(self.summaries) == 1 else None


@dataclass
class Tree:
    """Everything found below the folder ``top``."""

    top: Path
    folders: dict[Path, RunFolder] = field(default_factory=dict)
    sweeps: list[Document] = field(default_factory=list)
    problems: list[UnreadableRun] = field(default_factory=list)
    phase_copies: set[Path] = field(default_factory=set)

    def folder(self, path: Path) -> RunFolder:
        """The entry of ``path``, made where it is new."""
        return self.folders.setdefault(path, RunFolder(path))


def scan(folder: Path, root: Path) -> Tree:
    """Find the files; the result does not depend on the order in which the disk lists them."""
    tree = Tree(folder)

    def not_listed(error: OSError) -> None:
        shown = Path(error.filename).relative_to(root).as_posix()
        tree.problems.append(UnreadableRun(shown, 0, f"cannot be listed ({error.strerror})"))

    for here, folders, names in os.walk(folder, onerror=not_listed):
        links = [name for name in folders if Path(here, name).is_symlink()]
        for name in sorted(links):
            if not Path(here, name).resolve().is_relative_to(folder.resolve()):
                shown = Path(here, name).relative_to(root).as_posix()
                tree.problems.append(UnreadableRun(shown, 0, "is a link out of this folder, which is not followed"))
        folders[:] = sorted(f for f in folders if not f.startswith("."))
        for name in sorted(names):
            _look_at(Path(here, name), root, tree)
    for path in [p for p, f in tree.folders.items() if f.has_log and p.name == "logs"]:
        del tree.folders[path]
        tree.folder(path.parent).has_log = True
    tree.folders = dict(sorted(tree.folders.items()))
    _drop_phase_copies(tree, root)
    return tree


def _look_at(path: Path, root: Path, tree: Tree) -> None:
    if path.name == READY:
        tree.folder(path.parent).ready = _is_ready(path)
    elif path.name == "aiperf.log":
        tree.folder(path.parent).has_log = True
    elif path.name.startswith("."):
        return
    elif path.suffix in (".json", ".jsonl") and not path.is_file():  # a pipe would block for ever
        tree.problems.append(UnreadableRun(path.relative_to(root).as_posix(), 0, "is a broken link or no regular file"))
    elif path.suffix == ".jsonl":
        if _has_records(path):
            tree.folder(path.parent).records.append(path)
        elif path.name == "profile_export.jsonl":
            shown = path.relative_to(root).as_posix()
            tree.problems.append(
                UnreadableRun(shown, 0, "holds no records of requests, though it is the file for them")
            )
    elif path.suffix == ".json":
        _look_at_json(path, root, tree)


def _look_at_json(path: Path, root: Path, tree: Tree) -> None:
    shown = path.relative_to(root).as_posix()
    try:
        if path.name.endswith(PASSED_OVER) and path.stat().st_size > SIZE_LIMIT:
            return
        data = read_bytes(path, limit=SIZE_LIMIT)
        content = load_document(data)
    except CampaignError as error:
        tree.problems.append(UnreadableRun(shown, 0, error.problem))
    except OSError as error:
        tree.problems.append(UnreadableRun(shown, 0, f"cannot be read ({error.strerror or error})"))
    except (ValueError, RecursionError) as error:
        tree.problems.append(UnreadableRun(shown, 0, f"is not JSON ({error})"))
    else:
        if not isinstance(content, dict):
            return
        document = Document(path, sha256_bytes(data), content)
        if is_summary(content):
            tree.folder(path.parent).summaries.append(document)
        elif content.get("aggregation_type") == "sweep":
            tree.sweeps.append(document)
        elif isinstance(content.get("cfg"), dict) or isinstance(content.get("user_config"), dict):
            tree.folder(path.parent).config = content
        elif path.name == MANIFEST:
            tree.phase_copies |= _named_copies(path.parent, content)


def _named_copies(folder: Path, manifest: Mapping[str, Any]) -> set[Path]:
    phases = manifest.get("phases")
    named = [p.get("metrics_json") for p in phases if isinstance(p, dict)] if isinstance(phases, list) else []
    return {folder / str(name) for name in named if name}


def _drop_phase_copies(tree: Tree, root: Path) -> None:
    """Take out the summaries of single phases, which repeat or precede what the run's own summary states.

    One whose run has no summary is reported: whether it was a warm-up is then not known to fit the run.
    """
    for folder in list(tree.folders.values()):
        is_phase = folder.path.parent.name == "phases" and not folder.records and not folder.has_log
        copies = [s for s in folder.summaries if s.path in tree.phase_copies or is_phase]
        if not copies:
            continue
        folder.summaries = [s for s in folder.summaries if s not in copies]
        run = tree.folders.get(folder.path.parent.parent)
        if run is None or not run.summaries:
            tree.problems += [
                UnreadableRun(s.path.relative_to(root).as_posix(), 0, "is of one phase of a run that has no summary")
                for s in copies
            ]
        if not (folder.summaries or folder.records):
            del tree.folders[folder.path]


def _is_ready(path: Path) -> bool:
    try:
        content = msgspec.json.decode(read_bytes(path, limit=2**16))
    except (CampaignError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return True  # it is written last and with mode 0600: that it is there is what it says
    return not isinstance(content, dict) or content.get("ready") is not False


def _has_records(path: Path) -> bool:
    """Whether the first line is of a per-request file: not telemetry, and not raw payloads, which repeat the metadata."""
    try:
        with path.open("rb") as stream:
            line = stream.readline(2**20)
    except OSError:
        return True  # reading it will say why not
    if path.name == "profile_export.jsonl":  # its own name is enough: the first line may be the damaged one
        return bool(line)
    return b'"metadata"' in line and b'"request_start_ns"' in line and b'"metrics"' in line
