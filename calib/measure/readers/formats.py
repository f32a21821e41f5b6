"""Which reader reads a file: decided by what the file holds, never by its name.

A new tool is one file with ``is_<tool>`` and ``parse_<tool>``, and one line in `READERS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Protocol

from calib.errors import CampaignError
from calib.measure.readers.content import SIZE_LIMIT, BrokenFileError, parse_documents, read_content
from calib.measure.readers.genai_perf import is_genai_perf, parse_genai_perf
from calib.measure.readers.guidellm import is_guidellm, parse_guidellm
from calib.measure.readers.quantities import numbered
from calib.measure.readers.read_run import ReadRun, UnreadableRun
from calib.measure.readers.sglang_bench import is_sglang_bench, parse_sglang_bench
from calib.measure.readers.trtllm_bench import is_trtllm_bench, parse_trtllm_bench
from calib.measure.readers.vllm_bench import is_vllm_bench, parse_vllm_bench

SUFFIXES = tuple(f".{kind}{packed}" for kind in ("json", "jsonl") for packed in ("", ".gz", ".zst"))
STRANGERS = 1000  # documents none of which is a run: these are records of requests or a trace, however long


class Parse(Protocol):
    """The runs of one JSON document that the reader has recognised. Pure."""

    def __call__(self, document: dict[str, object], /, *, file: str, digest: str) -> list[ReadRun | UnreadableRun]: ...


@dataclass(frozen=True)
class Reader:
    """How to know a tool's documents, and how to read one."""

    tool: str
    recognise: Callable[[object], bool]
    parse: Parse


READERS: tuple[Reader, ...] = (
    # aiperf: its line goes here.
    Reader("guidellm", is_guidellm, parse_guidellm),
    Reader("vllm-bench", is_vllm_bench, parse_vllm_bench),
    Reader("sglang-bench", is_sglang_bench, parse_sglang_bench),
    Reader("trtllm-bench", is_trtllm_bench, parse_trtllm_bench),
    Reader("genai-perf", is_genai_perf, parse_genai_perf),
)


def find_reader(document: object, *, file: str | Path, readers: Iterable[Reader] = READERS) -> Reader | None:
    """The one reader that knows ``document``; None where it is no run of a known tool.

    Raises
    ------
    CampaignError
        More than one reader takes it for its own.
    """
    found = sorted((r for r in readers if r.recognise(document)), key=lambda r: r.tool)
    if len(found) > 1:
        raise CampaignError(
            f"is taken for a result of {' and of '.join(r.tool for r in found)}",
            file=file,
            remedy="leave the file as its tool wrote it, or take it out of the folder",
        )
    return found[0] if found else None


def read_file(
    path: Path, *, root: Path, limit: int = SIZE_LIMIT, readers: tuple[Reader, ...] = READERS
) -> list[ReadRun | UnreadableRun]:
    """Every run in the file at ``path``, in the file's order; nothing where it holds no run of a known tool.

    Parameters
    ----------
    path
        A JSON file or JSON lines, plain, gzip or zstd, at or below ``root``.
    root
        What paths are stored relative to.
    limit
        Most bytes to read, decompressed.

    Raises
    ------
    CampaignError
        Two readers take a document of the file for their own.
    UnknownTopologyError
        A parallelism degree is there and is not a positive whole number.
    """
    file = PurePosixPath(path.relative_to(root)).as_posix()
    found: list[ReadRun | UnreadableRun] = []
    stranger = place = 0  # numbers of documents, from 1
    try:
        content, digest = read_content(path, limit=limit)
        for place, document in enumerate(parse_documents(content, file=file), start=1):
            reader = find_reader(document, file=file, readers=readers)
            if reader is None or not isinstance(document, dict):
                stranger = stranger or place
                if place >= STRANGERS and not found:
                    return []
            else:
                found += reader.parse(document, file=file, digest=digest)
    except BrokenFileError as error:
        if found or not stranger:  # a broken file of something else is not a run either
            found.append(UnreadableRun(file, 0, f"{error.problem}{f', after {place} documents' if place else ''}"))
    if found and stranger:
        found.append(UnreadableRun(file, 0, f"holds a document that is no run of a known tool (number {stranger})"))
    if not place and not found and not path.name.endswith((".jsonl", ".jsonl.gz", ".jsonl.zst")):
        found.append(UnreadableRun(file, 0, "is empty: the tool was stopped before it wrote its result"))
    return numbered(found)
