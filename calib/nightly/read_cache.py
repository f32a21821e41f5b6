"""Results read in a worker, and kept as bytes: what was read once is not read again while its files stay as they are."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from calib.errors import CalibError, printable
from calib.files import read_bytes, sha256_bytes
from calib.measure import Hint, ReadRun, Runs, UnreadableRun, companions, read_unit

Digests = Mapping[str, str]
_LARGEST = 2**63


def read_batch(root: str, units: list[str]) -> list[tuple[str, bytes]]:
    """Read results of one campaign; runs in a worker process. What cannot be read at all is an `UnreadableRun`."""
    return [(unit, _read_one(Path(root), unit)) for unit in units]


def _read_one(root: Path, unit: str) -> bytes:
    try:
        runs = read_unit(root / unit, root)
    except CalibError as error:  # a topology that cannot be: the campaign's affair, said when it is put together
        return msgspec.msgpack.encode({"error": printable(error.problem), "field": error.field, "file": error.file})
    names = {name for r in runs for name in (r.source_file, *(companions(r) if isinstance(r, ReadRun) else ()))}
    digests: dict[str, str] = {}
    for name in sorted(names):
        path = root / name
        try:
            if path.is_file():
                digests[name] = sha256_bytes(read_bytes(path))
        except (CalibError, OSError, ValueError):  # the run says what is wrong with it
            continue
    return encode(runs, digests)


def encode(runs: Runs, digests: Digests) -> bytes:
    """Runs and the digests of the files they come from as MessagePack."""
    rows = []
    for r in runs:
        if isinstance(r, ReadRun):
            rows.append(
                [_text(r.source_file), r.source_row, r.source_sha256, _pack(dict(r.stated)), _pack(dict(r.facts))]
            )
        else:
            rows.append([_text(r.source_file), r.source_row, _text(r.reason)])
    return msgspec.msgpack.encode({"runs": rows, "digests": {_printable(k): v for k, v in digests.items()}})


def decode(payload: bytes) -> tuple[Runs, Digests]:
    """The inverse of `encode`.

    Raises
    ------
    CalibError
        The result could not be read when it was tried: the error that was raised then.
    """
    content = msgspec.msgpack.decode(payload)
    if "error" in content:
        from calib.errors import UnknownTopologyError

        raise UnknownTopologyError(
            content["error"], file=content["file"], field=content["field"], remedy="correct the file"
        )
    runs: Runs = []
    for row in content["runs"]:
        if len(row) == 3:
            runs.append(UnreadableRun(_untext(row[0]), row[1], _untext(row[2])))
        else:
            runs.append(ReadRun(_untext(row[0]), row[1], row[2], _unpack(row[3]), _unpack(row[4])))
    return runs, content["digests"]


def _printable(text: str) -> str:
    return printable(text)


def _text(text: str) -> Any:
    """Text as it is; as bytes where it holds what UTF-8 has no place for."""
    return (
        text
        if text.isascii() or not any("\ud800" <= c <= "\udfff" for c in text)
        else text.encode("utf-8", "surrogatepass")
    )


def _untext(value: Any) -> str:
    return value.decode("utf-8", "surrogatepass") if isinstance(value, bytes) else str(value)


def _pack(value: Any) -> Any:
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, bool) or value is None or isinstance(value, float):
        return value
    if isinstance(value, int):
        return (
            value if -_LARGEST <= value < _LARGEST else ["int", str(value) if value.bit_length() < 4000 else hex(value)]
        )
    if isinstance(value, Hint):
        return ["hint", *(_pack(getattr(value, n)) for n in ("field", "value", "file", "key", "kind"))]
    if isinstance(value, tuple):
        return ["tuple", *map(_pack, value)]
    if isinstance(value, list):
        return ["list", *map(_pack, value)]
    if isinstance(value, Mapping):
        return {_text(str(k)): _pack(v) for k, v in value.items()}
    raise TypeError(f"a reader gave a fact of type {type(value).__name__}")


def _unpack(value: Any) -> Any:
    if isinstance(value, bytes):
        return _untext(value)
    if isinstance(value, dict):
        return {_untext(k): _unpack(v) for k, v in value.items()}
    if isinstance(value, list):
        kind, rest = value[0], value[1:]
        if kind == "int":
            return int(rest[0], 0)
        if kind == "hint":
            return Hint(*map(_unpack, rest))
        items = [_unpack(v) for v in rest]
        return tuple(items) if kind == "tuple" else items
    return value
