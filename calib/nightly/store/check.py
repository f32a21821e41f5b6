"""``calib store check``: whether the store, the raw files and the nights still agree."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from calib.errors import CalibError, StoreError, printable
from calib.files import read_bytes, sha256_bytes
from calib.nightly.store.parts import is_whole, read_part
from calib.nightly.store.reader import open_store


@dataclass(frozen=True)
class Problem:
    """One thing that does not agree, in words."""

    what: str
    file: str
    reason: str


def check_store(
    folder: Path, locate: Callable[[str], Path | None], nights: Path
) -> tuple[list[Problem], dict[str, int]]:
    """Compare digests and counts of a store with what lies on the disk.

    Parameters
    ----------
    locate
        Campaign key -> its folder, None where its source is not configured or not at hand.
    nights
        The folder of the nights.

    Returns
    -------
    problems : list of Problem
    counts : dict
        How many files, parts and nights were compared.
    """
    problems: list[Problem] = []
    counts = {"files": 0, "parts": 0, "nights": 0}
    with open_store(folder, runs=False) as store:  # a damaged part is what is looked for
        campaigns = store.sql("SELECT campaign, runs, part, part_sha256 FROM campaigns ORDER BY campaign")
        caches = store.sql("SELECT cache FROM campaigns WHERE cache IS NOT NULL ORDER BY cache")
        files = store.sql("SELECT campaign, path, sha256 FROM files WHERE sha256 IS NOT NULL ORDER BY ALL")
        recorded = store.sql("SELECT folder, record_sha256 FROM nights ORDER BY night")
    for campaign, runs, part, digest in campaigns.itertuples(index=False):
        if isinstance(part, str):
            counts["parts"] += 1
            problems += _check_part(folder / part, str(digest), int(runs or 0), campaign)
    for name in caches["cache"]:
        counts["parts"] += 1
        if not is_whole(folder / name):
            problems.append(Problem("part", Path(name).name, "is missing, or has another content than was written"))
    for campaign, path, digest in files.itertuples(index=False):
        root = locate(campaign)
        if root is None:
            problems.append(Problem("file", f"{campaign}/{path}", "its campaign folder is not at hand"))
            continue
        counts["files"] += 1
        problems += _compare("file", root / path, f"{campaign}/{path}", digest)
    for name, digest in recorded.itertuples(index=False):
        counts["nights"] += 1
        problems += _compare("night", nights / name / "record.json", f"{name}/record.json", digest)
    return problems, counts


def _check_part(path: Path, digest: str, runs: int, campaign: str) -> list[Problem]:
    found = _compare("part", path, path.name, digest)
    if found:
        return found
    try:
        rows = read_part(path).num_rows
    except StoreError as error:
        return [Problem("part", path.name, error.problem)]
    return [] if rows == runs else [Problem("part", path.name, f"holds {rows} runs, and {campaign} has {runs}")]


def _compare(what: str, path: Path, shown: str, digest: str) -> list[Problem]:
    try:
        seen = sha256_bytes(read_bytes(path, limit=2**40))
    except CalibError as error:
        return [Problem(what, printable(shown), error.problem)]
    return (
        []
        if seen == digest
        else [Problem(what, printable(shown), "has another content than was read (SHA-256 differs)")]
    )
