"""From outcomes and records into the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from calib.files import sha256_bytes
from calib.nightly.campaign_task import Outcome
from calib.nightly.record import Ack, NightRecord
from calib.nightly.store.writer import CampaignRow, Stamp, Writer

_HISTORY = ("nights", "coefficient_sets", "coefficients", "accuracy", "alarms")


def put_outcome(writer: Writer, key: str, outcome: Outcome, fingerprint: str, stamps: Mapping[str, Stamp]) -> None:
    """The runs, findings and files of a campaign."""
    known = writer.campaigns().get(key)
    content = sha256_bytes(msgspec.json.encode(sorted(outcome.inputs.items()))) if outcome.inputs else ""
    row = CampaignRow(
        name=outcome.name, fingerprint=fingerprint, content=content,
        runs=0 if outcome.runs is None else len(outcome.runs), cache=known.cache if known else None,
        failure=outcome.failure,
    )  # fmt: skip
    files = {name: (stamp, outcome.inputs.get(name)) for name, stamp in stamps.items()}
    writer.put_campaign(key, row, runs=outcome.runs, findings=outcome.findings, files=files)


def import_records(writer: Writer, records: Sequence[tuple[NightRecord, str]], acks: Sequence[Ack]) -> bool:
    """Bring the history in line with the records of the nights, which are the truth; whether anything was missing."""
    have = writer.connection.execute("SELECT night, record_sha256 FROM nights ORDER BY night").fetchall()
    want = [(r.night, sha) for r, sha in records]
    known = writer.connection.execute("SELECT id FROM acks ORDER BY made_at, id").fetchall()
    missing = have != want or len(known) != len(acks)
    if have != want:
        for table in _HISTORY:
            writer.connection.execute(f"DELETE FROM {table}")
        for record, sha in records:
            import_record(writer, record, sha)
    if len(known) != len(acks):
        writer.connection.execute("DELETE FROM acks")
        writer.insert("acks", [(a.id, a.at, a.by, a.why) for a in acks])
    return missing


def import_record(writer: Writer, record: NightRecord, sha: str) -> None:
    """One night into the tables of the history."""
    n = record.night
    writer.insert("nights", [(n, record.digest, record.at, record.folder, sha)])
    made = [c for c in record.campaigns if c.digest and c.status not in ("unchanged", "gone")]
    writer.insert(
        "coefficient_sets", [(n, c.campaign, c.digest, f"reports/{c.report}", c.rules, c.revision) for c in made]
    )
    series = ("campaign", "system", "backend", "backend_version", "model", "precision", "parameter", "value",
              "stated_stderr", "chi_square", "dof", "n", "verdict")  # fmt: skip
    writer.insert("coefficients", [(n, *(r[k] for k in series)) for r in record.series])
    points = ("campaign", "system", "backend", "backend_version", "model", "precision", "tp", "pp", "concurrency", "isl",
              "osl", "measured", "predicted", "rel_error", "baseline_rel_error", "k_model", "explained")  # fmt: skip
    writer.insert("accuracy", [(n, *(r.get(k) for k in points)) for r in record.points])
    writer.insert(
        "alarms",
        [(n, a.id, a.kind, a.scope, a.series, a.state, a.opened, a.text, a.acknowledged) for a in record.alarms],
    )
