"""What a night would do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from calib.nightly.compare import released_sets
from calib.nightly.config import SETTINGS
from calib.nightly.gather import find
from calib.nightly.record import Record, read_acks, read_records
from calib.nightly.scan import changes
from calib.store import Stamp, open_store
from calib.store.database import DATABASE_NAME

if TYPE_CHECKING:
    from calib.nightly.night import Asked, _Place


def preview_of(at: _Place, asked: Asked) -> dict[str, object]:
    """Campaigns that are new, changed or gone, with their files, against the store."""
    from calib.nightly.night import _fingerprint, _ns, fit_stamp, gone_campaigns

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
        if (asked.since and seen.newest_ns < _ns(asked.since)) or known.get(key) == _fingerprint(seen, stamp):
            continue
        new = changes(seen.stamps, files.get(key, {}))
        status = "new" if key not in known else "changed" if (new.new or new.changed or new.gone) else "refitted"
        listed.append(
            {
                "campaign": key, "status": status, "new_files": len(new.new), "changed_files": list(new.changed),
                "gone_files": len(new.gone),
            }
        )  # fmt: skip
    records = read_records(at.out)
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


def _also(at: _Place, last: Record | None, failed: Mapping[str, str]) -> list[str]:
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
