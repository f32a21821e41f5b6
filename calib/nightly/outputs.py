"""The files of a night that a team can post as they are. Links are relative to the night's folder."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any
from xml.sax.saxutils import escape, quoteattr

import msgspec

from calib.files import SHORT
from calib.nightly.record import RECORD_NAME, AlarmRecord, CampaignNight, NightRecord

SHOWN = 20  # rows of a list in report.md
KINDS = {
    "moved": "coefficient moved", "mape": "error grew", "mape_candidate": "candidate is worse", "verdict": "verdict changed",
    "version": "version not covered", "series_lost": "series lost", "points_lost": "points lost",
    "campaign_lost": "campaign lost", "source_lost": "source cannot be read",
}  # fmt: skip


def open_alarms(record: NightRecord) -> list[AlarmRecord]:
    """The alarms nobody has acknowledged."""
    return [a for a in record.alarms if a.acknowledged is None]


def contents(record: NightRecord, changes: Iterable[str]) -> dict[str, bytes]:
    """Every file of a night by name; ``changes`` are the change points in words."""
    said = tuple(changes)
    return {
        RECORD_NAME: record.to_json(),
        "summary.json": msgspec.json.format(msgspec.json.encode(summary(record, said)), indent=1) + b"\n",
        "report.md": render_report(record, said).encode("utf-8", "backslashreplace"),
        "junit.xml": render_junit(record).encode("utf-8", "backslashreplace"),
        "pager.txt": (render_pager(record) + "\n").encode("utf-8", "backslashreplace"),
    }


def summary(record: NightRecord, changes: tuple[str, ...] = ()) -> dict[str, Any]:
    """A night for machines."""
    return {
        "format": "calib-nightly-summary", "format_version": 1, "night": record.night, "at": record.at,
        "digest": record.digest, "folder": record.folder, "released": record.released,
        "alarms_open": len(open_alarms(record)),
        "alarms": [msgspec.to_builtins(a) for a in record.alarms],
        "campaigns": [
            {k: v for k, v in msgspec.to_builtins(c).items() if k != "inputs"} | {"files": _links(c)}
            for c in record.campaigns
        ],
        "failures": [{"campaign": c.campaign, "reason": c.failure} for c in record.campaigns if c.failure],
        "sources": record.sources,
        "comparisons": record.said, "change_points": changes,
    }  # fmt: skip


def _links(c: CampaignNight) -> dict[str, str]:
    if not c.report:
        return {}
    base = f"../reports/{c.report}"
    return {"coefficients": f"{base}/coefficients-v1.json", "report": f"{base}/report.html"}


def _failed(record: NightRecord) -> list[CampaignNight]:
    """The campaigns that are there and could not be used; one that is gone is an alarm's affair, open or acknowledged."""
    return [c for c in record.campaigns if c.failure and c.status != "gone"]


def render_pager(record: NightRecord) -> str:
    """One line."""
    alarms, failed, lost = open_alarms(record), _failed(record), len(record.sources)
    first = ""
    if alarms:
        a = alarms[0]
        first = f": {KINDS.get(a.kind, a.kind)}, {a.series}, {a.text} [{a.id}]"
    counts = f"{len(alarms)} open alarm{'' if len(alarms) == 1 else 's'}"
    more = f", {len(failed)} of {len(record.campaigns)} campaigns failed" if failed else ""
    more += f", {lost} source{'' if lost == 1 else 's'} not read" if lost else ""
    return f"calib {record.config['name']} night {record.night}: {counts}{first}{more}; {record.folder}/report.md"


