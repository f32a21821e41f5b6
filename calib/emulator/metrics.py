"""The engine's state in the names of each serving engine: as Prometheus text, and as aiperf exports a scrape of it.

Names and labels as in vLLM (V1), SGLang and TensorRT-LLM's ``trtllm-serve``; of each only what calib reads, and gauges that
show that something runs. There is no prefix cache, so its hits are 0.
"""

from __future__ import annotations

from dataclasses import dataclass

from calib.emulator.engine import Engine
from calib.emulator.physics import EngineSpec


@dataclass(frozen=True)
class EngineMetric:
    """One series; a counter's ``name`` ends with ``_total``."""

    name: str
    kind: str
    labels: dict[str, str]
    value: float


@dataclass(frozen=True)
class State:
    """What is counted [requests, tokens]."""

    running: int = 0
    waiting: int = 0
    prompt_tokens: int = 0
    generated_tokens: int = 0
    finished: int = 0

    @classmethod
    def of(cls, engine: Engine) -> State:
        """The present state of an engine."""
        return cls(engine.running, engine.waiting, engine.prompt_tokens, engine.generated_tokens, engine.finished)


def metrics(spec: EngineSpec, state: State) -> list[EngineMetric]:
    """Every series, in the names of ``spec.backend``."""
    return {"vllm": _vllm, "sglang": _sglang, "trtllm": _trtllm}[spec.backend](spec, state)


def prometheus_text(spec: EngineSpec, state: State) -> str:
    """The exposition format of ``/metrics``."""
    lines = []
    for m in metrics(spec, state):
        labels = ",".join(f'{k}="{v}"' for k, v in m.labels.items())
        lines += [f"# TYPE {m.name} {m.kind}", f"{m.name}{{{labels}}} {float(m.value)!r}"]
    return "\n".join(lines) + "\n"


def scrape(spec: EngineSpec, state: State, url: str) -> dict[str, object]:
    """The ``metrics`` of aiperf's ``server_metrics_export.json``: counters lose ``_total`` and have a ``total``."""
    found: dict[str, object] = {}
    for m in metrics(spec, state):
        stats = {"total": float(m.value)} if m.kind == "counter" else {"avg": float(m.value)}
        series = [{"endpoint_url": f"{url}/metrics", "labels": m.labels, "stats": stats}]
        found[m.name.removesuffix("_total")] = {"type": m.kind, "description": "", "unit": "", "series": series}
    return found


def _vllm(spec: EngineSpec, state: State) -> list[EngineMetric]:
    labels = {"model_name": spec.model.name, "engine": "0"}
    return [
        EngineMetric("vllm:num_requests_running", "gauge", labels, state.running),
        EngineMetric("vllm:num_requests_waiting", "gauge", labels, state.waiting),
        EngineMetric("vllm:prompt_tokens_total", "counter", labels, state.prompt_tokens),
        EngineMetric("vllm:generation_tokens_total", "counter", labels, state.generated_tokens),
        EngineMetric("vllm:prefix_cache_queries_total", "counter", labels, state.prompt_tokens),
        EngineMetric("vllm:prefix_cache_hits_total", "counter", labels, 0),
        EngineMetric("vllm:request_success_total", "counter", labels | {"finished_reason": "length"}, state.finished),
    ]


def _sglang(spec: EngineSpec, state: State) -> list[EngineMetric]:
    labels = {
        "model_name": spec.model.name, "engine_type": "unified", "tp_rank": "0", "pp_rank": "0", "moe_ep_rank": "0",
    }  # fmt: skip
    return [
        EngineMetric("sglang:num_running_reqs", "gauge", labels, state.running),
        EngineMetric("sglang:num_queue_reqs", "gauge", labels, state.waiting),
        EngineMetric("sglang:prompt_tokens_total", "counter", labels, state.prompt_tokens),
        EngineMetric("sglang:generation_tokens_total", "counter", labels, state.generated_tokens),
        EngineMetric("sglang:cached_tokens_total", "counter", labels | {"cache_source": "device"}, 0),
        EngineMetric("sglang:num_requests_total", "counter", labels, state.finished),
    ]


def _trtllm(spec: EngineSpec, state: State) -> list[EngineMetric]:
    labels = {"model_name": spec.model.name, "engine_type": "trtllm"}
    degrees = {
        "tensor_parallel_size": str(spec.tp), "pipeline_parallel_size": str(spec.pp), "gpu_count": str(spec.gpus),
    }  # fmt: skip
    return [
        EngineMetric("trtllm_parallel_config_info", "gauge", degrees, 1),
        EngineMetric("trtllm_num_requests_running", "gauge", labels, state.running),
        EngineMetric("trtllm_num_requests_waiting", "gauge", labels, state.waiting),
        EngineMetric("trtllm_prompt_tokens_total", "counter", labels, state.prompt_tokens),
        EngineMetric("trtllm_generation_tokens_total", "counter", labels, state.generated_tokens),
        EngineMetric("trtllm_kv_cache_reused_blocks_total", "counter", labels, 0),
        EngineMetric("trtllm_kv_cache_missed_blocks_total", "counter", labels, -(-state.prompt_tokens // 32)),
        EngineMetric("trtllm_request_success_total", "counter", labels | {"finished_reason": "length"}, state.finished),
    ]
