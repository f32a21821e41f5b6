"""Per-op latencies of one step: the breakdown file, and what a provider of breakdowns must offer.

A breakdown file is JSON::

    {"format": "calib-breakdowns", "format_version": 1,
     "provider": {"name", "version", "system", "note"},
     "steps": [{"model", "backend", "tp", "pp", "concurrency", "microbatch", "isl", "osl", "num_layers",
                "status": "computed | assumed | derived | never measured", "kind": "decode | mixed | prefill",
                "ops_ms": {"generation_embedding": 0.003, ...}}]}

``ops_ms`` holds the latency [ms] of each op over the whole step: all layers, all links together. A decode step generates
one token for every request of the microbatch; a mixed one prefills a chunk of one request beside the decoding of the
others; a prefill step is a full chunk of prompts alone. ``concurrency`` is null for a step that holds at any. ``status`` is
``assumed`` where the concurrency is not the campaign's own statement, ``derived`` where the step was not published but
worked out from another one, and ``never measured`` where a pipeline crosses nodes, which no campaign covers.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from calib.errors import BreakdownError
from calib.files import not_valid, read_bytes

StepStatus = Literal["computed", "assumed", "derived", "never measured"]
StepKind = Literal["decode", "mixed", "prefill"]
LONGEST_MS, SHORTEST_MS = 3.6e6, 1e-9  # an op of an hour, or of less than a picosecond, is a fault
MOST_STAGES, MOST_TOKENS = 10_000, 10**9
CHUNK_TOKENS = 8192  # prefill tokens of one step at most; the default of vLLM's server on these GPUs


class _Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    pass


class Provider(_Record, frozen=True, kw_only=True):
    """Which tool, version and tables the latencies come from."""

    name: str
    version: str
    system: str
    note: str = ""


class Step(_Record, frozen=True, kw_only=True):
    """The per-op latencies [ms] of one decode step of one configuration."""

    model: str
    backend: str
    tp: int
    pp: int
    concurrency: int | None
    microbatch: int | None
    isl: int
    osl: int
    num_layers: int
    status: StepStatus
    ops_ms: dict[str, float]
    kind: StepKind = "decode"

    def __post_init__(self) -> None:
        for name in ("tp", "pp", "isl", "osl", "num_layers", "concurrency", "microbatch"):
            value = getattr(self, name)
            most = MOST_STAGES if name in ("tp", "pp", "num_layers") else MOST_TOKENS
            if value is not None and not 1 <= value <= most:
                raise ValueError(f"{name} = {value} is not between 1 and {most}")
        if self.pp > self.num_layers:
            raise ValueError(f"{self.num_layers} layers cannot fill {self.pp} stages")
        for name, ms in self.ops_ms.items():
            if not (ms == 0 or SHORTEST_MS <= ms <= LONGEST_MS):
                raise ValueError(
                    f"{name} takes {ms:g} ms, which is neither 0 nor between {SHORTEST_MS:g} and {LONGEST_MS:g}"
                )
        if not any(ms > 0 for ms in self.ops_ms.values()):
            raise ValueError("no op takes any time")

    @property
    def key(self) -> StepKey:
        """What a step is looked up by."""
        return (self.kind, self.model, self.backend, self.tp, self.pp, self.isl, self.osl, self.concurrency)


StepKey = tuple[str, str, str, int, int, int, int, int | None]


class StepRequest(_Record, frozen=True, kw_only=True):
    """The step a provider is asked for. ``config`` is a Hugging Face ``config.json`` folder, where the tool needs one."""

    model: str
    backend: str
    system: str
    tp: int
    pp: int
    concurrency: int
    isl: int
    osl: int
    status: StepStatus
    config: str | None = None
    kind: StepKind = "decode"
    chunk_tokens: int = CHUNK_TOKENS


def answer(
    request: StepRequest, *, microbatch: int, num_layers: int, ops_ms: dict[str, float], across_nodes: bool
) -> Step:
    """The step a provider gives for ``request``; never measured where its pipeline crosses nodes."""
    try:
        return Step(
            model=request.model,
            backend=request.backend,
            tp=request.tp,
            pp=request.pp,
            concurrency=request.concurrency,
            microbatch=microbatch,
            isl=request.isl,
            osl=request.osl,
            kind=request.kind,
            num_layers=num_layers,
            status="never measured" if across_nodes else request.status,
            ops_ms=ops_ms,
        )
    except ValueError as error:  # degrees, lengths or latencies that cannot be
        where = f"{request.model} at TP{request.tp}/PP{request.pp}"
        raise BreakdownError(f"{where}: {error}", remedy="correct the configuration that is asked for") from None


class BreakdownProvider(Protocol):
    """A source of per-op latencies."""

    @property
    def provider(self) -> Provider:
        """Name, version and tables, to be stored beside the numbers."""

    def step(self, request: StepRequest) -> Step:
        """The decode step of one configuration; `BreakdownError` where the tool does not cover it."""


class Breakdowns(_Record, frozen=True, kw_only=True, dict=True):
    """A breakdown file."""

    format: Literal["calib-breakdowns"]
    format_version: Literal[1]
    provider: Provider
    steps: tuple[Step, ...]

    @functools.cached_property
    def _by_configuration(self) -> dict[tuple[object, ...], list[Step]]:
        """The steps by everything but their concurrency, in the file's order."""
        found: dict[tuple[object, ...], list[Step]] = {}
        for step in self.steps:
            found.setdefault(step.key[:-1], []).append(step)
        return found

    def find(
        self,
        model: str,
        backend: str,
        *,
        tp: int,
        pp: int,
        isl: int,
        osl: int,
        concurrency: int | None,
        kind: StepKind = "decode",
    ) -> Step | None:
        """The step of a configuration and workload: at that concurrency, else one that holds at any.

        Where the campaign states no concurrency, the one step of that configuration.

        Raises
        ------
        BreakdownError
            No concurrency is stated and the file has steps at several.
        """
        here = self._by_configuration.get((kind, model, backend, tp, pp, isl, osl), [])
        if concurrency is not None:
            exact = [s for s in here if s.concurrency == concurrency]
            return next(iter(exact or [s for s in here if s.concurrency is None]), None)
        if len(here) > 1:
            raise BreakdownError(
                f"has {len(here)} steps of {model} on {backend} at TP{tp}/PP{pp} and the campaign states no concurrency",
                field="steps",
                remedy="keep the one that is assumed",
            )
        return next(iter(here), None)

    def to_json(self) -> bytes:
        """The file's bytes, one step a line."""
        head = msgspec.structs.replace(self, steps=())
        start = msgspec.json.encode(head).removesuffix(b"[]}")
        rows = b",\n".join(msgspec.json.encode(s) for s in self.steps)
        return start + b"[\n" + rows + b"\n]}\n"

    @classmethod
    def from_json(cls, data: bytes, *, file: str | Path | None = None) -> Breakdowns:
        """Parse and check a breakdown file.

        Raises
        ------
        BreakdownError
            Not JSON, an unknown or missing field, a wrong type, or two steps of one configuration.
        """
        try:
            loaded = msgspec.json.decode(data, type=cls)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            remedy = "write it with `calib breakdown`, or compare with the format in the README"
            raise not_valid(error, "a valid breakdown file", kind=BreakdownError, file=file, remedy=remedy) from None
        seen: set[StepKey] = set()
        for index, step in enumerate(loaded.steps):
            if step.key in seen:
                raise BreakdownError(
                    f"stands twice: {step.model} on {step.backend} at TP{step.tp}/PP{step.pp}, "
                    f"concurrency {step.concurrency}",
                    file=file,
                    field=f"$.steps[{index}]",
                    remedy="remove one",
                )
            seen.add(step.key)
        return loaded

    @classmethod
    def load(cls, path: str | Path) -> Breakdowns:
        """Read the file at ``path``.

        Raises
        ------
        BreakdownError
            As `from_json`, or the file cannot be read.
        """
        path = Path(path)
        return cls.from_json(read_bytes(path, kind=BreakdownError), file=path)
