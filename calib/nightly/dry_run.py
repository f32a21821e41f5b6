"""What a night would do."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from calib.nightly.gather import find
from calib.nightly.job_config import SETTINGS
from calib.nightly.night_context import released_sets
from calib.nightly.record import NightRecord, read_acks, read_nights
from calib.nightly.scan import changes
from calib.nightly.setup import Asked, job_folders
from calib.nightly.store.database import DATABASE_NAME
from calib.nightly.store.reader import open_store
from calib.nightly.store.writer import Stamp

if TYPE_CHECKING:
    from calib.nightly.setup import Asked, JobFolders


def preview(path: Path, asked: Asked | None = None) -> dict[str, object]:
    """What a night would do, without doing it: nothing is written, and URLs are not fetched.

    Raises
    ------
    NightlyError
        As `run_night`.
    """
    pass

    return preview_of(job_folders(path), asked or Asked())


def preview_of(at: JobFolders, asked: Asked) -> dict[str, object]:
    """Campaigns that are new, changed or gone, with their files, against the store."""
    from calib.nightly.setup import fingerprint_of, fit_stamp, gone_campaigns, nanoseconds_of

    known: dict[str, str] = {}
    files: dict[str, dict[str, Stamp]] = {}
    if (at.store / DATABASE_NAME).exists():
        with open_store(at.store) as store:
            rows = store.table("campaigns")[["campaign", "fingerprint"]]
            known = dict(zip(rows["campaign"], rows["fingerprint"], strict=True))
            for f in store.table("files").itertuples(index=False):
                files.setdefault(str(f.campaign), {})[str(f.path)] = Stamp(int(str(f.size)), int(str(f.mtime_ns)))
    found = find(at.config.results, at.base, at.store, fetch=False)
    stamp, listed = fit_stamp(at.config), []
    for key, seen in found.campaigns.items():
        if (asked.since and seen.newest_ns < nanoseconds_of(asked.since)) or known.get(key) == fingerprint_of(
            seen, stamp
        ):
            continue
        new = changes(seen.stamps, files.get(key, {}))
        status = "new" if key not in known else "changed" if (new.new or new.changed or new.gone) else "refitted"
        listed.append(
            {
                "campaign": key, "status": status, "new_files": len(new.new), "changed_files": list(new.changed),
                "gone_files": len(new.gone),
            }
        )  # fmt: skip
    records = read_nights(at.out)
    last = records[-1][0] if records else None
    lost = sorted(c.campaign for c in gone_campaigns(last, found.campaigns, found.failed))
    also = _also(at, last, found.failed)
    return {
        "would_read": listed,
        "gone": lost,
        "unchanged": len(found.campaigns) - len(listed),
        "failed": dict(found.failed),
        "also": also,
        "would_write": bool(listed or lost or also or last is None),
    }


def _also(at: JobFolders, last: NightRecord | None, failed: Mapping[str, str]) -> list[str]:
    """What else than results makes another night of it."""
    if last is None:
        return []
    now = msgspec.to_builtins(at.config)
    said = []
    if last.released != tuple(c.digest for c in released_sets(at.config.registry, at.base)):
        said.append("what is released has changed")
    if [a.id for a in last.acks] != [a.id for a in read_acks(at.out)]:
        said.append("alarms were acknowledged")
    said += [f"[{name}] has changed" for name in SETTINGS if last.config.get(name) != now[name]]
    if set(last.sources) != set(failed):
        said.append("other sources cannot be read")
    return said
