"""genai-perf summaries (``*_genai_perf.json``), with the nested configuration of 0.0.13 and later and the flat older one.

Output throughput is ``output_token_throughput.avg``; TTFT ``time_to_first_token.p50``; ITL and TPOT are
``inter_token_latency.p50`` and ``.avg``, ``(latency - TTFT)/(OSL - 1)`` of a request since June 2024. Before, they were gaps
between chunks. The file names no version: ITL is taken where ``request_count`` is there (written since December 2024) or
where it agrees with the file's own latency, TTFT and OSL, and refused otherwise. Requests with an empty answer are in
``request_throughput`` alone, which is therefore refused where it disagrees with the tokens.

There is no start time, error count or cancel flag. ``endpoint.backend`` is the engine behind a Triton server and means
nothing for another kind of service. A statistic of nothing is a bare ``NaN`` and unknown.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from calib.measure.readers.quantities import (
    TOLERANCE,
    NotReadableError,
    RunBuilder,
    count,
    dig,
    flag,
    measured,
    rate,
    read_one,
    section,
    text,
)
from calib.measure.readers.read_run import ReadRun, UnreadableRun

MS, PER_S, REQUESTS_PER_S, TOKENS = "ms", "tokens/sec", "requests/sec", "tokens"
FLAT = frozenset(
    {"service_kind", "formatted_model_name", "synthetic_input_tokens_mean", "profile_export_file", "subcommand"}
)
OTHERS = frozenset({"aiperf_version", "schema_version", "benchmark_id", "records"})
ENGINES = {"tensorrtllm": "trtllm", "vllm": "vllm"}
CHUNKS_SEEN = 0.05  # means of unequal answers do not multiply exactly; gaps between chunks are off by far more


def is_genai_perf(document: object) -> bool:
    """Whether a JSON document is a genai-perf summary; aiperf, its successor, has other configurations."""
    config = dig(document, "input_config")
    if not isinstance(document, dict) or not isinstance(config, dict) or OTHERS & document.keys():
        return False
    metrics = ("request_throughput", "output_token_throughput", "request_latency", "time_to_first_token")
    is_config = isinstance(config.get("perf_analyzer"), dict) or len(FLAT & config.keys()) >= 2
    return is_config and any(m in document for m in metrics)


def parse_genai_perf(document: Mapping[str, Any], *, file: str, digest: str) -> list[ReadRun | UnreadableRun]:
    """The run of a summary."""
    return [read_one(_fill, document, file=file, digest=digest)]


def _fill(draft: RunBuilder, summary: dict[str, Any]) -> None:
    osl = _stat(summary, "output_sequence_length", "avg", TOKENS)
    draft.state(
        tool="genai-perf",
        output_tokens_per_s=_stat(summary, "output_token_throughput", "avg", PER_S),
        requests_per_s=_stat(summary, "request_throughput", "avg", REQUESTS_PER_S),
        ttft_p50_ms=_stat(summary, "time_to_first_token", "p50", MS),
        itl_p50_ms=_stat(summary, "inter_token_latency", "p50", MS),
        tpot_mean_ms=_stat(summary, "inter_token_latency", "avg", MS),
        completed_requests=_stat(summary, "request_count", "avg", "count", "requests"),
    )
    draft.fact(measured_isl=_stat(summary, "input_sequence_length", "avg", TOKENS), measured_osl=osl)
    _check_requests(draft, osl)
    if "request_count" not in summary:
        _check_tokens(draft, summary, osl)
    if (mean := draft.stated.get("tpot_mean_ms")) is not None:
        draft.fact(inter_token_ms=mean)
    config = section(summary, "input_config")
    if isinstance(config.get("perf_analyzer"), dict):
        _fill_nested(draft, config)
    else:
        _fill_flat(draft, config)


def _stat(summary: dict[str, Any], metric: str, name: str, *units: str) -> float | None:
    block = section(summary, metric)
    value = measured(block, name)
    if value is not None and block.get("unit") not in units:
        raise NotReadableError(f"field '{metric}.unit' = {str(block.get('unit'))[:40]!r} is not {' or '.join(units)}")
    return value


def _check_requests(draft: RunBuilder, osl: float | None) -> None:
    tokens, requests = (draft.stated.get(c) for c in ("output_tokens_per_s", "requests_per_s"))
    if isinstance(tokens, float) and isinstance(requests, float) and osl:
        expected = tokens / osl
        if abs(requests / expected - 1) > TOLERANCE:
            why = f"it counts empty answers: {requests:g} where the tokens are those of {expected:g}"
            draft.cannot_map("requests_per_s", why)


def _check_tokens(draft: RunBuilder, summary: dict[str, Any], osl: float | None) -> None:
    latency = _stat(summary, "request_latency", "avg", MS)
    ttft = _stat(summary, "time_to_first_token", "avg", MS)
    itl = _stat(summary, "inter_token_latency", "avg", MS)
    if itl is None:
        return
    if latency is None or ttft is None or osl is None or osl <= 1 or latency <= ttft:
        why = "the file does not show whether it is per token or, as before June 2024, per chunk"
    elif abs(itl * (osl - 1) / (latency - ttft) - 1) > CHUNKS_SEEN:
        why = f"gaps of {itl:g} ms do not add up over {osl:g} tokens: they are those between chunks"
        draft.fact(inter_chunk_ms=itl, inter_token_ms=(latency - ttft) / (osl - 1))
    else:
        return
    for column in ("itl_p50_ms", "tpot_mean_ms"):
        draft.cannot_map(column, why)


def _fill_nested(draft: RunBuilder, config: dict[str, Any]) -> None:
    """Configuration of 0.0.13 and later."""
    endpoint, given = section(config, "endpoint"), section(config, "input")
    stimulus = section(section(config, "perf_analyzer"), "stimulus")
    draft.state(
        model=_only(config, "model_names"),
        isl=_length(section(given, "synthetic_tokens"), "mean"),
        osl=_length(section(given, "output_tokens"), "mean"),
    )
    _fill_service(draft, endpoint)
    _fill_load(draft, stimulus)


def _fill_flat(draft: RunBuilder, config: dict[str, Any]) -> None:
    """Configuration of earlier releases: the names of the command line's arguments."""
    draft.state(
        model=_only(config, "model"),
        isl=_length(config, "synthetic_input_tokens_mean"),
        osl=_length(config, "output_tokens_mean"),
    )
    _fill_service(draft, config)
    _fill_load(draft, config)


def _fill_service(draft: RunBuilder, values: dict[str, Any]) -> None:
    draft.fact(streaming=flag(values, "streaming"))
    if values.get("service_kind") == "triton":
        backend = values.get("backend")
        draft.state(backend=ENGINES.get(backend) if isinstance(backend, str) else None)


def _fill_load(draft: RunBuilder, values: dict[str, Any]) -> None:
    level = {"concurrency": _first(values.get("concurrency")), "request_rate": _first(values.get("request_rate"))}
    if level["request_rate"] is not None:
        draft.load(rate(level, "request_rate"), None)
    elif level["concurrency"] is not None:
        draft.load(math.inf, count(level, "concurrency"))


def _first(value: Any) -> Any:
    """A setting, which some releases write as a list of one."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _only(config: dict[str, Any], name: str) -> str | None:
    value = _first(config.get(name))
    return None if isinstance(value, list) else text({name: value}, name)


def _length(values: dict[str, Any], name: str) -> int | None:
    """Asked length [tokens]; genai-perf writes -1 where none was asked for."""
    return None if values.get(name) == -1 else count(values, name)
