"""Hostile and careless campaign folders: nothing is used twice, nothing is lost without a word, nothing hangs."""

from __future__ import annotations

import gzip
import os
import re
import shutil

import pytest
from support.paths import DATA

from calib import load_campaign
from calib.errors import CampaignError

SOURCE = DATA / "emulated-aiperf"


@pytest.fixture
def folder(tmp_path):
    shutil.copytree(SOURCE, tmp_path / "c")
    return tmp_path / "c"


def rejected(folder):
    return {(f.rule, f.subject) for f in load_campaign(folder).set_aside()}


def test_a_run_copied_into_another_topologys_folder_is_used_nowhere(folder):
    shutil.rmtree(folder / "tp8pp1" / "c16")
    shutil.copytree(folder / "tp4pp2" / "c16", folder / "tp8pp1" / "c16")
    found = {f.subject for f in load_campaign(folder).set_aside() if f.rule == "same_content"}
    assert found == {"emulated-36l vllm TP8/PP1 C=16", "emulated-36l vllm TP4/PP2 C=16"}


@pytest.mark.parametrize("other", ["tp4pp2/c8", "tp4pp2"])
def test_two_entries_for_one_result_are_an_error(folder, other):
    with (folder / "campaign.toml").open("a") as stream:
        stream.write(f'\n[[runs]]\nfolder = "{other}"\ntp = 2\npp = 4\n')
    with pytest.raises(CampaignError, match=r"runs\[1\].*which runs\[0\] covers too"):
        load_campaign(folder)


def test_results_under_a_prefix_in_a_folder_nobody_covers_are_said(folder):
    (folder / "stray").mkdir()
    summary = folder / "tp4pp2" / "c8" / "profile_export_aiperf.json"
    shutil.copy(summary, folder / "stray" / "my_run.json")
    assert ("not_covered", "stray") in rejected(folder)


@pytest.mark.parametrize(
    "name",
    [
        "vllm_server_metrics_on.json",
        "run_inputs.json",
        "timeslices_c4.json",
        "gpu_telemetry_run.json",
        "my_profile_export.json",
    ],
)
def test_a_result_of_another_tool_is_read_whatever_its_name(shared, tmp_path, name):
    from calib.measure.readers.discover import read_path

    source = next((shared / "samples/other/vllm_bench_serve_inferencex_fork").glob("*.json"))
    (tmp_path / name).write_bytes(source.read_bytes())
    shutil.copytree(SOURCE / "tp4pp2" / "c8", tmp_path / "aiperf")
    assert name in {r.source_file for r in read_path(tmp_path, root=tmp_path)}


@pytest.mark.parametrize("name", ["profile_export.jsonl", "server_metrics_export.json"])
def test_a_packed_file_beside_a_summary_is_said(folder, name):
    path = folder / "tp4pp2" / "c8" / name
    (path.parent / f"{name}.gz").write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    found = [f.reason for f in load_campaign(folder).set_aside() if f.source_file.endswith(f"{name}.gz")]
    assert found == ["is packed; files beside an aiperf summary are read unpacked only"]


@pytest.mark.parametrize("kind", ["pipe", "zero", "deep"])
def test_a_ready_marker_that_is_no_file_does_not_hang(folder, kind):
    path = folder / "tp4pp2" / "c8" / ".aiperf_results_ready.json"
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "zero":
        path.symlink_to("/dev/zero")
    else:
        path.write_text("[" * 100_000)
    assert len(load_campaign(folder).runs) == 12


def test_a_deep_line_of_requests_sets_its_run_aside(folder):
    path = folder / "tp4pp2" / "c8" / "profile_export.jsonl"
    lines = path.read_text().splitlines()
    lines[3] = '{"a":' + "[" * 100_000
    path.write_text("\n".join(lines) + "\n")
    campaign = load_campaign(folder)
    assert len(campaign.runs) == 11
    assert len(campaign.set_aside()) == 1


@pytest.mark.parametrize(("data", "rule"), [(b"", "unreadable"), (b"\x00" * 100, "not_ready")])
def test_a_file_of_requests_without_requests_is_said(folder, data, rule):
    path = folder / "tp4pp2" / "c8" / "profile_export.jsonl"
    path.write_bytes(data)
    findings = load_campaign(folder).findings
    assert any(f.rule == rule and "tp4pp2/c8" in f.source_file for f in findings)


def test_a_folder_name_that_is_not_utf_8_is_said(folder, cli):
    os.rename(os.fsencode(folder / "tp4pp2" / "c8"), os.fsencode(folder / "tp4pp2") + b"/c\xff2")
    done = cli("ingest", folder, "--json")
    assert done.code == 0
    assert "has a name that is not UTF-8" in done.out


@pytest.mark.parametrize(("flags", "words"), [("{ pp = 4 }", "engine.pp"), ("{ '' = 1 }", "engine.")])
def test_engine_flags_that_are_none(folder, flags, words):
    text = (folder / "campaign.toml").read_text()
    (folder / "campaign.toml").write_text(re.sub(r"(?m)^engine = .*", f"engine = {flags}", text))
    with pytest.raises(CampaignError, match=words):
        load_campaign(folder)


@pytest.mark.parametrize(
    "arguments",
    [
        ("--pp", "40", "--concurrency", "4"),
        ("--pp", "4", "--concurrency", "1" + "0" * 18),
        ("--pp", "4", "--concurrency", "4", "--osl", "1" + "0" * 12),
    ],
)
def test_configurations_that_cannot_be_end_with_exit_3(cli, arguments):
    done = cli("explain", "Qwen/Qwen3-8B", "--system", "h200_sxm", "--backend", "vllm", "--tp", "1", *arguments)
    assert done.code == 3
    assert done.err.count("\n") == 1


@pytest.mark.parametrize("text", ["bf16_tflops = " + "9" * 5000, "a = " + "[" * 5000])
def test_gpu_descriptions_that_are_none(cli, tmp_path, text):
    (tmp_path / "g.toml").write_text(text)
    done = cli(
        "explain",
        "Qwen/Qwen3-8B",
        "--system",
        tmp_path / "g.toml",
        "--backend",
        "vllm",
        "--tp",
        "1",
        "--pp",
        "4",
        "--concurrency",
        "4",
    )
    assert done.code == 3
    assert "g.toml" in done.err
