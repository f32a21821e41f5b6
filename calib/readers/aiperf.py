"""aiperf run summaries (0.9 and later), recognised by content and not by name.

Throughput is recomputed for every version as ``total_osl / benchmark_duration``, since the tool's own number changed its
denominator in 0.12. ``itl_p50_ms`` is the median over requests of the tool's per-request mean inter-token latency
``(latency - TTFT)/(OSL - 1)``, whose mean is ``tpot_mean_ms``. Source: the export schemas of the tool's documentation, and
files it wrote.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from calib.errors import CampaignError
from calib.provenance import read_bytes, sha256_bytes
from calib.readers.base import ReadRun, UnreadableRun

SKIPPED_FOLDERS = frozenset({"phases", "aggregate", "sweep_aggregate", "logs"})
SKIPPED_FILES = frozenset({"inputs.json", "outputs.json", "run_config.json", "phase_manifest.json"})
SIZE_LIMIT = 32 * 2**20
UNITS = {
    "total_osl": "tokens",
    "benchmark_duration": "sec",
    "request_throughput": "requests/sec",
    "time_to_first_token": "ms",
    "inter_token_latency": "ms",
    "request_count": "requests",
    "error_request_count": "requests",
}


def is_summary(document: object) -> bool:
    """Whether a JSON document is an aiperf run summary."""
    markers = ("request_count", "request_throughput", "records", "error_request_count")
    return (
        isinstance(document, dict)
        and isinstance(document.get("input_config"), dict)
        and any(m in document for m in markers)
    )


def parse_summary(document: dict[str, Any], *, file: str, digest: str) -> ReadRun | UnreadableRun:
    """One run from its summary.

    A summary whose layout or units are not those of 0.9 and later comes back as `UnreadableRun` with the reason.
    """
    config = document["input_config"]
    if not isinstance(config.get("phases"), list):
        return UnreadableRun(file, 0, "is an aiperf summary older than 0.9, whose layout is not read yet")
    try:
        values = {tag: _metric(document, tag, stat) for tag, stat in (
            ("total_osl", "avg"), ("benchmark_duration", "avg"), ("request_throughput", "avg"),
            ("request_count", "avg"), ("error_request_count", "avg"),
        )}  # fmt: skip
        ttft, itl = (_metric(document, t, "p50") for t in ("time_to_first_token", "inter_token_latency"))
        tpot = _metric(document, "inter_token_latency", "avg")
        stated, facts = _workload(config)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        return UnreadableRun(file, 0, f"is not an aiperf summary that can be read ({type(error).__name__}: {error})")
    osl, duration = values["total_osl"], values["benchmark_duration"]
    stated |= {
        "output_tokens_per_s": osl / duration if osl is not None and duration else None,
        "requests_per_s": values["request_throughput"],
        "ttft_p50_ms": ttft,
        "itl_p50_ms": itl,
        "tpot_mean_ms": tpot,
        "completed_requests": values["request_count"],
        "failed_requests": values["error_request_count"] or 0.0,
        "duration_s": duration,
        "tool": "aiperf",
        "tool_version": document.get("aiperf_version"),
    }
    facts |= {
        "cancelled": bool(document.get("was_cancelled")),
        "incomplete": document.get("is_complete") is False,
    }
    return ReadRun(file, 0, digest, {k: v for k, v in stated.items() if v is not None}, facts)


def read_runs(folder: Path, *, root: Path) -> list[ReadRun | UnreadableRun]:
    """Every run summary below ``folder``; paths are stored relative to ``root``.

    Warm-up phases and aggregates are copies of other files and are not runs.
    """
    found: list[ReadRun | UnreadableRun] = []
    for path in _json_files(folder):
        file = PurePosixPath(path.relative_to(root)).as_posix()
        try:
            data = read_bytes(path, limit=SIZE_LIMIT)
            document = msgspec.json.decode(data)
        except CampaignError as error:
            found.append(UnreadableRun(file, 0, error.problem))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            found.append(UnreadableRun(file, 0, f"is not JSON ({error})"))
        else:
            if is_summary(document):
                found.append(parse_summary(document, file=file, digest=sha256_bytes(data)))
    if not found:
        name = PurePosixPath(folder.relative_to(root)).as_posix()
        found.append(UnreadableRun(name, 0, "holds no aiperf summary: the run failed, or it is another tool's"))
    return found


def _json_files(folder: Path) -> Iterator[Path]:
    for here, folders, names in os.walk(folder):  # links are not followed: a loop must not hang the job
        folders[:] = sorted(f for f in folders if f not in SKIPPED_FOLDERS and not f.startswith("."))
        for name in sorted(names):
            is_metrics = "server_metrics" in name or "timeslices" in name
            if name.endswith(".json") and name not in SKIPPED_FILES and not name.startswith(".") and not is_metrics:
                yield Path(here, name)


def _metric(document: dict[str, Any], tag: str, stat: str) -> float | None:
    block = document.get(tag)
    if block is None or block.get(stat) is None:
        return None
    if block.get("unit") != UNITS[tag]:
        raise ValueError(f"{tag} has the unit {block.get('unit')!r}, not {UNITS[tag]!r}")
    if isinstance(block[stat], bool):
        raise ValueError(f"{tag}.{stat} is not a number")
    return float(block[stat])


def _workload(config: dict[str, Any]) -> tuple[dict[str, Any], dict[str, object]]:
    phases = [p for p in config["phases"] if p.get("kind", "profiling") == "profiling"]
    prompts = config["datasets"][0]["prompts"]
    phase = phases[0]
    load = phase.get("type")
    stated = {
        "model": config["models"]["items"][0]["name"],
        "isl": _length(prompts["isl"]),
        "osl": _length(prompts["osl"]),
        "concurrency": _count(phase["concurrency"]) if load == "concurrency" else None,
    }
    facts = {
        "load_type": load,
        "profiling_phases": len(phases),
        "urls": len(config["endpoint"]["urls"]),
        "requested_requests": phase.get("requests"),
    }
    return stated, facts


def _length(tokens: dict[str, Any]) -> int:
    """Asked length [tokens]: ``mean`` from the command line, ``value`` from a YAML configuration."""
    return _count(tokens["mean"] if "mean" in tokens else tokens["value"])


def _count(value: Any) -> int:
    if isinstance(value, bool) or float(value) != int(value) or int(value) < 1:
        raise ValueError(f"{value!r} is not a positive whole number")
    return int(value)
