"""Run aiperf against the mock server for every (tp, pp) of eight GPUs and keep what calib reads, without machine paths.

See the README beside this file. The truth: ``s = 0.2`` and the balance factors of calib's roofline for Qwen3-8B on H200.
"""

from __future__ import annotations

import argparse
import getpass
import json
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from calib.stages.breakdown import StepRequest
from calib.stages.mix import steady_state
from calib.stages.roofline import RooflineProvider

MODEL = "Qwen/Qwen3-8B"
TOPOLOGIES = ((8, 1), (4, 2), (2, 4), (1, 8))
CONCURRENCIES = (2, 4, 8)
ISL, OSL = 64, 32
S = 0.2
WAVES = 10  # requests per concurrent one, the fewest that calib takes without a warning
SERVER = Path(__file__).with_name("mock_server.py")
KEPT = (
    "profile_export_aiperf.json", "server_metrics_export.json", "phase_manifest.json", ".aiperf_results_ready.json",
)  # fmt: skip
METRICS = (
    "time_to_first_token", "inter_token_latency", "request_latency", "input_sequence_length", "output_sequence_length",
)  # fmt: skip


def balance(tp: int, pp: int, concurrency: int) -> float:
    """What `calib breakdown --provider roofline` says of the stages, with vLLM's partition."""
    if pp == 1:
        return 1.0
    ask = StepRequest(
        model=MODEL, backend="vllm", system="h200_sxm", tp=tp, pp=pp, concurrency=concurrency, isl=ISL, osl=OSL,
        status="computed",
    )  # fmt: skip
    return steady_state(RooflineProvider("h200_sxm").step(ask), "vllm").balance_factor


def measure(aiperf: Path, work: Path, name: str, port: int, tp: int, pp: int, concurrency: int) -> None:
    """One run of aiperf on a fresh server, in ``work`` so that its arguments are relative paths."""
    physics = ["--pp", pp, "--s", S, "--balance", balance(tp, pp, concurrency)]
    command = [sys.executable, str(SERVER), "--port", str(port), *map(str, physics)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            url = server.stdout.readline().strip()
            subprocess.run(
                [
                    str(aiperf), "profile", "--model", MODEL, "--url", url, "--endpoint-type", "chat", "--streaming",
                    "--tokenizer", "tokenizer", "--artifact-dir", f"artifacts/{name}", "--random-seed", "1",
                    "--concurrency", str(concurrency), "--request-count", str(WAVES * concurrency),
                    "--warmup-request-count", str(concurrency),
                    "--isl", str(ISL), "--isl-stddev", "0", "--osl", str(OSL), "--osl-stddev", "0",
                    "--extra-inputs", "ignore_eos:true", "--extra-inputs", f"min_tokens:{OSL}",
                    "--no-gpu-telemetry", "--server-metrics-formats", "json",
                    "--workers-max", "1", "--record-processors", "1", "--ui", "none",
                ],
                cwd=work, check=True, stdout=subprocess.DEVNULL,
            )  # fmt: skip
        finally:
            server.terminate()


def keep(source: Path, target: Path, work: Path) -> None:
    """Copy the files that matter; absolute paths become relative ones, of each request only the main metrics stay."""
    target.mkdir(parents=True)
    texts = {name: (source / name).read_text(encoding="utf-8") for name in KEPT}
    records = (source / "profile_export.jsonl").read_text(encoding="utf-8").splitlines()
    texts["profile_export.jsonl"] = "".join(_slim(json.loads(line)) + "\n" for line in records)
    for name, text in texts.items():
        clean = text.replace(f"{work}/", "")
        found = [w for w in (socket.gethostname(), f"/{getpass.getuser()}", str(work)) if w in clean]
        if found or re.search(r'"/(?!metrics)\w', clean):
            raise SystemExit(f"{name} still names this machine: {found}")
        (target / name).write_text(clean, encoding="utf-8")


def _slim(record: dict[str, Any]) -> str:
    record["metrics"] = {k: v for k, v in record["metrics"].items() if k in METRICS}
    return json.dumps(record, separators=(",", ":"))


def main() -> None:
    """All runs, one after the other."""
    options = argparse.ArgumentParser(description="Make the aiperf campaign with a known truth.")
    options.add_argument("--aiperf", type=Path, required=True, help="the command, in an environment of its own")
    options.add_argument("--work", type=Path, required=True, help="folder with tokenizer/; gets artifacts/")
    options.add_argument("--out", type=Path, required=True, help="the campaign folder")
    options.add_argument("--port", type=int, default=8192)
    given = options.parse_args()
    work = given.work.resolve()
    for tp, pp in TOPOLOGIES:
        for concurrency in CONCURRENCIES:
            name = f"qwen3-8b-tp{tp}pp{pp}/c{concurrency}"
            shutil.rmtree(work / "artifacts" / name, ignore_errors=True)
            measure(given.aiperf.absolute(), work, name, given.port, tp, pp, concurrency)
            shutil.rmtree(given.out / name, ignore_errors=True)
            keep(work / "artifacts" / name, given.out / name, work)
            sys.stderr.write(f"{name}\n")


if __name__ == "__main__":
    main()
