"""CSV tables of published figures whose columns are those of the run table.

Throughput in output tok/s, latencies in ms, durations in s: the units are those in the column names. A column of another
name is mapped in ``campaign.toml``, or listed as ignored; none is passed over silently.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Collection, Mapping
from pathlib import Path

from calib.errors import CampaignError, UnknownTopologyError
from calib.files import read_bytes, sha256_bytes
from calib.measure.columns import COUNTS, IDENTITY, MEASURES
from calib.measure.readers.read_run import ReadRun, UnreadableRun
from calib.names import DECIMAL

KNOWN = frozenset((*IDENTITY, *MEASURES, "tool", "tool_version")) - {"campaign"}
NUMBER = re.compile(rf"{DECIMAL}|[+-]?(nan|inf)", re.ASCII | re.IGNORECASE)
TOPOLOGY = ("gpus", "tp", "pp", "dp", "replicas")


def parse_table(
    data: bytes, *, file: str, columns: Mapping[str, str], ignore: Collection[str]
) -> list[ReadRun | UnreadableRun]:
    """The runs of a CSV file, one a line.

    Parameters
    ----------
    data
        The file's bytes (UTF-8).
    file
        Its path as shown to people and stored in the run table.
    columns
        Column of the file -> column of the run table, for those whose names differ.
    ignore
        Columns that are not measurements.

    Raises
    ------
    CampaignError
        Not UTF-8, no header, or a column that is neither known, mapped nor ignored.
    UnknownTopologyError
        A parallelism degree or GPU count that is there and not a positive whole number.
    """
    digest = sha256_bytes(data)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise CampaignError(
            f"is not UTF-8 text (byte {error.start})", file=file, remedy="save the table as UTF-8 CSV"
        ) from None
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    rows: list[ReadRun | UnreadableRun] = []
    try:
        header = [name.strip() for name in next(reader, [])]
        if unknown := sorted(set(columns) - set(header)):
            raise CampaignError(
                f"is mapped and is not a column of the table, which has {', '.join(header) or 'none'}", file=file,
                field=unknown[0], remedy="correct [tables.columns] in campaign.toml, or separate the table by commas",
            )  # fmt: skip
        _check_mapping(columns, file, ignore)
        names = [columns.get(name, name) for name in header]
        _check_header(names, file, ignore)
        rows += [_row(names, cells, file, reader.line_num, digest, ignore) for cells in reader if cells]
    except csv.Error as error:
        raise CampaignError(
            f"is not a CSV table (line {reader.line_num}: {error})", file=file, remedy="save the table as CSV"
        ) from None
    return rows


def read_table(
    path: Path, *, file: str, columns: Mapping[str, str], ignore: Collection[str]
) -> list[ReadRun | UnreadableRun]:
    """`parse_table` of the file at ``path``, which errors name in full."""
    try:
        return parse_table(read_bytes(path), file=file, columns=columns, ignore=ignore)
    except CampaignError as error:
        raise error.at(path) from None


def _check_mapping(columns: Mapping[str, str], file: str, ignore: Collection[str]) -> None:
    for name, target in columns.items():
        if name in ignore:
            raise CampaignError(
                f"is mapped to {target} and ignored", file=file, field=name, remedy="leave it out of one of the two"
            )
        if target not in KNOWN:
            raise CampaignError(
                f"is mapped to {target!r}, which is no column of the run table", file=file, field=name,
                remedy=f"map it to one of {', '.join(sorted(KNOWN))}",
            )  # fmt: skip


def _check_header(names: list[str], file: str, ignore: Collection[str]) -> None:
    if not any(names):
        raise CampaignError("has no header line", file=file, remedy="name the columns in the first line")
    for name in names:
        if name not in KNOWN and name not in ignore:
            raise CampaignError(
                "is not a column of the run table",
                file=file,
                field=name,
                remedy="map it under [tables.columns] in campaign.toml, or list it under 'ignore'",
            )
        if names.count(name) > 1:
            raise CampaignError("stands twice in the header", file=file, field=name, remedy="keep one of them")


def _row(
    names: list[str], cells: list[str], file: str, line: int, digest: str, ignore: Collection[str]
) -> ReadRun | UnreadableRun:
    if len(cells) != len(names):
        return UnreadableRun(file, line, f"has {len(cells)} cells where the header names {len(names)} columns")
    stated: dict[str, object] = {}
    for name, cell in zip(names, (c.strip() for c in cells), strict=True):
        if name in ignore or not cell:
            continue
        if name in COUNTS:
            count = _whole(cell)
            if count is None and name in TOPOLOGY:
                raise UnknownTopologyError(
                    f"is not a positive whole number in line {line}", file=file, field=name, value=cell,
                    remedy=f"state {name} as a number",
                )  # fmt: skip
            if count is None:
                return UnreadableRun(file, line, f"{name} = {cell!r} is not a positive whole number")
            stated[name] = count
        elif name in MEASURES:
            if not NUMBER.fullmatch(cell):
                return UnreadableRun(file, line, f"{name} = {cell[:40]!r} is not a number")
            stated[name] = float(cell)
        else:
            stated[name] = cell
    return ReadRun(file, line, digest, stated)


def _whole(cell: str) -> int | None:
    return int(cell) if re.fullmatch(r"0*[1-9][0-9]{0,8}", cell, re.ASCII) else None
