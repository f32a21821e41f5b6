"""The columns of the run table by what they are for; the unit is in the name. Plain names, so that listing them costs nothing."""

from __future__ import annotations

IDENTITY = (
    "campaign", "model", "precision", "backend", "backend_version", "system", "gpus", "tp", "pp", "dp", "replicas",
    "isl", "osl", "concurrency",
)  # fmt: skip
SERIES = (
    "campaign", "model", "precision", "backend", "backend_version", "system", "gpus", "replicas", "isl", "osl",
)  # fmt: skip
COUNTS = ("gpus", "tp", "pp", "dp", "replicas", "isl", "osl", "concurrency")
MEASURES = (
    "output_tokens_per_s", "output_tokens_per_s_stderr", "requests_per_s", "ttft_p50_ms", "itl_p50_ms", "tpot_mean_ms",
    "completed_requests", "failed_requests", "duration_s", "efficiency",
)  # fmt: skip
SOURCE = ("tool", "tool_version", "source_file", "source_row", "source_sha256")
SCREENING = ("verdict", "rules")
LARGEST_COUNT = 10**9
VERDICTS = ("OK", "WARN", "CORRECTED", "REJECT")
RUN_COLUMNS = (*IDENTITY, *MEASURES, *SCREENING, *SOURCE)
