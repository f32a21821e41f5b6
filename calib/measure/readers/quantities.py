"""One definition of each quantity, and what readers share to map a tool's fields on it.

Every tool has its own idea of a latency or a throughput. The run table has one, and a reader states in its docstring how
its tool's fields map on it; a figure that cannot be mapped is left out, and the fact ``unmapped`` says why.

``output_tokens_per_s`` [tok/s]
    Output tokens of the successful requests of one server (all its GPUs) over ``duration_s``.
``requests_per_s`` [req/s]
    Successful requests over ``duration_s``.
``duration_s`` [s]
    From the first request sent to the last response.
``ttft_p50_ms`` [ms]
    Time to first token: from sending a request to its first output; median over successful requests.
``tpot_mean_ms`` [ms]
    Time per output token after the first, ``(latency - TTFT)/(OSL - 1)`` of a request; mean over successful requests.
``itl_p50_ms`` [ms]
    Inter-token latency: the same quantity of a request; median over successful requests. A gap between *chunks* is not
    one: a chunk may hold several tokens. Such gaps are the fact ``inter_chunk_ms``, beside ``inter_token_ms`` (means, ms).
``isl``, ``osl`` [tokens]
    The lengths asked for. What was measured are the facts ``measured_isl`` and ``measured_osl`` (means over successes).
``concurrency``
    The setting of a closed loop. A cap under a request rate is none (fact ``concurrency_is_cap``), nor is a time average
    (fact ``effective_concurrency``).

A figure that is not finite is unknown, and so is a latency or throughput of exactly 0, which tools write for "nothing was
measured". Facts that a file does not give are absent.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from calib.errors import ContradictionError, UnknownTopologyError
from calib.measure.readers.read_run import ReadRun, UnreadableRun

TOLERANCE = 0.01  # two figures of one quantity further apart than this have different definitions


class NotReadableError(Exception):
    """A field of a run has a type or a unit that its tool does not write; ends as an `UnreadableRun`."""


@dataclass
class RunBuilder:
    """What a reader has learnt so far about one run of ``file``."""

    file: str
    stated: dict[str, object] = field(default_factory=dict)
    facts: dict[str, object] = field(default_factory=dict)
    unmapped: list[str] = field(default_factory=list)

    def state(self, **columns: object) -> None:
        """Columns of the run table; None is unknown and is left out."""
        self.stated |= {k: v for k, v in columns.items() if v is not None}

    def fact(self, **facts: object) -> None:
        """Facts for the screening rules; None is unknown and is left out."""
        self.facts |= {k: v for k, v in facts.items() if v is not None}

    def cannot_map(self, column: str, why: str) -> None:
        """Leave ``column`` out and say why."""
        self.stated.pop(column, None)
        self.unmapped.append(f"{column}: {why}")

    def throughput(self, own: float | None, *, tokens: float | None, duration_s: float | None) -> None:
        """The tool's own output throughput [tok/s], unless its tokens over its duration [s] contradict it."""
        self.state(output_tokens_per_s=own)
        if own and tokens and duration_s and abs(tokens / duration_s / own - 1) > TOLERANCE:
            why = f"the tool says {own:g}, and {tokens:g} tokens in {duration_s:g} s are {tokens / duration_s:g}"
            self.cannot_map("output_tokens_per_s", why)

    def load(self, rate: float | None, limit: int | None) -> None:
        """Kind of load from the request rate [req/s] (infinite: none was set) and the limit on requests in flight."""
        if rate is None:
            if limit is not None:
                self.cannot_map("concurrency", "the request rate is not stated, so the limit may be only a cap")
        elif math.isfinite(rate):
            self.fact(load_type="rate", concurrency_is_cap=limit is not None)
        elif limit is None:
            self.fact(load_type="unlimited", concurrency_is_cap=False)
        else:
            self.state(concurrency=limit)
            self.fact(load_type="concurrency", concurrency_is_cap=False)

    def chunks(self, gap_ms: float | None, token_ms: float | None) -> None:
        """Mean gap between chunks and mean inter-token latency [ms]: far apart where chunks hold several tokens."""
        self.fact(inter_chunk_ms=gap_ms, inter_token_ms=token_ms)

    def topology(self, values: Mapping[str, Any], keys: Mapping[str, Sequence[str]]) -> None:
        """Parallelism degrees: for each column the keys it may stand under.

        Raises
        ------
        UnknownTopologyError
            A key is there and is not a positive whole number.
        ContradictionError
            Two keys of one column differ.
        """
        for column, names in keys.items():
            for name in names:
                if values.get(name) is not None:
                    self.stated[column] = self._agreed(column, name, values[name])

    def _agreed(self, column: str, name: str, value: object) -> int:
        degree = _degree(value)
        if degree is None:
            raise UnknownTopologyError(
                "is not a positive whole number",
                file=self.file,
                field=name,
                value=_shown(value),
                remedy=f"correct it to the {column} that was served",
            )
        if (other := self.stated.setdefault(column, degree)) != degree:
            raise ContradictionError(
                f"contradicts another field of the file, which says {column} = {other}",
                file=self.file,
                field=name,
                value=degree,
                remedy="correct the one that is wrong",
            )
        return degree


