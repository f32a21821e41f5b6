"""The lines of a registry: releases and withdrawals, each naming the digest of the line before it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

import msgspec

from calib.errors import RegistryError
from calib.files import SHORT, decode_problem, sha256_bytes

if TYPE_CHECKING:
    pass
FIRST = "0" * 64


class GateResult(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One condition of a release: its limit, what was found, and whether that passes; in words with units."""

    name: str
    limit: str
    found: str
    passed: bool


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A release or a withdrawal.

    ``candidate`` is the digest of the file that was released, which differs from ``digest`` where the release filled in
    ``supersedes``. ``left_out`` names the models whose coefficient was released as refused. ``torn`` is what a
    crash left of an entry.
    """

    format: Literal["calib-registry"] = "calib-registry"
    format_version: Literal[1] = 1
    action: Literal["release", "withdraw"]
    digest: str
    candidate: str
    file: str
    at: str
    by: str
    why: str
    gates: tuple[GateResult, ...] = ()
    left_out: tuple[str, ...] = ()
    supersedes: str | None = None
    torn: str | None = None
    previous: str = FIRST


def split_torn(data: bytes) -> tuple[bytes, bytes]:
    """The whole lines, and what follows the last line break."""
    end = data.rfind(b"\n") + 1
    return data[:end], data[end:]


def read_entries(data: bytes, path: str) -> Iterator[Entry]:
    """The entries of whole lines, checked one after another."""
    previous = FIRST
    for number, line in enumerate(data.splitlines(), start=1):
        try:
            entry = msgspec.json.decode(line, type=Entry)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise RegistryError(
                f"line {number} is not an entry of a registry ({decode_problem(error)[0]})",
                file=path,
                remedy="restore the file; a registry is only ever appended to",
            ) from None
        if entry.previous != previous:
            raise RegistryError(
                f"line {number} does not follow the line before it: a line was changed or removed",
                file=path,
                field="previous",
                value=entry.previous[:SHORT],
                remedy="restore the file; a registry is only ever appended to",
            )
        previous = sha256_bytes(line)
        yield entry
