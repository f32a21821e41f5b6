"""Hostile result files: no crash, no hang, nothing written outside, memory bounded, and the rest goes on."""

from __future__ import annotations

import gzip
import json
import os
import resource
import shutil
import time
from pathlib import Path

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings, strategies as st
from support.paths import DATA

from calib.errors import CalibError
from calib.measure.campaign.config import parse_config
from calib.measure.campaign.folder import covered_units
from calib.measure.campaign.load import read_campaign
from calib.measure.readers.read_run import ReadRun
from calib.nightly.campaign_task import calibrate_folder
from calib.nightly.gather import find
from calib.nightly.read_cache import decode, encode, read_batch
from calib.nightly.scan import stamps
from calib.workflow import Options

AIPERF = DATA / "qwen3-8b-aiperf"
SUMMARY = (AIPERF / "qwen3-8b-tp4pp2" / "c2" / "profile_export_aiperf.json").read_bytes()
RECORDS = (AIPERF / "qwen3-8b-tp4pp2" / "c2" / "profile_export.jsonl").read_bytes()
PEAK_MIB = 1500  # of this process, libraries included
HANG_S = 60

numbers = st.sampled_from(
    ["1e999", "-1e999", "NaN", "Infinity", "9" * 400, "1" + "0" * 5000, "-0", "1e-400", "null", "[]", '"x"']
)
bombs = st.sampled_from(
    [
        gzip.compress(b"0" * 2**28, 1),
        zstandard.compress(b"[" * 2**28),
        gzip.compress(gzip.compress(SUMMARY)),
        b"\x1f\x8b\x08",
    ]
)


@st.composite
def mutated(draw):
    """A result file with something done to it."""
    data = draw(st.sampled_from([SUMMARY, RECORDS]))
    kind = draw(
        st.sampled_from(["cut", "flip", "number", "twice", "deep", "binary", "announced", "bomb", "surrogate", "empty"])
    )
    at = draw(st.integers(0, len(data) - 1))
    if kind == "cut":
        return data[:at]
    if kind == "flip":
        return data[:at] + bytes([data[at] ^ draw(st.integers(1, 255))]) + data[at + 1 :]
    if kind == "number":
        colon = data.find(b": ", at)
        end = min((e for e in (data.find(b, colon) for b in (b",", b"}", b"\n")) if e > 0), default=-1)
        return data[: colon + 2] + draw(numbers).encode() + data[end:] if 0 < colon < end else data[:at]
    if kind == "twice":
        return data.replace(b"{", b'{"avg": 1, "avg": 2,', 1)
    if kind == "deep":
        return data[:at] + b'{"a":[' * 50_000 + data[at:]
    if kind == "binary":
        return draw(st.binary(max_size=4000))
    if kind == "announced":
        return b'{"s": "' + b"x" * 2**22
    if kind == "bomb":
        return draw(bombs)
    if kind == "surrogate":
        return data.replace(b'"', b'"\\ud800', 3)
    return b""


@settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(
    data=mutated(),
    name=st.sampled_from(["profile_export_aiperf.json", "profile_export.jsonl", "profile_export_aiperf.json.gz"]),
)
def test_a_mutated_result_is_read_or_set_aside(tmp_path_factory, data, name):
    root = tmp_path_factory.mktemp("hostile")
    folder = root / "campaign" / "run"
    shutil.copytree(AIPERF / "qwen3-8b-tp4pp2" / "c2", folder)
    (folder / name).write_bytes(data)
    before = {p: p.stat().st_mtime_ns for p in root.rglob("*")}
    began = time.monotonic()
    [(unit, payload)] = read_batch(str(root / "campaign"), ["run"])
    try:
        runs, digests = decode(payload)
        assert unit == "run"
        assert encode(runs, digests) == payload
    except CalibError:
        pass
    assert time.monotonic() - began < HANG_S
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 < PEAK_MIB
    assert {p: p.stat().st_mtime_ns for p in root.rglob("*")} == before
    shutil.rmtree(root)


def test_what_is_kept_of_a_result_is_what_was_read():
    config = parse_config((AIPERF / "campaign.toml").read_bytes(), file=AIPERF / "campaign.toml")
    units = [p.relative_to(AIPERF).as_posix() for p, _, _ in covered_units(AIPERF, config)]
    kept = {u: decode(payload)[0] for u, payload in read_batch(str(AIPERF), units)}
    direct = read_campaign(AIPERF)
    through = read_campaign(AIPERF, read=lambda paths, base: (kept[p.relative_to(base).as_posix()] for p in paths))
    assert through.runs.equals(direct.runs)
    assert (through.facts, through.inputs, through.learnt) == (direct.facts, direct.inputs, direct.learnt)
    odd = ReadRun(
        "f", 0, "s", {"a": 2**80, "b": "\ud800"}, {"c": (1, [2.5, float("inf")], {"d": None}), "e": (("x", "y"),)}
    )
    assert decode(encode([odd], {}))[0] == [odd]


@pytest.mark.parametrize("kind", ["loop", "outside", "pipe", "deep", "latin", "newline"])
def test_odd_names_and_links_are_looked_at_and_not_followed(job, kind):
    folder = job.campaign("monday")
    secret = job.folder / "secret"
    secret.mkdir()
    (secret / "campaign.toml").write_text("x", encoding="utf-8")
    if kind == "loop":
        (folder / "again").symlink_to(folder)
    elif kind == "outside":
        (job.folder / "results" / "link").symlink_to(secret)
    elif kind == "pipe":
        os.mkfifo(folder / "pipe.json")
    elif kind == "deep":
        deep = folder
        for _ in range(60):
            deep = deep / "d"
        deep.mkdir(parents=True)
        (deep / "x.json").write_text("{}", encoding="utf-8")
    elif kind == "latin":
        (Path(os.fsdecode(os.fsencode(folder) + b"/c\xff.json"))).write_text("{}", encoding="utf-8")
    else:
        (folder / "a\n\x1b[31m.json").write_text("{}", encoding="utf-8")
    found = find(["results"], job.folder, job.folder / "store")
    assert list(found.campaigns) == ["results/monday"]
    json.dumps(list(found.campaigns["results/monday"].stamps))
    assert all("\x1b" not in n for n in stamps(folder))
    outcome = calibrate_folder(str(folder), None, Options(), None)
    assert outcome.digest is not None, outcome.failure


@pytest.mark.parametrize(
    "text", ["", "[", "a = " + "[" * 10_000, "format_version = 99", "\ud800", "x = " + "9" * 10_000]
)
def test_a_hostile_campaign_file_is_one_failure(job, text):
    folder = job.campaign("monday")
    (folder / "campaign.toml").write_bytes(text.encode("utf-8", "surrogatepass"))
    assert "campaign.toml" in calibrate_folder(str(folder), None, Options(), None).failure