def render_report(record: NightRecord, changes: tuple[str, ...] = ()) -> str:
    """The night in Markdown, for a pull request or a chat."""
    alarms = open_alarms(record)
    known = [a for a in record.alarms if a.acknowledged is not None]
    head = f"{len(alarms)} open alarm{'' if len(alarms) == 1 else 's'}" if alarms else "no open alarm"
    lines = [f"# {_md(str(record.config['name']))}, night {record.night}: {head}", ""]
    lines += [f"{record.at}, calib {record.calib_version}, record `{record.digest[:SHORT]}`."]
    lines += _section("Open alarms", [_alarm(a) for a in alarms])
    lines += _section("Acknowledged", [f"{_alarm(a)} Acknowledged: {_md(str(a.acknowledged))}" for a in known])
    lines += _section("Sources that cannot be read", [f"**{_md(s)}**: {_md(w)}" for s, w in record.sources.items()])
    failed = _failed(record)
    lines += _section("Not calibrated", [f"**{_md(c.campaign)}**: {_md(str(c.failure))}" for c in failed])
    new = [c for c in record.campaigns if c.status not in ("unchanged", "failed", "gone")]
    lines += _section("Campaigns of this night", [_campaign(c, record) for c in new])
    lines += _section("Files changed under the same name", [
        f"{_md(c.campaign)}: {', '.join(_md(f) for f in c.changed_files[:5])}"
        f"{f' and {len(c.changed_files) - 5} more' if len(c.changed_files) > 5 else ''}"
        for c in record.campaigns if c.changed_files
    ])  # fmt: skip
    lines += _section("Comparisons", [_md(s) for s in record.said])
    lines += _section("Change points", [_md(s) for s in changes])
    unchanged = sum(c.status == "unchanged" for c in record.campaigns)
    lines += [
        "",
        f"{unchanged} of {len(record.campaigns)} campaigns unchanged. Silence an alarm with `calib ack ID --why`.",
    ]
    return "\n".join(lines) + "\n"


def _section(title: str, items: list[str]) -> list[str]:
    if not items:
        return []
    more = [f"- and {len(items) - SHOWN} more in `summary.json`"] if len(items) > SHOWN else []
    return ["", f"## {title}", "", *(f"- {i}" for i in items[:SHOWN]), *more]


def _alarm(a: AlarmRecord) -> str:
    return f"`{a.id}` **{KINDS.get(a.kind, a.kind)}**, {_md(a.series)}: {_md(a.text)}; since night {a.opened}."


def _campaign(c: CampaignNight, record: NightRecord) -> str:
    text = f"**{_md(c.campaign)}** {c.status}: {c.runs} runs, {c.set_aside} set aside, {c.warnings} warnings"
    series = {(r["backend"], r["backend_version"], r["model"], r["precision"]): r["verdict"]
              for r in record.series if r["campaign"] == c.campaign and r["model"]}  # fmt: skip
    if series:
        text += f"; {', '.join(f'{n} {v}' for v, n in sorted(Counter(series.values()).items()))}"
    links = _links(c)
    if links:
        text += f"; coefficients [`{str(c.digest)[:SHORT]}`]({links['coefficients']}), [report]({links['report']})"
    return text


def render_junit(record: NightRecord) -> str:
    """The night as JUnit XML: one case a campaign, which is an error where it failed, and one an alarm."""
    cases, failed = [], _failed(record)
    for c in record.campaigns:
        body = f"<error message={_attribute(c.failure)}/>" if c in failed else ""
        cases.append(_case("calib.campaigns", c.campaign, body))
    for a in record.alarms:
        said = _attribute(f"{a.series}: {a.text}")
        body = (
            f"<failure message={said}/>"
            if a.acknowledged is None
            else f"<skipped message={_attribute(a.acknowledged)}/>"
        )
        cases.append(_case("calib.nightly.alarms", f"{a.kind} {a.series} {a.id}", body))
    errors, failures = len(failed), len(open_alarms(record))
    skipped = len(record.alarms) - failures
    counts = f'tests="{len(cases)}" failures="{failures}" errors="{errors}" skipped="{skipped}" time="0"'
    name = f"name={_attribute(str(record.config['name']))} timestamp={_attribute(record.at.rstrip('Z'))}"
    inner = "\n".join(cases)
    head = '<?xml version="1.0" encoding="UTF-8"?>\n<testsuites>\n'
    return f"{head}<testsuite {name} {counts}>\n{inner}\n</testsuite>\n</testsuites>\n"


def _case(group: str, name: str, body: str) -> str:
    return f'<testcase classname="{escape(group)}" name={_attribute(name)} time="0">{body}</testcase>'


def _attribute(text: str | None) -> str:
    """Quoted text without characters that XML 1.0 has no place for."""
    return quoteattr(re.sub(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "?", text or ""))


def _md(text: str) -> str:
    """Text that Markdown shows as it is."""
    text = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_\[\]|#~$])", r"\\\1", text)
