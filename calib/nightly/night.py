"""The nightly job, step by step: find, read, screen, fit, compare, write; the same again does nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from calib._version import __version__
from calib.coefficients import Registry
from calib.errors import NightlyError, OutputError
from calib.files import SHORT, now_utc, sha256_bytes, user_name
from calib.nightly.alarm_decisions import judge
from calib.nightly.campaign_task import Outcome
from calib.nightly.gather import find, fit_campaigns, read_campaigns, with_failures, within
from calib.nightly.history import FITTED, entries
from calib.nightly.into_store import import_record, import_records, put_outcome
from calib.nightly.job_config import SETTINGS, Config
from calib.nightly.night_context import Situation, released_sets
from calib.nightly.outputs import contents
from calib.nightly.record import Ack, CampaignNight, CampaignStatus, NightRecord, read_acks, read_nights
from calib.nightly.scan import ScannedCampaign, changes
from calib.nightly.setup import (
    Asked,
    JobFolders,
    fingerprint_of,
    fit_stamp,
    gone_campaigns,
    job_folders,
    nanoseconds_of,
)
from calib.nightly.store.writer import CampaignRow, Stamp, Writer, open_writer
from calib.nightly.trends import trends
from calib.nightly.workers import choose
from calib.reporting import remove_torn, write_folder


@dataclass(frozen=True)
class Night:
    """What a night came to; ``new`` is False where everything was as the night before.

    ``record`` is None where there is no night yet. ``read`` counts the results that were really read.
    """

    record: NightRecord | None
    folder: Path | None
    new: bool
    read: int
    fitted: int
    failed_sources: Mapping[str, str]

    @property
    def alarms_open(self) -> int:
        """How many alarms nobody has acknowledged."""
        return sum(a.acknowledged is None for a in self.record.alarms) if self.record else 0


def run_night(path: Path, asked: Asked | None = None) -> Night:
    """Run the job of a configuration.

    Raises
    ------
    NightlyError
        The configuration or a record is unusable, or nothing at all could be calibrated.
    OutputError
        Another job is running, or something cannot be written; what was there is unchanged.
    """
    asked, at = asked or Asked(), job_folders(path)
    with open_writer(at.store, wait_s=asked.wait_s) as writer:
        night = _run(at, writer, asked)
        writer.clear_unused()
    _require_something(night, path)
    return night


def _run(at: JobFolders, writer: Writer, asked: Asked) -> Night:
    for folder in (at.out, at.reports):
        remove_torn(folder)
    records = read_nights(at.out)
    acks = read_acks(at.out)
    imported = import_records(writer, records, acks)
    found = find(at.config.results, at.base, at.store)
    stamp = fit_stamp(at.config)
    known = writer.campaigns()
    ready = {
        k: s for k, s in found.campaigns.items() if asked.since is None or s.newest_ns >= nanoseconds_of(asked.since)
    }
    last = records[-1][0] if records else None
    work = [
        s for k, s in ready.items()
        if k not in known or known[k].fingerprint != fingerprint_of(s, stamp) or not _recorded(last, k, known[k])
    ]  # fmt: skip
    released = tuple(c.digest for c in released_sets(at.config.registry, at.base))
    _require_registry(at, last)
    outcomes, read, died = _calibrate(at, writer, work, asked)
    sources = _sources(at.config, last, found.failed)
    gone = gone_campaigns(last, found.campaigns, found.failed)
    campaigns = _campaign_nights(writer, last, ready, outcomes, gone)
    state = _state(at.config, campaigns, released, acks, found.failed)
    if last is not None and last.state == state:
        if outcomes or imported or gone:
            _keep(writer, ready, outcomes, died, stamp, gone)
            writer.commit()
        return Night(last, at.out / last.folder, False, read, len(outcomes), found.failed)
    record = _record(at, [r for r, _ in records], campaigns, outcomes, state, released, acks, sources, found.failed)
    folder = _write(at, record, records)
    _keep(writer, ready, outcomes, died, stamp, gone)
    import_record(writer, record, sha256_bytes((folder / "record.json").read_bytes()))
    writer.commit()
    return Night(record, folder, True, read, len(outcomes), found.failed)


def _require_registry(at: JobFolders, last: NightRecord | None) -> None:
    """A registry that was there and is gone is not one where nothing is released; one that is not configured any more is."""
    if last is None or not last.released or at.config.registry is None:
        return
    folder = at.base / at.config.registry
    if not Registry.open(folder).entries:
        raise NightlyError(
            f"holds no release, and night {last.night} was compared with {last.released[0][:SHORT]}", file=folder,
            field="registry", value=at.config.registry, remedy="restore the registry, or correct its name",
        )  # fmt: skip


def _recorded(last: NightRecord | None, key: str, known: CampaignRow) -> bool:
    """Whether the last night's record holds what the store knows of a campaign; a store that was rebuilt may know more."""
    found = next((c for c in last.campaigns if c.campaign == key and c.status != "gone"), None) if last else None
    return found is not None and known.content in ("", found.content)


