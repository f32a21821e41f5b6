"""guidellm reports, 0.2 to 0.8: many benchmarks a file, one per load level.

========  =====================================  ===========================================
version   known by                               load level
========  =====================================  ===========================================
0.2, 0.3  ``benchmarks[].args``                  ``args.strategy.streams``
0.4       top-level ``args``                     ``config.strategy.streams``, ``max_concurrency``
0.5, 0.6  ``metadata.version`` 1                 the same
0.7, 0.8  ``metadata.version`` 2, ``config``     the same
========  =====================================  ===========================================

Only ``metrics.*.successful`` is read; ``total`` mixes in zeros of failed requests. Output throughput is
``output_tokens_per_second.successful.mean`` and TTFT ``time_to_first_token_ms.successful.median``. ITL and TPOT both come
from ``inter_token_latency_ms`` (median, mean), which is ``(last token - first token)/(OSL - 1)`` of a request counted once
per token: for equal lengths that is calib's definition, else longer answers weigh more. ``time_per_output_token_ms`` is not
used: it includes TTFT from 0.4 on and divides by OSL before.

A synchronous benchmark is a concurrency of 1. ``backend`` describes the client; the server is not in the file.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping
from typing import Any

from calib.measure.readers.quantities import (
    RunBuilder,
    count,
    dig,
    flag,
    measured,
    number,
    numbered,
    read_one,
    section,
    tally,
    text,
)
from calib.measure.readers.read_run import ReadRun, UnreadableRun

TRIMS = ("warmup", "cooldown", "warmup_number", "warmup_duration", "cooldown_number", "cooldown_duration")
RATES = frozenset({"constant", "poisson", "async", "rate"})


def is_guidellm(document: object) -> bool:
    """Whether a JSON document is a guidellm report."""
    benchmarks = dig(document, "benchmarks")
    if not isinstance(benchmarks, list):
        return False
    if dig(document, "metadata", "guidellm_version") is not None:
        return True
    return any(
        isinstance(dig(b, "metrics"), dict) and isinstance(dig(b, part), dict)
        for b in benchmarks
        for part in ("config", "args")
    )


def parse_guidellm(document: Mapping[str, Any], *, file: str, digest: str) -> list[ReadRun | UnreadableRun]:
    """The runs of a report, one a benchmark, in its order.

    Raises
    ------
    UnknownTopologyError
        A label ``tp``, ``pp`` or ``dp`` is not a positive whole number.
    """
    benchmarks = document.get("benchmarks")
    if not isinstance(benchmarks, list) or not benchmarks:
        return [UnreadableRun(file, 0, "is a guidellm report without a benchmark: the run failed or was stopped")]

    def fill(draft: RunBuilder, benchmark: dict[str, Any]) -> None:
        _fill(draft, benchmark, document)

    return numbered([read_one(fill, b, file=file, digest=digest) for b in benchmarks])


def _fill(draft: RunBuilder, benchmark: dict[str, Any], report: Mapping[str, Any]) -> None:
    metrics = section(benchmark, "metrics")
    itl = _successful(metrics, "inter_token_latency_ms")
    start, end = number(benchmark, "start_time"), number(benchmark, "end_time")
    length = number(benchmark, "duration")
    if length is None and start is not None and end is not None:
        length = end - start
    draft.state(
        tool="guidellm",
        tool_version=text(section(report, "metadata"), "guidellm_version"),
        output_tokens_per_s=measured(_successful(metrics, "output_tokens_per_second"), "mean"),
        requests_per_s=measured(_successful(metrics, "requests_per_second"), "mean"),
        ttft_p50_ms=measured(_successful(metrics, "time_to_first_token_ms"), "median"),
        itl_p50_ms=measured(itl, "median"),
        tpot_mean_ms=measured(itl, "mean"),
        duration_s=length,
    )
    draft.fact(
        measured_isl=measured(_successful(metrics, "prompt_token_count"), "mean"),
        measured_osl=measured(_successful(metrics, "output_token_count"), "mean"),
        effective_concurrency=measured(_successful(metrics, "request_concurrency"), "mean"),
        inter_token_ms=measured(itl, "mean"),
        start_time=_utc(start),
    )
    _fill_totals(draft, benchmark)
    _fill_load(draft, benchmark)
    _fill_workload(draft, benchmark, report)


def _successful(metrics: dict[str, Any], name: str) -> dict[str, Any]:
    return section(section(metrics, name), "successful")


def _fill_totals(draft: RunBuilder, benchmark: dict[str, Any]) -> None:
    places = (("metrics", "request_totals"), ("request_totals",), ("run_stats", "requests_made"))
    totals = next((t for p in places if isinstance(t := dig(benchmark, *p), dict)), {})
    draft.state(completed_requests=tally(totals, "successful"), failed_requests=tally(totals, "errored"))
    draft.fact(incomplete_requests=tally(totals, "incomplete"))


def _fill_load(draft: RunBuilder, benchmark: dict[str, Any]) -> None:
    config = _config(benchmark)
    strategy = section(config, "strategy")
    kind = text(strategy, "type_")
    limit = count(strategy, "streams") or count(strategy, "max_concurrency")
    if kind == "synchronous":
        draft.state(concurrency=1)
        draft.fact(load_type="concurrency", concurrency_is_cap=False)
    elif kind == "concurrent":
        draft.state(concurrency=limit)
        draft.fact(load_type="concurrency", concurrency_is_cap=False)
    elif kind in RATES:
        draft.fact(load_type="rate", concurrency_is_cap=limit is not None)
    elif kind is not None:
        draft.fact(load_type="unlimited" if kind == "throughput" else kind, concurrency_is_cap=limit is not None)
    if any(_is_set(config.get(name)) for name in TRIMS):
        return  # the requests of warm-up and cool-down were asked for and are not among the totals
    asked = (
        dig(config, "constraints", "max_requests", "args", "count"),
        dig(config, "constraints", "max_requests", "max_num"),
        config.get("max_number"),
    )
    draft.fact(requested_requests=next((n for n in asked if isinstance(n, int) and not isinstance(n, bool)), None))


def _is_set(trim: Any) -> bool:
    return any(trim.get(k) for k in ("percent", "value")) if isinstance(trim, dict) else bool(trim)


def _fill_workload(draft: RunBuilder, benchmark: dict[str, Any], report: Mapping[str, Any]) -> None:
    backends = (
        dig(benchmark, "config", "backend"),
        dig(report, "config", "spec", "backend"),
        {"model": dig(benchmark, "worker", "backend_model")},
        {"model": dig(report, "args", "model")},
    )
    models = (text(b, "model") for b in backends if isinstance(b, dict))
    draft.state(model=next((m for m in models if m), None))
    draft.fact(streaming=next((flag(b, "stream") for b in backends if isinstance(b, dict) and "stream" in b), None))
    data = (
        dig(report, "config", "spec", "data"),
        dig(report, "args", "data"),
        dig(benchmark, "request_loader", "data"),
    )
    asked = _asked(next((d for d in data if d is not None), None))
    draft.state(isl=count(asked, "prompt_tokens"), osl=count(asked, "output_tokens"))
    labels = dig(report, "config", "metadata", "labels")
    if isinstance(labels, dict):
        draft.topology(labels, {"tp": ("tp",), "pp": ("pp",), "dp": ("dp",)})


def _config(benchmark: dict[str, Any]) -> dict[str, Any]:
    return section(benchmark, "config") or section(benchmark, "args")


def _asked(data: Any) -> dict[str, Any]:
    """Synthetic lengths asked for: an object, JSON text, or text such as ``prompt_tokens=100,output_tokens=20``."""
    if isinstance(data, list):
        data = data[0] if len(data) == 1 else None
    if isinstance(data, dict):
        return data
    if not isinstance(data, str):
        return {}
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        parts = (part.partition("=") for part in data.split(","))
        found = {
            k.strip(): int(v) for k, _, v in parts if v.strip().isascii() and v.strip().isdecimal() and len(v) < 12
        }
    return _asked(found) if isinstance(found, dict | list) else {}


def _utc(seconds: float | None) -> str | None:
    if seconds is None or not 0 < seconds < 1e11:
        return None
    return dt.datetime.fromtimestamp(seconds, dt.UTC).isoformat().replace("+00:00", "Z")
