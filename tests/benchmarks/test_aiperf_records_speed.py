"""Speed and memory of the per-request reader, as ratios within one process so that the machine cancels.

CPU time and the best of several turns: other jobs on the machine would be measured otherwise. ``pytest -m slow -n 0 -s``
prints the figures.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time

import msgspec
import pandas as pd
import pytest

from calib.measure.readers.aiperf.request_records import read_records
from calib.measure.readers.aiperf.stream import RequestRecord

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif("PYTEST_XDIST_WORKER" in os.environ, reason="other workers would be measured: use -n 0"),
]

MIB = 2**20
# What a line of 0.13 holds beside the figures that calib keeps: names and sizes as in the tool's output.
OTHERS = (
    "http_req_dns_lookup", "http_req_connecting", "http_req_connection_reused", "http_req_duration", "http_req_blocked",
    "http_req_receiving", "http_req_chunks_sent", "time_to_first_output_token", "time_to_second_token", "http_req_data_sent",
    "http_req_waiting", "http_req_sending", "http_req_data_received", "e2e_output_token_throughput", "decode_duration",
    "osl_mismatch_diff_pct", "prefill_throughput_per_user", "usage_completion_tokens_diff_pct", "http_req_total",
    "http_req_connection_overhead", "usage_prompt_tokens_diff_pct", "output_token_throughput_per_user",
)  # fmt: skip
TOKENS = ("usage_completion_tokens", "usage_total_tokens", "usage_prompt_tokens", "input_sequence_length")


def write(path, osl, size):
    """A per-request file of ``size`` bytes with requests of ``osl`` tokens; 64 different lines, over and over."""
    rng = random.Random(osl)
    lines = []
    for i in range(64):
        gaps = [round(rng.uniform(4, 7), 6) for _ in range(osl - 1)]
        start = 1_796_062_356_000_000_000 + i * 10**6
        metadata = {
            "session_num": i, "x_request_id": "f761d1ef-5edb-4576-b330-bcd393a05a41", "conversation_id": "session_000000",
            "x_correlation_id": "822417aa-f89a-4926-9399-eb85d20a9b86", "turn_index": 0, "credit_issued_ns": start - 10**6,
            "request_start_ns": start, "request_ack_ns": start + 10**6, "request_end_ns": start + int(1e6 * (30 + sum(gaps))),
            "worker_id": "worker_963fba64", "record_processor_id": "record_processor_84f7bfa8",
            "benchmark_phase": "profiling", "phase_index": 0, "was_cancelled": False,
        }  # fmt: skip
        metrics = {name: {"value": rng.uniform(1, 200), "unit": "ms"} for name in OTHERS}
        metrics |= {name: {"value": osl, "unit": "tokens"} for name in (*TOKENS, "output_sequence_length")}
        metrics |= {
            "time_to_first_token": {"value": 30.0, "unit": "ms"}, "inter_chunk_latency": {"value": gaps, "unit": "ms"},
            "inter_token_latency": {"value": 5.5, "unit": "ms"}, "request_latency": {"value": 140.0, "unit": "ms"},
        }  # fmt: skip
        lines.append(json.dumps({"metadata": metadata, "metrics": metrics}, separators=(",", ":")) + "\n")
    block = "".join(lines).encode()
    with path.open("wb") as file:
        for _ in range(max(1, size // len(block))):
            file.write(block)
    return path


def line_by_line(path):
    decoder = msgspec.json.Decoder(RequestRecord)
    with path.open("rb") as file:
        for line in file:
            decoder.decode(line)


def with_pandas(path):
    pd.read_json(path, lines=True)


def fastest(functions, path, turns):
    """Least CPU time [s] of each function, taken in turns."""
    times = {f: [] for f in functions}
    for _ in range(turns):
        for function in functions:
            begin = time.process_time()
            function(path)
            times[function].append(time.process_time() - begin)
    return [min(times[f]) for f in functions]


def tell(figures):
    print(f"\n{figures}")


@pytest.mark.parametrize("osl", [20, 1000])
def test_speed_against_a_bare_loop_of_typed_decoding(tmp_path, osl):
    path = write(tmp_path / "profile_export.jsonl", osl, 40 * MIB)
    ours, bare = fastest([read_records, line_by_line], path, turns=15)
    tell(f"OSL {osl}: {path.stat().st_size / MIB / ours:.0f} MiB/s, {bare / ours:.2f}x of a bare line-by-line decode")
    assert bare / ours >= 0.75


def test_speed_against_pandas(tmp_path):
    path = write(tmp_path / "profile_export.jsonl", 20, 40 * MIB)
    ours, pandas = fastest([read_records, with_pandas], path, turns=4)
    tell(f"OSL 20: {pandas / ours:.1f}x of pandas.read_json(lines=True)")
    assert pandas / ours >= 8


def peak_rss(path):
    """Peak resident memory [MiB] of a process that reads the file and nothing else.

    From /proc: what ``getrusage`` says of a child includes its parent, up to the moment of the exec.
    """
    code = (
        "import sys; from pathlib import Path; from calib.measure.readers.aiperf.request_records import read_records;"
        "read_records(Path(sys.argv[1]));"
        "print(next(x.split()[1] for x in open('/proc/self/status') if x.startswith('VmHWM')))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    return int(done.stdout) / 1024


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="peak memory is read from /proc")
@pytest.mark.parametrize("osl", [20, 1000])
def test_memory_does_not_grow_with_the_file(tmp_path, osl):
    small = peak_rss(write(tmp_path / "small.jsonl", osl, 2 * MIB))
    large = peak_rss(write(tmp_path / "large.jsonl", osl, 200 * MIB))
    tell(f"OSL {osl}: peak {small:.0f} MiB for 2 MiB, {large:.0f} MiB for 200 MiB")
    assert large < 250
    assert (
        large - small < 20
    )  # of which the kept figures of the 75,000 requests at OSL 20 are 4 MiB, twice for a moment
