"""The record of a night: everything it used and everything it found, in one file that is never changed."""

from __future__ import annotations

import fcntl
import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec

from calib.errors import NightlyError, OutputError, printable
from calib.files import SHORT, decode_problem, not_valid, now_utc, read_bytes, sha256_bytes, user_name

RECORD_NAME = "record.json"
ACKS_NAME = "acks.jsonl"
CampaignStatus = Literal["new", "changed", "unchanged", "refitted", "failed", "gone"]


class _Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    pass


class CampaignNight(_Record, frozen=True, kw_only=True):
    """A campaign folder on one night.

    ``content`` is the digest of everything that was read of it; ``report`` is the folder of its coefficient file beside
    the nights.
    """

    campaign: str
    name: str
    status: CampaignStatus
    content: str
    rules: str = ""
    revision: str = ""
    runs: int = 0
    set_aside: int = 0
    warnings: int = 0
    digest: str | None = None
    report: str | None = None
    failure: str | None = None
    new_files: int = 0
    changed_files: tuple[str, ...] = ()
    gone_files: int = 0
    inputs: dict[str, str] = {}


class AlarmRecord(_Record, frozen=True, kw_only=True):
    """An alarm as it stood at the end of a night; ``acknowledged`` is the reason that was given."""

    id: str
    kind: str
    scope: str
    series: str
    state: str
    opened: int
    text: str
    acknowledged: str | None = None


class Ack(_Record, frozen=True, kw_only=True):
    """Somebody knows of an alarm: who, when, why, and after which night."""

    id: str
    night: int
    at: str
    by: str
    why: str


class NightRecord(_Record, frozen=True, kw_only=True):
    """A night. ``state`` is the digest of all that decides its outcome: with the same state there is nothing to do.

    ``sources`` are those that could not be looked into, and files behind URLs that were left out: name -> why.
    """

    format: Literal["calib-night"] = "calib-night"
    format_version: Literal[1] = 1
    night: int
    digest: str = ""
    at: str
    by: str
    calib_version: str
    config: dict[str, Any]
    state: str
    released: tuple[str, ...]
    campaigns: tuple[CampaignNight, ...]
    series: tuple[dict[str, Any], ...]
    points: tuple[dict[str, Any], ...]
    alarms: tuple[AlarmRecord, ...]
    said: tuple[str, ...]
    acks: tuple[Ack, ...]
    sources: dict[str, str] = {}

    def sealed(self) -> NightRecord:
        """The record with its digest, which leaves out who and when."""
        content = msgspec.to_builtins(self)
        for name in ("digest", "at", "by"):
            del content[name]
        if not self.sources:  # as it was before there was such a field
            del content["sources"]
        return msgspec.structs.replace(self, digest=sha256_bytes(msgspec.json.encode(content, order="sorted")))

    @property
    def folder(self) -> str:
        """The name of the night's folder."""
        return f"{self.night:04d}-{self.at[:10]}-{self.digest[:SHORT]}"

    def to_json(self) -> bytes:
        """The file's bytes."""
        return msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n"


def read_nights(out: Path) -> list[tuple[NightRecord, str]]:
    """Every night in ``out`` in order, with the SHA-256 of its file.

    Raises
    ------
    NightlyError
        A record is damaged, or two nights have one number.
    """
    found = []
    for folder in sorted(out.glob("[0-9][0-9][0-9][0-9]*-????-??-??-????????????")):
        path = folder / RECORD_NAME
        data = read_bytes(path, kind=NightlyError)
        record = parse_record(data, path)
        found.append((record, sha256_bytes(data)))
    found.sort(key=lambda x: x[0].night)
    for (a, _), (b, _) in itertools.pairwise(found):
        if a.night == b.night:
            raise NightlyError(
                f"has the number of {a.folder}", file=out / b.folder / RECORD_NAME, field="night", value=b.night,
                remedy="move one of the two folders away",
            )  # fmt: skip
    return found


def parse_record(data: bytes, file: Path) -> NightRecord:
    """A record from its bytes.

    Raises
    ------
    NightlyError
        Not valid, or not what its digest says.
    """
    try:
        record = msgspec.json.decode(data, type=NightRecord)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        remedy = "restore it, or move it away"
        raise not_valid(error, "the record of a night", kind=NightlyError, file=file, remedy=remedy) from None
    if record.sealed().digest != record.digest:
        raise NightlyError(
            "does not match the content: the record was altered", file=file, field="digest", value=record.digest[:SHORT],
            remedy="restore it, or move it away",
        )  # fmt: skip
    return record


def read_acks(out: Path) -> list[Ack]:
    """Every acknowledgement, in order; a last line that a crash has torn is left out.

    Raises
    ------
    NightlyError
        Another line is not valid.
    """
    path = out / ACKS_NAME
    if not path.exists():
        return []
    data = read_bytes(path, kind=NightlyError)
    return list(_acks(data[: data.rfind(b"\n") + 1], path))


def _acks(data: bytes, path: Path) -> Iterator[Ack]:
    for number, line in enumerate(data.splitlines(), start=1):
        try:
            yield msgspec.json.decode(line, type=Ack)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise NightlyError(
                f"line {number} is not an acknowledgement ({decode_problem(error)[0]})",
                file=path,
                remedy="restore the file",
            ) from None


def acknowledge(out: Path, alarm: str, why: str) -> tuple[Ack, AlarmRecord]:
    """Acknowledge an alarm of the last night; appended by one write and fsync, under a lock.

    Raises
    ------
    NightlyError
        No such alarm is open, or no reason is given.
    OutputError
        The file cannot be written.
    """
    records = read_nights(out)
    last = records[-1][0] if records else None
    alarms = {a.id: a for a in last.alarms} if last else {}
    if not why.strip():
        raise NightlyError("needs a reason", field="--why", value=why, remedy="say why the alarm may be silent")
    if alarm not in alarms or last is None:
        known = ", ".join(i for i, a in alarms.items() if a.acknowledged is None) or "none"
        raise NightlyError(
            "is no alarm of the last night", field="ID", value=alarm, remedy=f"give one that is open: {known}"
        )
    if alarms[alarm].acknowledged is not None or any(a.id == alarm for a in read_acks(out)):
        raise NightlyError("is acknowledged already", field="ID", value=alarm, remedy="leave it")
    ack = Ack(id=alarm, night=last.night, at=now_utc(), by=user_name(), why=printable(" ".join(why.split())))
    _append(out / ACKS_NAME, msgspec.json.encode(ack) + b"\n")
    return ack, alarms[alarm]


def _append(path: Path, line: bytes) -> None:
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            size = os.fstat(handle).st_size
            end = os.pread(handle, size, 0).rfind(b"\n") + 1
            os.ftruncate(handle, end)
            if os.pwrite(handle, line, end) != len(line):
                os.ftruncate(handle, end)
                raise OSError(28, "No space left on device")
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        raise OutputError(
            f"cannot be written ({error.strerror or error}), and nothing was changed", file=path,
            remedy="free some space or make the folder writable",
        ) from None  # fmt: skip