def _calibrate(
    at: JobFolders, writer: Writer, work: Sequence[ScannedCampaign], asked: Asked
) -> tuple[dict[str, Outcome], int, set[str]]:
    """Outcomes by campaign, how many results were read, and the campaigns that are to be tried again next time."""
    if not work:
        return {}, 0, set()
    workers = choose(asked.workers, asked.scheduler)
    parts, read, failed = read_campaigns(writer, work, workers)
    try:
        at.reports.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(
            f"cannot be written ({error.strerror or error}), and nothing was changed", file=at.reports,
            remedy="make it writable, or name another folder as out",
        ) from None  # fmt: skip
    outcomes = with_failures(fit_campaigns(work, parts, at.config, at.reports, workers), failed)
    died = {k for k, o in outcomes.items() if k in failed or (o.failure or "").endswith("each time")}
    return outcomes, read, died


def _sources(config: Config, last: NightRecord | None, failed: Mapping[str, str]) -> dict[str, str | None]:
    """The sources that had campaigns the night before: why one cannot be looked into now, None where it can."""
    before = [c.campaign for c in last.campaigns if c.status != "gone"] if last else []
    return {s: failed.get(s) for s in config.results if any(within(c, s) for c in before)}


def _campaign_nights(
    writer: Writer,
    last: NightRecord | None,
    seen: Mapping[str, ScannedCampaign],
    outcomes: Mapping[str, Outcome],
    gone: Sequence[CampaignNight],
) -> list[CampaignNight]:
    before = {c.campaign: c for c in last.campaigns if c.status != "gone"} if last else {}
    nights = {k: msgspec.structs.replace(c, status="unchanged", **_QUIET) for k, c in before.items()}
    nights |= {c.campaign: c for c in (last.campaigns if last else ()) if c.status == "gone" and c.campaign not in seen}
    for c in gone:
        nights[c.campaign] = msgspec.structs.replace(c, status="gone", failure="its folder is gone", **_QUIET)
    for key, outcome in outcomes.items():
        old = before.get(key)
        now = _night_of(writer, key, seen[key], outcome, old)
        same = old is not None and (old.content, old.rules, old.digest) == (now.content, now.rules, now.digest)
        nights[key] = msgspec.structs.replace(old, status="unchanged", **_QUIET) if same and old else now
    return [nights[k] for k in sorted(nights)]


_QUIET: dict[str, object] = {"new_files": 0, "changed_files": (), "gone_files": 0}


def _night_of(writer: Writer, key: str, seen: ScannedCampaign, o: Outcome, old: CampaignNight | None) -> CampaignNight:
    files = changes(seen.stamps, {n: s for n, (s, _) in writer.files(key).items()})
    content = sha256_bytes(msgspec.json.encode(sorted(o.inputs.items()))) if o.inputs else seen.fingerprint
    # A file that was only touched has the digest it had.
    digests = old.inputs if old else {}
    changed = tuple(n for n in files.changed if n not in digests or digests[n] != o.inputs.get(n))
    status: CampaignStatus = "new"
    if o.digest is None and o.runs is None:
        status = "failed"
    elif old is not None:
        status = "changed" if old.content != content else "refitted"
    return CampaignNight(
        campaign=key, name=o.name, status=status, content=content, rules=o.rules, revision=o.revision,
        runs=0 if o.runs is None else len(o.runs), digest=o.digest, report=o.report, failure=_short(o.failure, seen.folder),
        set_aside=sum(f.verdict == "REJECT" for f in o.findings), warnings=sum(f.verdict == "WARN" for f in o.findings),
        new_files=len(files.new), changed_files=changed, gone_files=len(files.gone), inputs=dict(o.inputs),
    )  # fmt: skip


