"""``vllm bench serve`` results, old and new keys, its InferenceX fork, ``vllm bench sweep serve``, and InferenceX aggregates.

Output throughput is ``output_throughput`` (output tokens of successes over ``duration``), TTFT ``median_ttft_ms``. ITL and
TPOT are ``median_tpot_ms`` and ``mean_tpot_ms``: the tool's TPOT is ``(latency - TTFT)/(OSL - 1)`` of a request, which is
calib's definition of both, while its ``*_itl_ms`` are gaps between chunks and only a fact. 0.0 means that nothing succeeded
or nothing was streamed. ``backend`` and ``endpoint_type`` name the client's protocol and are never taken for the engine.

The topology is stated by a sweep (``tensor_parallel_size``, ``pipeline_parallel_size``, merged into each run) and by
``--metadata tp=4 pp=2``, whose values are text.

An InferenceX aggregate (``agg_*.json``) has its latencies in **seconds** under the names without ``_ms``, and output
throughput per GPU (``output_tput_per_gpu``; ``tput_per_gpu`` counts input tokens too and is refused). Its GPUs are
``tp*pp*pcp_size``. Disaggregated and multi-node ones, whose denominator is the decode GPUs alone, are not read.
"""

from __future__ import annotations

import datetime as dt
import fnmatch
import re
import statistics
from collections.abc import Mapping
from typing import Any

from calib.measure.readers.quantities import (
    NotReadableError,
    RunBuilder,
    count,
    flag,
    hint,
    mean_of,
    measured,
    number,
    rate,
    read_one,
    tally,
    text,
)
from calib.measure.readers.read_run import ReadRun, UnreadableRun

# The tool writes these beside its runs: copies of them in another shape, and runs that do not count.
NOT_RUNS = ("*.pytorch.json", "summary.json", "warmup.json")
WARMUP = -1  # run_number of a sweep's warm-up, whatever its file is called
# The keys of a sweep are those of the user's parameter file, where both spellings of an option work.
DEGREES = {
    "tp": ("tp", "tensor_parallel_size", "tensor-parallel-size"),
    "pp": ("pp", "pipeline_parallel_size", "pipeline-parallel-size"),
    "dp": ("dp", "data_parallel_size", "data-parallel-size"),
}
ENGINES = {"vllm": "vllm", "sglang": "sglang", "trt": "trtllm", "trtllm": "trtllm", "tensorrt-llm": "trtllm"}


def is_vllm_bench(document: object) -> bool:
    """Whether a JSON document is a ``vllm bench serve`` run or an InferenceX aggregate."""
    if not isinstance(document, dict):
        return False
    is_run = "model_id" in document and ("output_throughput" in document or "total_token_throughput" in document)
    return is_run or is_aggregate(document) or is_failure(document)


def is_failure(document: Mapping[str, Any]) -> bool:
    """Whether a JSON document is what a sweep writes instead of a run that failed (``*failure.json``)."""
    return {"error_type", "error", "serve_overrides"} <= document.keys()


def is_aggregate(document: Mapping[str, Any]) -> bool:
    """Whether a JSON document is an aggregate of InferenceX."""
    return "tput_per_gpu" in document or "output_tput_per_gpu" in document


def parse_vllm_bench(document: Mapping[str, Any], *, file: str, digest: str) -> list[ReadRun | UnreadableRun]:
    """The run of a document; none where it is a warm-up, or ``file`` is one of those the tool writes beside its runs.

    Raises
    ------
    UnknownTopologyError
        A parallelism degree is there and is not a positive whole number.
    """
    name = re.sub(r"\.(gz|zst)$", "", file.rsplit("/", 1)[-1])
    is_copy = any(fnmatch.fnmatchcase(name, pattern) for pattern in NOT_RUNS)
    if is_copy or document.get("run_number") == WARMUP:
        return []
    if is_failure(document):
        kind = hint(document, "error_type") or "unknown error"
        return [UnreadableRun(file, 0, f"is a run of a sweep that failed ({kind[:60]})")]
    return [read_one(_fill_aggregate if is_aggregate(document) else _fill, document, file=file, digest=digest)]


def _fill(draft: RunBuilder, run: dict[str, Any]) -> None:
    done, asked = tally(run, "completed"), count(run, "num_prompts")
    failed = tally(run, "failed")
    if failed is None and done is not None and asked is not None:
        failed = asked - done  # before the key came (October 2025)
        if failed < 0:
            raise NotReadableError(f"field 'completed' = {done} is more than num_prompts = {asked}")
    length = number(run, "duration")
    output, prompt = number(run, "total_output_tokens"), number(run, "total_input_tokens")
    draft.state(
        tool="vllm-bench",
        model=text(run, "model_id"),
        requests_per_s=measured(run, "request_throughput"),
        completed_requests=done,
        failed_requests=failed,
        duration_s=length,
        isl=count(run, "random_input_len") or count(run, "random-input-len"),
        osl=count(run, "random_output_len") or count(run, "random-output-len"),
    )
    draft.throughput(measured(run, "output_throughput"), tokens=output, duration_s=length)
    draft.fact(
        requested_requests=asked,
        measured_isl=mean_of(prompt, done),
        measured_osl=mean_of(output, done),
        start_time=_start(run),
        gpu=hint(run, "gpu"),
    )
    fill_latencies(draft, run)
    draft.load(rate(run, "request_rate"), count(run, "max_concurrency"))
    draft.topology(run, DEGREES)


