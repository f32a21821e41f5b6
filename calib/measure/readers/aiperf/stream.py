"""aiperf's per-request file (``profile_export.jsonl``) as a stream of typed records, in bounded memory.

A record is decoded by type, so the long ``inter_chunk_latency`` list and all else calib does not use are passed over
without being built; times in ns stay whole numbers, since an epoch in ns does not fit a double. A last line without its
end is what a killed run leaves: it is left out. Any other line that is no record is an error. Source: the record schema of
the tool's documentation, and files it wrote.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from calib.errors import CampaignError

BLOCK = 2**18  # bytes read at once: large enough to amortise the call, small enough for the processor's cache
LINE_LIMIT = 64 * 2**20
REMEDY = "restore the file, or delete it to use the run's summary alone"


class BadLineError(CampaignError):
    """A line of a per-request file that is not a record; ``line`` counts from 1."""

    def __init__(self, problem: str, *, file: Path, line: int) -> None:
        super().__init__(problem, file=file, field=f"line {line}", remedy=REMEDY)
        self.line = line


# Bounds that no request reaches: a time before the epoch or a negative latency (an epoch minus nothing) is a fault.
Nanoseconds = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 2)]
Figure = Annotated[float, msgspec.Meta(ge=0, le=1e12)]


class Milliseconds(msgspec.Struct, gc=False):
    """A duration [ms]."""

    value: Figure | None = None
    unit: Literal["ms"] | None = None


class Tokens(msgspec.Struct, gc=False):
    """A length [tokens]."""

    value: Figure | None = None
    unit: Literal["tokens"] | None = None


class Metadata(msgspec.Struct, gc=False):
    """When a request ran [ns since the epoch, 0 where unknown] and in which phase."""

    request_start_ns: Nanoseconds | None = 0
    request_end_ns: Nanoseconds | None = 0
    credit_issued_ns: Nanoseconds | None = 0
    benchmark_phase: str | None = "profiling"
    was_cancelled: bool | None = False


class RequestMetrics(msgspec.Struct, gc=False):
    """What calib uses of a request's metrics."""

    time_to_first_token: Milliseconds | None = None
    inter_token_latency: Milliseconds | None = None
    output_sequence_length: Tokens | None = None
    usage_completion_tokens: Tokens | None = None


class RequestError(msgspec.Struct, gc=False):
    """Why a request failed; a cut connection has no ``code``."""

    code: int | str | None = None
    type: str | None = None


class RequestRecord(msgspec.Struct, gc=False):
    """One request."""

    metadata: Metadata
    metrics: RequestMetrics | None = None
    error: RequestError | None = None


class RecordStream:
    """The file in batches of records, and what is known when it has been read to its end.

    Attributes
    ----------
    digest
        SHA-256 of what was read; None where it was not asked for, since it costs a quarter of the time.
    cut_last_line
        The file ends within a record, which is left out.
    """

    def __init__(self, path: Path, *, digest: bool) -> None:
        self.path = path
        self.digest = hashlib.sha256() if digest else None
        self.cut_last_line = False
        self._offset = 0  # of the block that is decoded; lines are counted where one is bad, and not before
        self._decoder = msgspec.json.Decoder(RequestRecord)

    def batches(self) -> Iterator[list[RequestRecord]]:
        """The records, some hundreds at a time.

        Raises
        ------
        CampaignError
            The file cannot be read.
        BadLineError
            A line is not a record.
        """
        try:
            with self.path.open("rb", buffering=0) as stream:
                for block, whole in self._blocks(stream):
                    yield self._decode(block, whole=whole)
        except OSError as error:
            raise CampaignError(
                f"cannot be read ({error.strerror or error})", file=self.path, remedy="check its permissions"
            ) from None

    def _blocks(self, stream: io.RawIOBase) -> Iterator[tuple[memoryview, bool]]:
        """Whole lines, and True; at the end the line that has no end, and False. A view is good until the next one."""
        buffer, kept = bytearray(BLOCK), 0  # one buffer: a new one a block would cost more than the decoding
        view = memoryview(buffer)
        while size := stream.readinto(view[kept:]):
            if self.digest is not None:
                self.digest.update(view[kept : kept + size])
            end = buffer.rfind(b"\n", kept, kept + size) + 1
            kept += size
            if end:
                yield view[:end], True
                self._offset += end
                view[: kept - end] = view[end:kept]
                kept -= end
            elif kept > LINE_LIMIT:
                raise BadLineError("is longer than 64 MiB", file=self.path, line=self._line_at(self._offset))
            elif kept == len(buffer):
                buffer = buffer + bytearray(len(buffer))
                view = memoryview(buffer)
        if kept:
            yield view[:kept], False

    def _decode(self, block: memoryview, *, whole: bool) -> list[RequestRecord]:
        try:
            return self._decoder.decode_lines(block)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            # decode_lines does not say which line it was; so do them one by one
            lines = enumerate(bytes(block).split(b"\n"), start=self._line_at(self._offset))
            decoded = (self._decode_line(line, number, whole=whole) for number, line in lines if line.strip())
            return [record for record in decoded if record is not None]

    def _line_at(self, offset: int) -> int:
        count = 1
        with self.path.open("rb") as stream:
            while offset > 0 and (block := stream.read(min(BLOCK, offset))):
                count += block.count(b"\n")
                offset -= len(block)
        return count

    def _decode_line(self, line: bytes, number: int, *, whole: bool) -> RequestRecord | None:
        try:
            return self._decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass
        try:
            return msgspec.convert(_old_line(line), RequestRecord)
        except (ValueError, RecursionError) as error:
            # A cut line is no JSON; a whole one of another shape is an error wherever it stands.
            if not whole and not isinstance(error, msgspec.ValidationError):
                self.cut_last_line = True
                return None
            raise BadLineError(f"is not a per-request record ({error})", file=self.path, line=number) from None


def _old_line(line: bytes) -> Any:
    """A line as versions before 0.9 could write it: bare NaN where nothing is known, times in ns as floats."""
    document = json.loads(line, parse_constant=lambda _: None)
    times = document.get("metadata") if isinstance(document, dict) else None
    if isinstance(times, dict):
        whole = {k: int(v) for k, v in times.items() if k.endswith("_ns") and isinstance(v, float) and v.is_integer()}
        document["metadata"] = times | whole
    return document
