"""Breakdowns from peak figures: each op takes the longer of its arithmetic and its memory traffic.

    t(op) = max(flops / (peak * MFU), bytes / (bandwidth * MBU)) + launch

This is the only choice for GPUs that no public kernel table covers, H20 among them. It knows dense and mixture-of-experts
models, grouped-query and multi-head latent attention, bf16 and fp8 weights (the head stays bf16). The roofline model:
Williams, Waterman and Patterson, Communications of the ACM 52(4), 2009. The efficiencies are round figures for well-tuned
kernels, the same for every op, so that balance factors do not depend on them except through ``launch``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from calib.errors import BreakdownError
from calib.pipeline.breakdown import Provider, Step, StepRequest, answer
from calib.pipeline.gpu import Gpu, load_gpu
from calib.pipeline.model_shape import ModelShape, load_shape
from calib.pipeline.steady_state import microbatch_size

MFU = 0.7
MBU = 0.8
LAUNCH_US = 3.0  # fixed cost of one kernel
ACTIVATION_BYTES = 2

Op = tuple[str, float, float, float]  # name, count a step, flops, bytes: of one execution on one GPU


@dataclass(frozen=True)
class _Work:
    """One forward pass on one pipeline: ``tokens`` processed, of which the rest of the fields say what kind."""

    prefix: str
    tokens: int
    outputs: int  # tokens that need logits
    sequences: int
    context: float  # tokens each sequence attends to, on average
    causal: bool  # prefill: attention among the tokens themselves


class RooflineProvider:
    """Decode and mixed steps from a GPU description and a model's ``config.json``.

    Parameters
    ----------
    gpu
        A shipped system, a TOML file, or a description.

    Raises
    ------
    BreakdownError
        No such description.
    """

    def __init__(self, gpu: str | Gpu) -> None:
        self.gpu = gpu if isinstance(gpu, Gpu) else load_gpu(gpu)

    @property
    def provider(self) -> Provider:
        """The GPU and the efficiencies assumed."""
        return Provider(
            name="calib roofline",
            version="1",
            system=self.gpu.system,
            note=f"{self.gpu.name}, MFU {MFU:g}, MBU {MBU:g}, {LAUNCH_US:g} us a kernel; not measured",
        )

    def step(self, request: StepRequest) -> Step:
        """One step at microbatch ``ceil(C/pp)``.

        Raises
        ------
        BreakdownError
            Another system than the provider's, no configuration of the model, or heads that tp does not divide.
        """
        if request.system != self.gpu.system:
            raise BreakdownError("is not this provider's system", field="system", value=request.system)
        shape = load_shape(request.model, request.config)
        if shape.heads % request.tp:
            raise BreakdownError(
                f"does not divide the {shape.heads} heads of {request.model}", field="tp", value=request.tp,
                remedy="choose another tensor-parallel degree",
            )  # fmt: skip
        microbatch = microbatch_size(request.concurrency, request.pp)
        return answer(
            request,
            microbatch=microbatch,
            num_layers=shape.layers,
            ops_ms=self._ops_ms(shape, request, microbatch),
            across_nodes=self.gpu.scope(request.tp * request.pp) == "inter-node",
        )

    def _ops_ms(self, shape: ModelShape, request: StepRequest, microbatch: int) -> dict[str, float]:
        total: dict[str, float] = {}
        for work in _works(request, microbatch):
            for name, count, flops, size in _ops(shape, work, request.tp):
                peak = self.gpu.bf16_tflops if shape.weight_bytes == 2 or "logits" in name else self.gpu.fp8_tflops
                ms = max(flops / (peak * MFU * 1e9), size / (self.gpu.memory_gb_per_s * MBU * 1e6)) + LAUNCH_US / 1e3
                total[f"{work.prefix}_{name}"] = total.get(f"{work.prefix}_{name}", 0.0) + count * ms
            message = work.tokens * shape.hidden * ACTIVATION_BYTES
            reduce_ms = self.gpu.all_reduce_ms(message, tp=request.tp)
            total[f"{work.prefix}_embedding_ar"] = reduce_ms
            total[f"{work.prefix}_ar_1"] = total[f"{work.prefix}_ar_2"] = shape.layers * reduce_ms
            total[f"{work.prefix}_p2p"] = (request.pp - 1) * self.gpu.hop_ms(message, tp=request.tp, pp=request.pp)
        return total


def _works(request: StepRequest, microbatch: int) -> list[_Work]:
    """What one step of a kind is made of: see `calib.pipeline.breakdown.StepKind`."""
    isl, seen = request.isl, request.isl + request.osl / 2  # tokens a decoding request attends to, on average
    if request.kind == "decode":
        return [_Work("generation", microbatch, microbatch, microbatch, seen, causal=False)]
    if request.kind == "prefill":  # a full chunk, of as many requests as it holds
        sequences = -(-request.chunk_tokens // isl)
        return [
            _Work(
                "context", request.chunk_tokens, sequences, sequences, min(isl, request.chunk_tokens) / 2, causal=True
            )
        ]
    chunk = _Work("context", min(request.chunk_tokens, isl), 1, 1, isl / 2, causal=True)
    rest = microbatch - 1
    return [chunk, _Work("generation", rest, rest, rest, seen, causal=False)] if rest else [chunk]


def _ops(shape: ModelShape, work: _Work, tp: int) -> Iterator[Op]:
    layers, h, t = shape.layers, shape.hidden, work.tokens
    norm = 4 * h * t * ACTIVATION_BYTES
    yield "embedding", 1, 0.0, 2 * h * t * ACTIVATION_BYTES
    yield "add_norm_1", layers, 0.0, norm
    yield "add_norm_2", layers, 0.0, norm
    yield from _attention(shape, work, tp)
    if shape.moe is None:
        yield from _feed_forward("", shape, work, tp, layers, shape.intermediate)
    else:
        yield from _experts(shape, work, tp)
    yield "logits_gemm", 1, *_gemm(work.outputs, h, shape.vocab / tp, 2)


def _attention(shape: ModelShape, work: _Work, tp: int) -> Iterator[Op]:
    layers, h, t, w = shape.layers, shape.hidden, work.tokens, shape.weight_bytes
    pairs = work.tokens * work.context  # query-key pairs: a causal chunk sees half of itself, which `context` holds
    if shape.mla is not None:
        m, heads = shape.mla, shape.heads / tp
        latent = m.kv_rank + m.rope_dim  # the cache is shared by the heads, so tp does not divide it
        yield "q_a_gemm", layers, *_gemm(t, h, m.q_rank, w)
        yield "q_b_gemm", layers, *_gemm(t, m.q_rank, heads * (m.nope_dim + m.rope_dim), w)
        yield "kv_a_gemm", layers, *_gemm(t, h, latent, w)
        yield "kv_b_gemm", layers, *_gemm(t, m.kv_rank, heads * (m.nope_dim + m.v_dim), w)
        cache = (t if work.causal else work.sequences * work.context) * latent * ACTIVATION_BYTES
        yield "attention", layers, 2 * pairs * heads * (latent + m.kv_rank), cache
        yield "proj_gemm", layers, *_gemm(t, heads * m.v_dim, h, w)
        return
    q, kv = shape.heads * shape.head_dim / tp, max(1.0, shape.kv_heads / tp) * shape.head_dim
    yield "qkv_gemm", layers, *_gemm(t, h, q + 2 * kv, w)
    cache = (t if work.causal else work.sequences * work.context) * 2 * kv * ACTIVATION_BYTES
    yield "attention", layers, 4 * pairs * q, cache
    yield "proj_gemm", layers, *_gemm(t, q, h, w)


def _feed_forward(name: str, shape: ModelShape, work: _Work, tp: int, layers: float, width: float) -> Iterator[Op]:
    h, t, w = shape.hidden, work.tokens, shape.weight_bytes
    yield f"{name}gate_ffn1_gemm", layers, *_gemm(t, h, 2 * width / tp, w)
    yield f"{name}act_gate", layers, 0.0, 3 * width / tp * t * ACTIVATION_BYTES
    yield f"{name}ffn2_gemm", layers, *_gemm(t, width / tp, h, w)


def _experts(shape: ModelShape, work: _Work, tp: int) -> Iterator[Op]:
    """Experts sharded like tensor parallelism. Of E experts, ``E*(1 - (1 - k/E)^T)`` are touched by T tokens."""
    moe, h, t, w = shape.moe, shape.hidden, work.tokens, shape.weight_bytes
    assert moe is not None
    layers = shape.layers - moe.dense_layers
    touched = moe.experts * (1 - (1 - moe.top_k / moe.experts) ** t)
    weights = 3 * h * moe.intermediate / tp
    yield "router_gemm", layers, *_gemm(t, h, moe.experts, 2)
    yield "moe", layers, 2 * t * moe.top_k * weights, touched * weights * w + 2 * t * moe.top_k * h * ACTIVATION_BYTES
    if moe.shared:
        yield from _feed_forward("shared_", shape, work, tp, layers, moe.shared * moe.intermediate)
    if moe.dense_layers:  # averaged over the stages: a layout has one time a layer
        yield from _feed_forward("", shape, work, tp, moe.dense_layers, shape.intermediate)


def _gemm(m: float, k: float, n: float, weight_bytes: int) -> tuple[float, float]:
    """Flops and bytes of an (m, k) by (k, n) product."""
    return 2 * m * k * n, k * n * weight_bytes + (m * k + m * n) * ACTIVATION_BYTES