def fill_latencies(draft: RunBuilder, run: dict[str, Any]) -> None:
    """Latencies of a run whose keys are those of ``vllm bench serve`` (SGLang's are the same).

    With ``--save-detailed`` the TTFT of each request is in the file [s], 0.0 for a failed one: then the median is taken
    over the others, since some versions let the zeros into their own.
    """
    ttft = measured(run, "median_ttft_ms")
    each = run.get("ttfts")
    if isinstance(each, list) and 0 in each and all(isinstance(t, int | float) for t in each):
        real = [t for t in each if t > 0]
        ttft = 1000 * statistics.median(real) if real else None
    draft.state(
        ttft_p50_ms=ttft, itl_p50_ms=measured(run, "median_tpot_ms"), tpot_mean_ms=measured(run, "mean_tpot_ms")
    )
    if number(run, "mean_ttft_ms") == 0 and tally(run, "completed"):
        draft.fact(streaming=False)
        # Without TTFT the tool's TPOT is latency/(OSL - 1), which is not a time per output token.
        for column in ("ttft_p50_ms", "itl_p50_ms", "tpot_mean_ms"):
            draft.cannot_map(column, "TTFT is 0, so the answers were not streamed")
    elif measured(run, "median_itl_ms") is not None and "itl_p50_ms" not in draft.stated:
        draft.cannot_map("itl_p50_ms", "only gaps between chunks are in the file, which may hold several tokens each")
    draft.chunks(measured(run, "mean_itl_ms"), measured(run, "mean_tpot_ms"))


def _start(run: dict[str, Any]) -> str | None:
    """ISO 8601; without a zone where the tool wrote local time."""
    seconds = number(run, "benchmark_start_time_unix")
    if seconds is not None and 0 < seconds < 1e11:
        return dt.datetime.fromtimestamp(seconds, dt.UTC).isoformat().replace("+00:00", "Z")
    try:
        return dt.datetime.strptime(hint(run, "date") or "", "%Y%m%d-%H%M%S").isoformat()
    except ValueError:
        return None


def _fill_aggregate(draft: RunBuilder, run: dict[str, Any]) -> None:
    if flag(run, "disagg"):
        raise NotReadableError("field 'disagg' = true: throughput of disaggregated prefill is per decode GPU only")
    if "num_decode_gpu" in run or "decode_tp" in run:
        raise NotReadableError(
            "field 'num_decode_gpu': prefill and decode have their own GPUs, which tp and pp cannot say"
        )
    draft.topology(run, {"tp": ("tp",), "pp": ("pp",)})
    prefill_ranks = count(run, "pcp_size") or 1  # files from before prefill context parallelism lack the key
    if prefill_ranks > 1:
        raise NotReadableError(
            f"field 'pcp_size' = {prefill_ranks}: the run table has no place for context parallelism"
        )
    precision, engine = text(run, "precision"), text(run, "framework")
    draft.state(
        tool="inferencex",
        model=text(run, "model"),
        precision=precision and precision.lower(),
        backend=ENGINES.get((engine or "").lower()),
        backend_version=_image_version(hint(run, "image")),
        isl=count(run, "isl"),
        osl=count(run, "osl"),
        concurrency=count(run, "conc"),
        ttft_p50_ms=_ms(run, "median_ttft"),
        itl_p50_ms=_ms(run, "median_tpot"),
        tpot_mean_ms=_ms(run, "mean_tpot"),
    )
    attention = True if run.get("dp_attention") in (True, "true") else None  # the flag of a shell script
    draft.fact(disaggregated=flag(run, "disagg"), gpu=hint(run, "hw"), dp_attention=attention)
    draft.chunks(_ms(run, "mean_itl"), _ms(run, "mean_tpot"))
    _fill_per_gpu(draft, run)


def _fill_per_gpu(draft: RunBuilder, run: dict[str, Any]) -> None:
    per_gpu, tp, pp = measured(run, "output_tput_per_gpu"), draft.stated.get("tp"), draft.stated.get("pp")
    if isinstance(tp, int) and isinstance(pp, int):
        draft.state(gpus=tp * pp, output_tokens_per_s=None if per_gpu is None else per_gpu * tp * pp)
    elif per_gpu is not None:
        draft.cannot_map("output_tokens_per_s", "it is per GPU, and tp or pp is not stated")
    if per_gpu is None:
        draft.cannot_map("output_tokens_per_s", "tput_per_gpu counts input tokens too")


def _ms(run: dict[str, Any], name: str) -> float | None:
    seconds = measured(run, name)
    return None if seconds is None else 1000 * seconds


def _image_version(image: str | None) -> str | None:
    """The version in a container's tag: 0.5.5 of ``lmsysorg/sglang:v0.5.5-cu129``; None for tags such as ``latest``."""
    tag = re.search(r":v?(\d+\.\d+(?:\.\d+)*(?:\.?(?:rc|post|dev)\d+)?)(?:-[\w.-]*)?$", image or "")
    return tag[1] if tag else None
