"""Reading and fitting of the campaigns that changed, spread over workers; what was read before is taken from the store."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from calib.errors import CalibError, MissingExtraError, NightlyError, printable
from calib.files import read_bytes
from calib.measure import CONFIG_NAME, covered_units, parse_config
from calib.nightly.campaign_task import READING, Outcome, calibrate_folder, code_digest
from calib.nightly.job_config import Config
from calib.nightly.read_cache import read_batch
from calib.nightly.remote import is_url, mirror_of, sync
from calib.nightly.scan import ScannedCampaign, scan_campaign, unit_signatures
from calib.nightly.store.writer import Writer
from calib.nightly.workers import Died, Workers

BATCH = 16  # results a task
EVERY_S = 10.0  # between two commits of what was read: each copies the database
LARGE = 8 * 2**20  # bytes of files, from which a result is a task of its own


@dataclass(frozen=True)
class FoundCampaigns:
    """The campaign folders of all sources, and the sources, or files behind URLs, that could not be looked into: name -> why."""

    campaigns: Mapping[str, ScannedCampaign]
    failed: Mapping[str, str]


def find(sources: Sequence[str], base: Path, store: Path, *, fetch: bool = True) -> FoundCampaigns:
    """Look through every source; URLs are mirrored first, where ``fetch`` is True."""
    campaigns: dict[str, ScannedCampaign] = {}
    failed: dict[str, str] = {}
    for source in sources:
        try:
            root = root_of(source, base, store)
            if is_url(source) and fetch:
                failed |= {f"{source.rstrip('/')}/{name}": why for name, why in sync(source, root).left_out.items()}
            for seen in scan_campaign(source, root, failed):
                if seen.key in campaigns:
                    failed[f"{seen.key} (again)"] = (
                        "two folders bear this name, and one of them is left out; rename one"
                    )
                campaigns.setdefault(seen.key, seen)
        except (NightlyError, MissingExtraError) as error:
            failed[source] = f"{error.problem}; {error.remedy}" if error.remedy else error.problem
    return FoundCampaigns(dict(sorted(campaigns.items())), failed)


def root_of(source: str, base: Path, store: Path) -> Path:
    """The folder of a source on this machine."""
    return mirror_of(store, source) if is_url(source) else Path(os.path.normpath(base / source))


def folder_of_campaign(key: str, sources: Sequence[str], base: Path, store: Path) -> Path | None:
    """The folder of a campaign by its key; None where no configured source has it."""
    for source in sorted(sources, key=len, reverse=True):
        if within(key, source):
            folder = root_of(source, base, store) / key[len(source.rstrip("/")) :].lstrip("/")
            return folder if folder.is_dir() else None
    return None


def within(key: str, source: str) -> bool:
    """Whether a campaign is of a source."""
    name = source.rstrip("/")
    return key == name or key.startswith(f"{name}/")


def read_campaigns(
    writer: Writer, work: Sequence[ScannedCampaign], workers: Workers, *, commits: bool = True
) -> tuple[dict[str, Path], int, dict[str, str]]:
    """Read what changed of the campaigns; returns the cache part of each, how many results were read, and who failed.

    What was read is committed every few seconds, so that a job that is killed need not begin again.
    """
    code = code_digest(READING)
    signatures: dict[str, dict[str, str]] = {}
    tasks: list[tuple[str, list[str]]] = []
    owners: list[str] = []
    missing: dict[str, int] = {}
    parts: dict[str, Path] = {}
    for seen in work:
        signatures[seen.key] = wanted = _wanted(seen, code)
        part, known = writer.signatures(seen.key)
        batches = list(_batches(seen, [u for u, s in wanted.items() if known.get(u) != s]))
        if part is not None and not batches and known.keys() <= wanted.keys():
            parts[seen.key] = part
            continue
        missing[seen.key] = len(batches)
        tasks += [(str(seen.folder), batch) for batch in batches]
        owners += [seen.key] * len(batches)
    read: dict[str, dict[str, tuple[str, bytes]]] = {key: {} for key in missing}
    failed: dict[str, str] = {}

    def keep(key: str) -> None:
        """What was read before and now as the campaign's new part; only now is the former one loaded."""
        before, wanted = writer.units(key), signatures[key]
        units = {u: before[u] for u, s in wanted.items() if u in before and before[u][0] == s} | read.pop(key)
        if units:
            parts[key] = writer.put_units(key, units)
            if commits:
                writer.commit(every_s=EVERY_S)

    for number, result in workers.map(read_batch, tasks):
        key = owners[number]
        missing[key] -= 1
        if isinstance(result, Died):
            failed[key] = f"{key}: {', '.join(tasks[number][1][:3])} could not be read: {result.reason}"
        else:
            read[key] |= {unit: (signatures[key][unit], payload) for unit, payload in result}
        if not missing[key]:
            keep(key)
    for key in list(read):
        keep(key)
    if missing and commits:
        writer.commit()
    return parts, sum(len(batch) for _, batch in tasks), failed


def _wanted(seen: ScannedCampaign, code: str) -> dict[str, str]:
    """The results of a campaign with the signature of each; none where its campaign.toml is not usable."""
    try:
        config = parse_config(read_bytes(seen.folder / CONFIG_NAME), file=seen.folder / CONFIG_NAME)
        units = [p.relative_to(seen.folder).as_posix() for p, _, _ in covered_units(seen.folder, config)]
    except CalibError:  # said when the campaign is put together
        return {}
    names = {u for u in units if printable(u) == u}  # the others are read each night, and said
    return unit_signatures(sorted(names), seen.stamps, code)


def _batches(seen: ScannedCampaign, units: Sequence[str]) -> Iterator[list[str]]:
    sizes: dict[str, int] = dict.fromkeys(units, 0)
    for name, stamp in seen.stamps.items():
        at = name
        while at:
            if at in sizes:
                sizes[at] += max(0, stamp.size)
            at = at.rpartition("/")[0]
    batch: list[str] = []
    for unit in units:
        if sizes[unit] >= LARGE:
            yield [unit]
            continue
        batch.append(unit)
        if len(batch) == BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def fit_campaigns(
    work: Sequence[ScannedCampaign], parts: Mapping[str, Path], config: Config, reports: Path | None, workers: Workers
) -> dict[str, Outcome]:
    """Screen and fit each campaign, by key; a campaign whose worker died is failed."""
    out, options, figures = str(reports) if reports else None, config.fit.options(), config.figures
    tasks = [(str(s.folder), str(parts[s.key]) if s.key in parts else None, options, out, figures) for s in work]
    found: dict[str, Outcome] = {}
    for number, result in workers.map(calibrate_folder, tasks):
        key = work[number].key
        if isinstance(result, Died):
            found[key] = Outcome(failure=f"{key}: could not be fitted: {result.reason}")
        else:
            found[key] = result
    return dict(sorted(found.items()))


def with_failures(outcomes: Mapping[str, Outcome], failed: Mapping[str, str]) -> dict[str, Outcome]:
    """Outcomes with the results that could not be read counted as failures of their campaign."""
    return {k: replace(o, failure=o.failure or failed[k]) if k in failed else o for k, o in outcomes.items()}