def _degree(value: object) -> int | None:
    if isinstance(value, str) and re.fullmatch(r"0*[1-9][0-9]{0,8}", value, re.ASCII):
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 1 <= value < 10**9 else None


def read_one(
    fill: Callable[[RunBuilder, Any], None], document: object, *, file: str, digest: str, row: int = 0
) -> ReadRun | UnreadableRun:
    """The run that ``fill`` makes of ``document``, or why it cannot."""
    draft = RunBuilder(file)
    try:
        fill(draft, section({"": document}, ""))
    except NotReadableError as error:
        return UnreadableRun(file, row, str(error))
    if draft.unmapped:
        draft.facts["unmapped"] = tuple(draft.unmapped)
    return ReadRun(file, row, digest, draft.stated, draft.facts)


def numbered(runs: Sequence[ReadRun | UnreadableRun]) -> list[ReadRun | UnreadableRun]:
    """The runs of one file with their place in it: counted from 1, and 0 where there is only one."""
    if len(runs) == 1:
        return [replace(runs[0], source_row=0)]
    return [replace(run, source_row=place) for place, run in enumerate(runs, start=1)]


def _shown(value: object) -> object:
    """What a message shows of a value: a large one is never formatted."""
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    return value if not isinstance(value, int) or abs(value) < 10**40 else "a number of many digits"


def _wrong(name: str, value: object, problem: str) -> NotReadableError:
    shown = _shown(value)
    return NotReadableError(f"field '{name}' = {repr(shown)[:60] if shown is value else shown} {problem}")


def dig(document: object, *path: str) -> Any:
    """The value at ``path``, or None where a step of it is missing or not an object."""
    for name in path:
        if not isinstance(document, dict):
            return None
        document = document.get(name)
    return document


def section(values: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The object under ``name``; empty where it is missing."""
    value = values.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise _wrong(name, value, "is not an object")
    return cast(dict[str, Any], value)


def number(values: Mapping[str, Any], name: str) -> float | None:
    """A finite number; None where it is missing, null, NaN or infinite."""
    value = values.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong(name, value, "is not a number")
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        raise _wrong(name, value, "is too large a number") from None


def measured(values: Mapping[str, Any], name: str) -> float | None:
    """A latency or throughput; None also where it is exactly 0, which tools write for "nothing was measured"."""
    return number(values, name) or None


def count(values: Mapping[str, Any], name: str) -> int | None:
    """A whole number of at least 1, or None where it is missing."""
    value = number(values, name)
    if value is not None and (value != int(value) or value < 1):
        raise _wrong(name, values[name], "is not a positive whole number")
    return None if value is None else int(value)


def tally(values: Mapping[str, Any], name: str) -> int | None:
    """A whole number of at least 0, or None where it is missing."""
    return 0 if values.get(name) == 0 and number(values, name) == 0 else count(values, name)


def text(values: Mapping[str, Any], name: str) -> str | None:
    """Printable text, or None where it is missing or empty."""
    value = values.get(name)
    if value is None or value == "":
        return None
    if not isinstance(value, str) or not value.isprintable():
        raise _wrong(name, value, "is not text")
    return value.strip() or None


def hint(values: Mapping[str, Any], name: str) -> str | None:
    """Text that is only shown or compared: anything else under that name is ignored."""
    value = values.get(name)
    return value.strip() or None if isinstance(value, str) and value.isprintable() else None


def rate(values: Mapping[str, Any], name: str) -> float | None:
    """A request rate [req/s]; infinity, as a number or as the text ``inf``, where no rate was set."""
    value = values.get(name)
    if isinstance(value, str) and value.strip().lower() in ("inf", "infinity"):
        return math.inf
    return math.inf if value == math.inf else number(values, name)


def flag(values: Mapping[str, Any], name: str) -> bool | None:
    """True or false, or None where it is missing."""
    value = values.get(name)
    if value is not None and not isinstance(value, bool):
        raise _wrong(name, value, "is neither true nor false")
    return value


def mean_of(total: float | None, parts: float | None) -> float | None:
    """``total / parts``, or None where either is unknown or nothing was counted."""
    return total / parts if total is not None and parts else None
