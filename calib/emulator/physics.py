"""How long each stage of an emulated engine takes for one microbatch.

Per-op latencies go through `calib.pipeline.layout`, so that an emulated stage holds what calib believes it holds. With n
requests in a microbatch on ``tp`` of G GPUs, and ``u = n*G/tp`` the batch that would load a TP=G engine as much,

    scale(u) = 1 + (u/knee)^2
    op       = op of an empty TP=G engine * scale(u)            head, hop
    op       = the same * (scale(u) + prefill*tokens*G/tp)      layers and embedding; tokens of prompts in this step

so pp microbatches of C/pp requests take, without overhead, imbalance and fill, as long as one of C at TP=G: *changing the TP
degree costs nothing here*. That is what makes the truth of `calib.emulator.law` the residual against the TP=G/PP=1 baseline.
The throughput of a closed loop of C requests, ``C/scale(C)``, is largest at C = knee. It is a shape, not a GPU.
"""

from __future__ import annotations

from functools import cached_property

import msgspec
import numpy as np

from calib.arrays import Array
from calib.emulator.law import Law, Log2Law, checked_residual
from calib.errors import UsageError
from calib.names import BACKENDS
from calib.pipeline import PipelineLayout, PipelineSteadyState, Step, StepKind, microbatch_size


class EmulatedModel(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A model as its times: one layer, embedding, head (logits) and one hop of an empty TP=G engine [ms].

    ``knee`` is the concurrency of the highest throughput [requests]; ``prefill`` what a prompt token costs, as a share of an
    empty engine's step. The defaults resemble an 8B model: 36 layers, a head of two layers.
    """

    name: str = "emulated-36l"
    layers: int = 36
    layer_ms: float = 0.25
    embedding_ms: float = 0.05
    head_ms: float = 0.5
    hop_ms: float = 0.02
    knee: float = 14.0
    prefill: float = 1e-4


class EngineSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One emulated engine.

    Attributes
    ----------
    gpus, tp, pp
        Of one replica, ``gpus = tp*pp``.
    chunk_tokens
        Prompt tokens of one step at most, shared by the prompts of a microbatch in their order.
    max_num_seqs
        Requests in the engine at most; others wait.
    jitter
        Relative standard deviation of the time of a step [1]; one draw a step, for all of its stages.
    run_noise
        Relative standard deviation of the pace of a whole run [1]: one draw an engine. Silicon never runs a benchmark twice
        at the same pace, and without it the points of a campaign would scatter less than they are off.
    penalty
        Further overhead of each stage visit as a share of the cycle [1], outside the law: what a flag costs.
    early_end
        Share of the requests whose output ends early, ``ignore_eos`` or not, at a random length.
    """

    model: EmulatedModel = EmulatedModel()
    law: Law = Log2Law(0.2)
    gpus: int = 8
    tp: int = 8
    pp: int = 1
    partition: str = "vllm"
    backend: str = "vllm"
    chunk_tokens: int = 8192
    max_num_seqs: int = 1024
    jitter: float = 0.0
    run_noise: float = 0.0
    penalty: float = 0.0
    early_end: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.tp < 1 or self.pp < 1 or self.tp * self.pp != self.gpus:
            raise UsageError("is not tp*pp", field="gpus", value=self.gpus, remedy="correct gpus, tp or pp")
        if self.backend not in BACKENDS:
            raise UsageError("is not a known engine", field="backend", value=self.backend,
                             remedy=f"use one of {', '.join(BACKENDS)}")  # fmt: skip
        for name, least in (
            ("chunk_tokens", 1),
            ("max_num_seqs", 1),
            ("jitter", 0.0),
            ("run_noise", 0.0),
            ("penalty", 0.0),
        ):
            if getattr(self, name) < least:
                raise UsageError(f"must be at least {least}", field=name, value=getattr(self, name))
        for name in ("early_end", "jitter", "run_noise"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise UsageError("must be from 0 to 1", field=name, value=getattr(self, name))


def ops_ms(spec: EngineSpec, n: int, prompt_tokens: int = 0) -> dict[str, float]:
    """Per-op latencies [ms] of one step of n requests: all layers, all hops."""
    model, share = spec.model, spec.gpus / spec.tp
    scale = 1.0 + (n * share / model.knee) ** 2
    layers = scale + model.prefill * prompt_tokens * share
    return {
        "generation_embedding": model.embedding_ms * layers,
        "generation_attention_and_mlp_layers": model.layers * model.layer_ms * layers,
        "generation_logits_gemm": model.head_ms * scale,
        "generation_p2p": (spec.pp - 1) * model.hop_ms * scale,
    }


def steady_state(spec: EngineSpec, n: int, concurrency: int | None = None) -> PipelineSteadyState:
    """calib's closed forms for a decode step of n requests: what the engine is held against."""
    layout = PipelineLayout.from_ops(ops_ms(spec, n), spec.model.layers, spec.pp, spec.partition)
    return PipelineSteadyState(layout, concurrency)


def breakdown_step(spec: EngineSpec, *, concurrency: int, isl: int, osl: int, kind: StepKind = "decode") -> Step:
    """The step that calib is told of: the engine's own latencies at this concurrency, for the breakdown file."""
    n = microbatch_size(concurrency, spec.pp)
    tokens = {"decode": 0, "mixed": min(isl, spec.chunk_tokens), "prefill": spec.chunk_tokens}[kind]
    return Step(
        model=spec.model.name, backend=spec.backend, tp=spec.tp, pp=spec.pp, concurrency=concurrency, microbatch=n,
        isl=isl, osl=osl, num_layers=spec.model.layers, status="computed", kind=kind, ops_ms=ops_ms(spec, n, tokens),
    )  # fmt: skip


class StageTimes:
    """Busy times of the stages, overhead included, for microbatches of one engine. Decode steps are remembered."""

    def __init__(self, spec: EngineSpec) -> None:
        self.spec = spec
        self._known: dict[tuple[int, int, int], tuple[float, ...]] = {}

    @cached_property
    def _parts(self) -> tuple[Array, Array]:
        """Busy time per unit of ``layers`` and of ``scale`` [ms], each shape (pp,)."""
        model, pp = self.spec.model, self.spec.pp
        ops = {"layers": model.layers * model.layer_ms, "embedding": model.embedding_ms}
        layers = PipelineSteadyState(PipelineLayout.from_ops(ops, model.layers, pp, self.spec.partition))
        rest = np.zeros(pp)
        rest[:-1] += model.hop_ms
        rest[-1] += model.head_ms
        return layers.busy_ms, rest

    @cached_property
    def link_share(self) -> float:
        """What the hops are of all the work of a decode step [1]; a TP=G engine has none."""
        state = steady_state(self.spec, 1)
        return state.layout.link_ms / state.step_total_ms

    def busy_ms(self, n: int, prompt_tokens: int, load: int) -> tuple[float, ...]:
        """Time each stage is taken by one microbatch [ms], length pp: compute, transfer and scheduling overhead.

        ``n`` requests and ``prompt_tokens`` in the microbatch, ``load`` requests in the engine.
        """
        key = (n, prompt_tokens, load)
        if key not in self._known:
            spec, (layers, rest) = self.spec, self._parts
            share = spec.gpus / spec.tp
            scale = 1.0 + (n * share / spec.model.knee) ** 2
            busy = layers * (scale + spec.model.prefill * prompt_tokens * share) + rest * scale
            residual = checked_residual(spec.law, spec.pp, load)
            overhead = max(0.0, (1.0 - self.link_share) / residual - 1.0) + spec.penalty
            busy = busy + float(busy.max()) * overhead
            self._known[key] = tuple(busy.tolist())
        return self._known[key]
