"""SGLang's ``bench_serving`` (``sglang.benchmark.serving``): JSON lines, one a run, appended to the same file.

Keys and definitions are those of ``vllm bench serve``: output throughput is ``output_throughput``, TTFT ``median_ttft_ms``,
ITL and TPOT ``median_tpot_ms`` and ``mean_tpot_ms``; ``*_itl_ms`` are gaps between chunks and only a fact. The setting of
the closed loop is ``max_concurrency``; ``concurrency`` is a time average by Little's law (fact ``effective_concurrency``),
and ``max_concurrent_requests`` and ``max_output_tokens_per_s`` are not used.

``server_info`` is the server's own account of itself and gives engine, version, tp, pp and dp; it is null where the server
is not SGLang. ``backend`` names the client's protocol. Model and date are not in the file, nor the number of failed requests
unless ``--output-details`` lists every request.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from calib.measure.readers.quantities import (
    NotReadableError,
    RunBuilder,
    count,
    flag,
    mean_of,
    measured,
    number,
    rate,
    read_one,
    section,
    tally,
    text,
)
from calib.measure.readers.read_run import ReadRun, UnreadableRun
from calib.measure.readers.vllm_bench import fill_latencies

DEGREES = {"tp": ("tp_size",), "pp": ("pp_size",), "dp": ("dp_size",)}


def is_sglang_bench(document: object) -> bool:
    """Whether a JSON document is one line of ``bench_serving``."""
    if not isinstance(document, dict) or "output_throughput" not in document:
        return False
    return "total_output_tokens_retokenized" in document or {"sharegpt_output_len", "server_info"} <= document.keys()


def parse_sglang_bench(document: Mapping[str, Any], *, file: str, digest: str) -> list[ReadRun | UnreadableRun]:
    """The run of one line.

    Raises
    ------
    UnknownTopologyError
        A parallelism degree is there and is not a positive whole number.
    """
    return [read_one(_fill, document, file=file, digest=digest)]


def _fill(draft: RunBuilder, run: dict[str, Any]) -> None:
    done, length = tally(run, "completed"), number(run, "duration")
    output, prompt = number(run, "total_output_tokens"), number(run, "total_input_tokens")
    # The lengths of a random data set are in the file whatever data set was used.
    is_random = (text(run, "dataset_name") or "").startswith("random")
    draft.state(
        tool="sglang-bench",
        requests_per_s=measured(run, "request_throughput"),
        completed_requests=done,
        duration_s=length,
        isl=count(run, "random_input_len") if is_random else None,
        osl=count(run, "random_output_len") if is_random else None,
    )
    draft.throughput(measured(run, "output_throughput"), tokens=output, duration_s=length)
    draft.fact(
        measured_isl=mean_of(prompt, done),
        measured_osl=mean_of(output, done),
        effective_concurrency=measured(run, "concurrency"),
    )
    fill_latencies(draft, run)
    draft.load(rate(run, "request_rate"), count(run, "max_concurrency"))
    _fill_failed(draft, run, done)
    _fill_server(draft, section(run, "server_info"))


def _fill_failed(draft: RunBuilder, run: dict[str, Any], done: int | None) -> None:
    each = run.get("input_lens")
    if not isinstance(each, list) or done is None:
        return
    if done > len(each):
        raise NotReadableError(f"field 'completed' = {done} is more than the {len(each)} requests listed")
    draft.state(failed_requests=len(each) - done)
    draft.fact(requested_requests=len(each))


def _fill_server(draft: RunBuilder, server: dict[str, Any]) -> None:
    if not server:
        return
    draft.topology(server, DEGREES)
    precision = text(server, "quantization")
    draft.state(
        backend="sglang",
        backend_version=text(server, "version"),
        model=text(server, "model_path"),
        precision=precision and precision.lower(),
    )
    if (mode := text(server, "disaggregation_mode")) is not None:
        draft.fact(disaggregated=mode != "null")
    tp, pp, dp = (draft.stated.get(c) for c in ("tp", "pp", "dp"))
    if not (isinstance(tp, int) and isinstance(pp, int) and isinstance(dp, int)):
        return
    if flag(server, "enable_dp_attention"):
        # The attention ranks lie within the tp*pp GPUs: dp multiplies nothing, and is not calib's dp.
        draft.stated.pop("dp")
        draft.fact(dp_attention=dp)
        draft.state(gpus=tp * pp)
    else:
        draft.state(gpus=tp * pp * dp)
