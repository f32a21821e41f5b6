"""Keep of a campaign that `calib demo` measured with aiperf what calib reads, without the paths of the machine.

Usage: ``python make_campaign.py CAMPAIGN FOLDER``. See the README beside this file.
"""

from __future__ import annotations

import getpass
import json
import re
import shutil
import socket
import sys
from pathlib import Path
from typing import Any

KEPT = (
    "profile_export_aiperf.json", "server_metrics_export.json", "phase_manifest.json", ".aiperf_results_ready.json",
)  # fmt: skip
METRICS = (
    "time_to_first_token", "inter_token_latency", "request_latency", "input_sequence_length", "output_sequence_length",
)  # fmt: skip
METADATA = (
    "session_num", "credit_issued_ns", "request_start_ns", "request_ack_ns", "request_end_ns", "benchmark_phase",
    "phase_kind", "was_cancelled",
)  # fmt: skip


def keep(source: Path, target: Path) -> None:
    """Copy the files that matter of one run; of each request only the main metrics stay."""
    target.mkdir(parents=True)
    texts = {name: (source / name).read_text(encoding="utf-8") for name in KEPT}
    work = _work(texts["profile_export_aiperf.json"])
    records = (source / "profile_export.jsonl").read_text(encoding="utf-8").splitlines()
    texts["profile_export.jsonl"] = "".join(_slim(json.loads(line)) + "\n" for line in records)
    for name, text in texts.items():
        clean = text.replace(work, "") if work else text
        found = [w for w in (socket.gethostname(), f"/{getpass.getuser()}/") if w in clean]
        if found or re.search(r'"/(?!metrics)\w', clean):
            raise SystemExit(f"{name} still names this machine: {found}")
        (target / name).write_text(clean, encoding="utf-8")


def _work(summary: str) -> str:
    """The folder aiperf ran in, with a slash: its artifacts were at ``artifacts/`` below that."""
    found = re.findall(r'"dir": "(/[^"]*?/)artifacts/', summary)
    return found[0] if found else ""


def _slim(record: dict[str, Any]) -> str:
    record["metrics"] = {k: v for k, v in record["metrics"].items() if k in METRICS}
    record["metadata"] = {k: v for k, v in record["metadata"].items() if k in METADATA}
    return json.dumps(record, separators=(",", ":"))


def main(source: Path, target: Path) -> None:
    """All runs and the two files beside them."""
    target.mkdir(parents=True)
    for name in ("campaign.toml", "breakdowns.json"):
        shutil.copy(source / name, target / name)
    for summary in sorted(source.glob("tp*/c*/profile_export_aiperf.json")):
        run = summary.parent
        keep(run, target / run.relative_to(source))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
