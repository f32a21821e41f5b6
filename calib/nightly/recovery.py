"""The store from nothing, a night again from its record, and whether the two still agree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from calib.errors import NightlyError, StoreError
from calib.files import read_bytes, sha256_bytes
from calib.nightly.campaign_task import calibrate_folder
from calib.nightly.gather import find, fit_campaigns, folder_of_campaign, read_campaigns, with_failures
from calib.nightly.into_store import import_records, put_outcome
from calib.nightly.job_config import FitSection
from calib.nightly.record import read_acks, read_nights
from calib.nightly.setup import Asked, fingerprint_of, fit_stamp, job_folders
from calib.nightly.store.check import Problem, check_store
from calib.nightly.store.database import DATABASE_NAME
from calib.nightly.store.lock import StoreLock
from calib.nightly.store.reader import open_store
from calib.nightly.store.writer import open_writer
from calib.nightly.workers import choose


@dataclass(frozen=True)
class Rebuilt:
    """How many campaigns and nights the new store has, and the sources that could not be looked into: name -> why."""

    campaigns: int
    nights: int
    failed_sources: Mapping[str, str]


def rebuild_store(path: Path, asked: Asked | None = None) -> Rebuilt:
    """Forget what the store knows and build it from raw files and the records of the nights; readers see the old one until then.

    Raises
    ------
    NightlyError, OutputError
        As `calib.nightly.night.run_night`.
    """
    asked, at = asked or Asked(), job_folders(path)
    records, acks = read_nights(at.out), read_acks(at.out)  # before anything is deleted
    with StoreLock(at.store, asked.wait_s):
        try:
            with open_store(at.store, runs=False):
                pass
        except StoreError:  # nothing that could be read meanwhile
            (at.store / DATABASE_NAME).unlink(missing_ok=True)
    with open_writer(at.store, wait_s=asked.wait_s) as writer:
        writer.clear()
        found, stamp = find(at.config.results, at.base, at.store), fit_stamp(at.config)
        work, workers = list(found.campaigns.values()), choose(asked.workers, asked.scheduler)
        parts, _, failed = read_campaigns(writer, work, workers, commits=False)
        outcomes = with_failures(fit_campaigns(work, parts, at.config, at.reports, workers), failed)
        for key, outcome in outcomes.items():
            seen = found.campaigns[key]
            put_outcome(writer, key, outcome, "" if key in failed else fingerprint_of(seen, stamp), seen.stamps)
        import_records(writer, records, acks)
        writer.commit()
        writer.clear_unused()
    return Rebuilt(len(outcomes), len(records), found.failed)


def check_night_store(path: Path) -> tuple[list[Problem], dict[str, int]]:
    """`calib.nightly.store.check.check_store` for a configuration."""
    at = job_folders(path)
    return check_store(at.store, lambda key: folder_of_campaign(key, at.config.results, at.base, at.store), at.out)


@dataclass(frozen=True)
class Replayed:
    """A campaign of a night, calibrated again: the digest recorded, the one it has now, and why it could not be done."""

    campaign: str
    recorded: str
    now: str | None
    problem: str | None


def replay_night(path: Path, night: int) -> list[Replayed]:
    """Calibrate a night's campaigns again from the very inputs it recorded; nothing is written.

    Raises
    ------
    NightlyError
        There is no such night.
    """
    at = job_folders(path)
    record = next((r for r, _ in read_nights(at.out) if r.night == night), None)
    if record is None:
        raise NightlyError(
            "is not on record", field="night", value=night, remedy="give one of those in the folder of nights"
        )
    options = msgspec.convert(record.config["fit"], FitSection).options()
    found = []
    for c in record.campaigns:
        if c.digest is None or c.status == "gone":
            continue
        folder = folder_of_campaign(c.campaign, at.config.results, at.base, at.store)
        problem, now = ("its folder is not at hand", None) if folder is None else (_differs(folder, c.inputs), None)
        if problem is None and folder is not None:
            outcome = calibrate_folder(str(folder), None, options, None)
            now, problem = outcome.digest, outcome.failure
        if problem is None and now != c.digest:
            problem = f"another digest: night made by calib {record.calib_version}"
        found.append(Replayed(c.campaign, c.digest, now, problem))
    return found


def _differs(folder: Path, inputs: dict[str, str]) -> str | None:
    for name, digest in inputs.items():
        path = folder / name
        if not path.is_file():
            return f"input {name} is gone"
        if sha256_bytes(read_bytes(path)) != digest:
            return f"input {name} has changed"
    return None
