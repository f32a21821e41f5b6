"""What a night is asked to do, where its folders are, and what decides whether a campaign is fitted anew."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from calib._version import __version__
from calib.files import sha256_bytes
from calib.nightly.campaign_task import RULING, code_digest
from calib.nightly.gather import within
from calib.nightly.job_config import Config, check_folders, read_config
from calib.nightly.record import CampaignNight, NightRecord
from calib.nightly.scan import ScannedCampaign

REPORTS = "reports"


@dataclass(frozen=True)
class Asked:
    """What one call of the job is asked to do differently."""

    since: dt.date | None = None
    workers: int = 1
    scheduler: str | None = None
    wait_s: float = 0.0


@dataclass(frozen=True)
class JobFolders:
    """The folders of a configuration."""

    config: Config
    base: Path

    @property
    def store(self) -> Path:
        return self.base / self.config.store

    @property
    def out(self) -> Path:
        return self.base / self.config.out

    @property
    def reports(self) -> Path:
        return self.out / REPORTS


def job_folders(path: Path) -> JobFolders:
    """The configuration at ``path`` and where its folders are.

    Raises
    ------
    NightlyError
        See `calib.nightly.job_config.read_config`.
    """
    config, base = read_config(path), path.resolve().parent
    check_folders(config, base, path)
    return JobFolders(config, base)


def fit_stamp(config: Config) -> str:
    """What decides how files become coefficients: the code, and the options of the fit."""
    return sha256_bytes(msgspec.json.encode([code_digest(RULING), __version__, msgspec.to_builtins(config.fit)]))


def fingerprint_of(seen: ScannedCampaign, stamp: str) -> str:
    """What decides whether a campaign is fitted anew: its files, and the code and options of the fit."""
    return sha256_bytes(f"{seen.fingerprint}|{stamp}".encode())


def nanoseconds_of(day: dt.date) -> int:
    """A day as nanoseconds since 1970, UTC."""
    return int(dt.datetime(day.year, day.month, day.day, tzinfo=dt.UTC).timestamp()) * 10**9


def gone_campaigns(
    last: NightRecord | None, seen: Mapping[str, ScannedCampaign], failed: Mapping[str, str]
) -> list[CampaignNight]:
    """Campaigns of the last night whose folder is not there any more; not those of a source that cannot be looked into."""
    before = last.campaigns if last else ()
    return [
        c for c in before
        if c.campaign not in seen and c.status != "gone" and not any(within(c.campaign, s) for s in failed)
    ]  # fmt: skip
