"""``trtllm-bench --report_json``: the one report with engine, version, tp, pp and GPU count all inside.

Output throughput is ``system_output_throughput_tok_s``; duration ``total_latency_ms``. TTFT is the median of
``ttft_percentiles`` and ITL that of ``tpot_percentiles`` (``(latency - TTFT)/(OSL - 1)`` of a request), TPOT is
``avg_tpot_ms``; all three only with ``--streaming``. The percentile blocks name no unit, so a median is taken only where it
is of the order of the average in ms. ``itl_percentiles`` of older reports are not used.

The run is in-process: no HTTP, unlike all other tools. The configured concurrency is not in the report, only its average
(fact ``effective_concurrency``), nor are the lengths asked for. Failed requests stay in ``num_requests``, so that the
completed ones are not known either.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from calib.measure.readers.quantities import RunBuilder, count, hint, measured, number, read_one, section, text
from calib.measure.readers.read_run import ReadRun, UnreadableRun

DEGREES = {"tp": ("tp_size",), "pp": ("pp_size",), "gpus": ("world_size",)}
SAME_UNIT = 100.0  # a median this many times its average, or more, is in another unit


def is_trtllm_bench(document: object) -> bool:
    """Whether a JSON document is a report of ``trtllm-bench``."""
    parts = ("world_info", "request_info", "performance")
    return isinstance(document, dict) and sum(isinstance(document.get(p), dict) for p in parts) >= 2


def parse_trtllm_bench(document: Mapping[str, Any], *, file: str, digest: str) -> list[ReadRun | UnreadableRun]:
    """The run of a report.

    Raises
    ------
    UnknownTopologyError
        A parallelism degree or the world size is there and is not a positive whole number.
    """
    return [read_one(_fill, document, file=file, digest=digest)]


def _fill(draft: RunBuilder, report: dict[str, Any]) -> None:
    engine, requests = section(report, "engine"), section(report, "request_info")
    speed = section(report, "performance")
    precision, length = text(engine, "quantization"), number(speed, "total_latency_ms")
    draft.topology(section(report, "world_info"), DEGREES)
    draft.state(
        tool="trtllm-bench",
        tool_version=text(engine, "version"),
        model=text(engine, "model"),
        backend="trtllm",
        backend_version=text(engine, "version"),
        precision=precision and precision.lower(),
        output_tokens_per_s=measured(speed, "system_output_throughput_tok_s"),
        requests_per_s=measured(speed, "request_throughput_req_s"),
        duration_s=None if length is None else length / 1000,
    )
    draft.fact(
        requested_requests=count(requests, "num_requests"),
        effective_concurrency=measured(requests, "avg_num_concurrent_requests"),
        measured_isl=measured(requests, "avg_input_length"),
        measured_osl=measured(requests, "avg_output_length"),
        gpu=hint(section(report, "machine"), "name"),
    )
    draft.cannot_map("concurrency", "the report holds its average and not the setting")
    draft.cannot_map("completed_requests", "num_requests counts failed requests too")
    _fill_streaming(draft, section(report, "streaming_metrics"), streamed="streaming_metrics" in report)


def _fill_streaming(draft: RunBuilder, streaming: dict[str, Any], *, streamed: bool) -> None:
    draft.fact(streaming=streamed)
    draft.state(tpot_mean_ms=measured(streaming, "avg_tpot_ms"))
    for column, block, average in (
        ("ttft_p50_ms", "ttft_percentiles", "avg_ttft_ms"),
        ("itl_p50_ms", "tpot_percentiles", "avg_tpot_ms"),
    ):
        median, mean = measured(section(streaming, block), "p50"), measured(streaming, average)
        if median is None:
            continue
        if mean is None or not 1 / SAME_UNIT < abs(median / mean) < SAME_UNIT:
            draft.cannot_map(column, f"{block}.p50 = {median:g} is not known to be in ms ({average} = {mean})")
        else:
            draft.state(**{column: median})
    draft.fact(inter_token_ms=measured(streaming, "avg_tpot_ms"))