def _short(failure: str | None, folder: Path) -> str | None:
    """A message without where on this machine the folder is: the same data give the same record anywhere."""
    return failure.replace(f"{folder}/", "").replace(str(folder), folder.name) if failure else None


def _state(
    config: Config,
    campaigns: Sequence[CampaignNight],
    released: Sequence[str],
    acks: Sequence[Ack],
    failed: Mapping[str, str],
) -> str:
    rows = [(c.campaign, c.content, c.rules, c.revision, c.digest, c.failure) for c in campaigns]
    settings = {k: v for k, v in msgspec.to_builtins(config).items() if k in SETTINGS}
    return sha256_bytes(
        msgspec.json.encode([rows, released, [a.id for a in acks], settings, sorted(failed)], order="sorted")
    )


def _record(
    at: JobFolders,
    records: Sequence[NightRecord],
    campaigns: Sequence[CampaignNight],
    outcomes: Mapping[str, Outcome],
    state: str,
    released: Sequence[str],
    acks: Sequence[Ack],
    sources: Mapping[str, str | None],
    failed: Mapping[str, str],
) -> NightRecord:
    number = records[-1].night + 1 if records else 1
    new = [c.campaign for c in campaigns if c.status in FITTED and c.digest and c.campaign in outcomes]
    record = NightRecord(
        night=number, at=now_utc(), by=user_name(), calib_version=__version__, config=msgspec.to_builtins(at.config),
        state=state, released=tuple(released), campaigns=tuple(campaigns),
        series=tuple({"campaign": k, **row} for k in new for row in outcomes[k].series),
        points=tuple({"campaign": k, **row} for k in new for row in outcomes[k].points),
        alarms=(), said=(), acks=tuple(acks), sources=dict(failed),
    )  # fmt: skip
    tonight = entries([record])
    situation = Situation(
        night=number, history=[*entries(records), *tonight], tonight=tonight,
        released=released_sets(at.config.registry, at.base), before=records[-1].alarms if records else (), acks=acks,
        limits=at.config.alarms, reports=at.reports, campaigns=campaigns,
        calibrated_before=frozenset(c.campaign for c in records[-1].campaigns if c.digest and c.status != "gone")
        if records else frozenset(),
        sources=sources,
    )  # fmt: skip
    alarms, said = judge(situation)
    return msgspec.structs.replace(record, alarms=tuple(alarms), said=tuple(said)).sealed()


def _write(at: JobFolders, record: NightRecord, records: Sequence[tuple[NightRecord, str]]) -> Path:
    folder = at.out / record.folder
    words = trends([*(r for r, _ in records), record], at.config.alarms)
    if not write_folder(folder, contents(record, words)):
        raise OutputError("exists and is not overwritten", file=folder, remedy="move it away, and run again")
    return folder


def _keep(
    writer: Writer,
    seen: Mapping[str, ScannedCampaign],
    outcomes: Mapping[str, Outcome],
    died: set[str],
    stamp: str,
    gone: Sequence[CampaignNight],
) -> None:
    for key, outcome in outcomes.items():
        fingerprint = "" if key in died else fingerprint_of(seen[key], stamp)
        stamps: Mapping[str, Stamp] = seen[key].stamps
        put_outcome(writer, key, outcome, fingerprint, stamps)
    for c in gone:
        writer.drop_campaign(c.campaign)


def _require_something(night: Night, path: Path) -> None:
    if night.record is not None and night.alarms_open == 0 and not any(c.digest for c in night.record.campaigns):
        failed = [f"{c.campaign} ({c.failure})" for c in night.record.campaigns if c.failure]
        failed += [f"{source} ({why})" for source, why in night.failed_sources.items()]
        first = f": {failed[0]}" if failed else ": there is no folder with a campaign.toml"
        more = f", and {len(failed) - 1} more" if len(failed) > 1 else ""
        raise NightlyError(
            f"nothing could be calibrated{first}{more}", file=path,
            remedy=f"{night.folder}/report.md lists every reason" if night.folder else "correct the data",
        )  # fmt: skip
