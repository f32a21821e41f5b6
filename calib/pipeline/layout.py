"""Which stage does which work. No scheduling policy lives here."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calib.errors import BreakdownError

FIRST_STAGE = ("*embedding*",)
LAST_STAGE = ("*logits_gemm*",)
LINK = ("*p2p*",)
# What a transformer layer is made of; an op outside these lists is counted per layer and warned about.
PER_LAYER = (
    "*attention*", "*_gemm", "*gemm_*", "*norm*", "*act_gate*", "*_ar_*", "*_ar", "*allreduce*", "*all_reduce*",
    "*moe*", "*router*", "*mla*", "*bmm*", "*rope*", "*dispatch*", "*shared*", "*layers*",
)  # fmt: skip


class UnknownOpWarning(UserWarning):
    """An op looks neither per-layer nor like one of a known place; it was spread over the layers."""


def _even(stage: Any, rest: Any, pp: Any) -> Any:  # noqa: ARG001
    return stage < rest


def _vllm(stage: Any, rest: Any, pp: Any) -> Any:
    return (pp - 1 - rest <= stage) & (stage < pp - 1)


@dataclass(frozen=True)
class PartitionRule:
    """How an engine splits layers over stages, and which engine versions it holds for.

    Every stage gets ``layers // pp`` layers, and those for which ``one_more(stage, rest, pp)`` holds get one more; ``rest``
    is the remainder. It works on numbers and on arrays alike.
    """

    name: str
    one_more: Callable[[Any, Any, Any], Any]
    holds_for: str


PARTITION_RULES = {
    rule.name: rule
    for rule in (
        PartitionRule("even", _even, "no engine in particular: the remainder on the leading stages, as published"),
        # The last stage is spared, and the first while it can be. A change to the last stages is proposed in
        # vllm-project/vllm pull request 46217.
        PartitionRule("vllm", _vllm, "vLLM up to 0.24"),
    )
}


def partition_layers(layers: int, pp: int, rule: str | Sequence[int] = "even") -> tuple[int, ...]:
    """Layers on each of ``pp`` stages, by a named rule or as stated.

    Raises
    ------
    BreakdownError
        ``pp`` or ``layers`` below 1, more stages than layers, an unknown rule, or an explicit partition that is not ``pp``
        non-negative whole numbers with the sum ``layers``.
    """
    if not (isinstance(layers, int) and isinstance(pp, int)) or layers < 1 or not 1 <= pp <= layers:
        raise BreakdownError(
            f"cannot split {layers} layers over {pp} stages",
            field="pp",
            value=pp,
            remedy="use 1 <= pp <= layers",
        )
    if isinstance(rule, str):
        if rule not in PARTITION_RULES:
            raise BreakdownError(
                "is not a known partition rule",
                field="partition",
                value=rule,
                remedy=f"use one of {', '.join(PARTITION_RULES)} or a list of layers per stage",
            )
        one_more, (base, rest) = PARTITION_RULES[rule].one_more, divmod(layers, pp)
        return tuple(base + int(one_more(stage, rest, pp)) for stage in range(pp))
    parts = tuple(rule)
    whole = all(isinstance(p, (int, np.integer)) and not isinstance(p, bool) and p >= 0 for p in parts)
    if len(parts) != pp or not whole or sum(parts) != layers:
        raise BreakdownError(
            f"must be {pp} non-negative whole numbers with the sum {layers}",
            field="partition",
            value=list(parts),
            remedy="state the layers of every stage",
        )
    return tuple(int(p) for p in parts)


@dataclass(frozen=True)
class PipelineLayout:
    """One step's work, placed on stages.

    Attributes
    ----------
    layers : tuple of int, length pp
        Transformer layers on each stage.
    per_layer_ms, first_ms, last_ms, link_ms : float
        Time of one layer, of what only the first stage does (embedding), of what only the last does (logits), and of all
        stage-to-stage transfers together [ms].
    """

    layers: tuple[int, ...]
    per_layer_ms: float
    first_ms: float = 0.0
    last_ms: float = 0.0
    link_ms: float = 0.0

    @classmethod
    def from_ops(
        cls, ops_ms: Mapping[str, float], num_layers: int, pp: int, partition: str | Sequence[int] = "even"
    ) -> PipelineLayout:
        """Place per-op latencies of one whole step (all layers, all links) [ms] by the ops' names.

        Warns
        -----
        UnknownOpWarning
            An op's name is of no known kind; it is spread over the layers.

        Raises
        ------
        BreakdownError
            A latency is negative or not finite, there is none at all, or the partition is impossible.
        """
        places = {"first": 0.0, "last": 0.0, "link": 0.0, "layer": 0.0}
        for name in sorted(ops_ms):  # a sum in a fixed order: the order of a file must not change the last bit
            ms = float(ops_ms[name])
            if not (np.isfinite(ms) and ms >= 0):
                raise BreakdownError(
                    "must be finite and not negative", field=name, value=ms, remedy="correct the breakdown"
                )
            places[_place(name)] += ms
        if not np.isfinite(sum(places.values())):
            raise BreakdownError("adds up to no number", field="ops_ms", remedy="correct the breakdown")
        if places["layer"] <= 0:
            raise BreakdownError(
                "has no per-layer time", field="ops_ms", remedy="give the latency of every op of the step"
            )
        return cls(
            layers=partition_layers(num_layers, pp, partition),
            per_layer_ms=places["layer"] / num_layers,
            first_ms=places["first"],
            last_ms=places["last"],
            link_ms=places["link"] if pp > 1 else 0.0,
        )

    @property
    def pp(self) -> int:
        """Number of stages."""
        return len(self.layers)

    @property
    def stage_times_ms(self) -> NDArray[np.float64]:
        """Compute time of each stage for one microbatch [ms], shape (pp,)."""
        times = self.per_layer_ms * np.asarray(self.layers, dtype=np.float64)
        times[0] += self.first_ms
        times[-1] += self.last_ms
        return times

    @property
    def hop_ms(self) -> float:
        """One stage-to-stage transfer [ms]; 0 at pp = 1."""
        return self.link_ms / (self.pp - 1) if self.pp > 1 else 0.0


def check_op_counts(counts: Mapping[str, float], num_layers: int) -> None:
    """Compare where ops are placed with how often each runs in one step, context and generation alike.

    Warns
    -----
    UnknownOpWarning
        A per-layer op does not run a multiple of ``num_layers`` times, or an op of one stage runs once a layer.
    """
    for name, count in counts.items():
        place = _place(name)
        per_layer = count >= num_layers and count % num_layers == 0
        if place != "link" and (place == "layer") != per_layer and num_layers > 1:
            warnings.warn(
                f"op '{name}' is placed as '{place}' by its name and runs {count:g} times a step of {num_layers} layers",
                UnknownOpWarning,
                stacklevel=2,
            )


def _place(name: str) -> str:
    for place, patterns in (
        ("first", FIRST_STAGE),
        ("last", LAST_STAGE),
        ("link", LINK),
        ("layer", PER_LAYER),
    ):
        if any(fnmatchcase(name, pattern) for pattern in patterns):
            return place
    warnings.warn(
        f"op '{name}' is neither per-layer nor known to sit on one stage; it is spread over the layers",
        UnknownOpWarning,
        stacklevel=3,
    )
    return "layer"
