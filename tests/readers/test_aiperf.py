"""aiperf summaries: values written down from the sample files by hand."""

from __future__ import annotations

import copy
import json
import shutil

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from calib import load_campaign
from calib.readers import ReadRun, UnreadableRun
from calib.readers.aiperf import is_summary, parse_summary, read_runs


def sample(shared, case):
    return shared / "samples" / "aiperf" / case


def read(shared, case):
    folder = sample(shared, case)
    return read_runs(folder, root=folder)


def test_the_base_run(shared):
    (run,) = read(shared, "00_base_single_run")
    assert run.source_file == "profile_export_aiperf.json"
    assert run.stated["output_tokens_per_s"] == 240.0 / 0.46665702400000003
    assert run.stated["requests_per_s"] == 24.942356810403584
    assert run.stated["ttft_p50_ms"] == 35.7262895
    assert run.stated["itl_p50_ms"] == 5.641643526315789
    assert run.stated["tpot_mean_ms"] == 5.599786513157894
    assert run.stated["completed_requests"] == 12
    assert run.stated["failed_requests"] == 0
    assert {k: run.stated[k] for k in ("model", "isl", "osl", "concurrency", "tool", "tool_version")} == {
        "model": "Qwen/Qwen3-8B", "isl": 100, "osl": 20, "concurrency": 4, "tool": "aiperf", "tool_version": "0.13.0",
    }  # fmt: skip


def test_a_summary_is_known_by_its_content_and_not_by_its_name(shared):
    (run,) = read(shared, "h_export_prefix")
    assert run.source_file == "qwen3_8b_tp4pp2.json"


def test_the_copies_below_phases_are_no_runs(shared):
    (run,) = read(shared, "i_warmup")
    assert run.source_file == "profile_export_aiperf.json"
    assert run.stated["completed_requests"] == 10


def test_aggregates_of_a_sweep_are_no_runs(shared):
    found = read(shared, "a_multirun_sweep")
    assert sorted(r.stated["concurrency"] for r in found) == [1, 1, 2, 2]


def test_latencies_of_a_run_that_did_not_stream_are_unknown(shared):
    (run,) = read(shared, "d_nonstreaming")
    assert "ttft_p50_ms" not in run.stated
    assert "itl_p50_ms" not in run.stated
    assert run.stated["output_tokens_per_s"] == 240.0 / 0.339636736


@pytest.mark.parametrize("case", ["old_aiperf_0.6.0", "old_aiperf_0.1.1_ok"])
def test_a_layout_that_is_not_read_yet_says_so(shared, case):
    (run,) = read(shared, case)
    assert isinstance(run, UnreadableRun)
    assert "older than 0.9" in run.reason or "no aiperf summary" in run.reason


def test_a_run_whose_requests_all_failed_is_reported(shared):
    (run,) = read(shared, "c_all_fail")
    assert isinstance(run, UnreadableRun)
    assert "holds no aiperf summary" in run.reason


@pytest.mark.parametrize(
    ("case", "rule"),
    [
        ("b_partial_errors", "error_rate"),  # 7 of 20
        ("e_sigint_midway", "cancelled"),
        ("j2_request_rate_with_conc", "open_loop"),
        ("r_multi_url", "several_urls"),
        ("ad_multi_phase", "pooled_phases"),
    ],
)
def test_what_a_summary_hides_is_set_aside_by_name(shared, tmp_path, case, rule):
    shutil.copytree(sample(shared, case), tmp_path / "run")
    (tmp_path / "campaign.toml").write_text(
        'format_version = 1\nname = "n"\ntitle = "t"\nsource = "s"\nmatching = "peak"\n[defaults]\nsystem = "h200_sxm"\n'
        "gpus = 8\n"
        'backend = "vllm"\nbackend_version = "1"\n[[runs]]\nfolder = "run"\ntp = 8\npp = 1\n'
    )
    campaign = load_campaign(tmp_path)
    assert campaign.runs["verdict"].tolist() == ["REJECT"]
    assert rule in {f.rule for f in campaign.set_aside()}


def test_a_unit_that_is_not_expected_is_not_read_as_another(shared):
    document = json.loads((sample(shared, "00_base_single_run") / "profile_export_aiperf.json").read_text())
    document["time_to_first_token"]["unit"] = "s"
    run = parse_summary(document, file="f", digest="d")
    assert isinstance(run, UnreadableRun)
    assert "time_to_first_token has the unit 's', not 'ms'" in run.reason


@pytest.mark.parametrize("text", ["", "{", "[" * 200_000, "nan", '{"input_config": NaN}', "\x00"])
def test_files_that_are_no_json_are_reported(tmp_path, text):
    (tmp_path / "a.json").write_text(text)
    (run,) = read_runs(tmp_path, root=tmp_path)
    assert isinstance(run, UnreadableRun)


@pytest.mark.parametrize(
    "document", [None, 3, "x", [], {}, {"input_config": 3, "request_count": {}}, {"input_config": {}}]
)
def test_other_documents_are_no_summaries(document):
    assert is_summary(document) is False


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_any_key_may_be_missing_null_or_of_another_type(shared, data):
    document = json.loads((sample(shared, "00_base_single_run") / "profile_export_aiperf.json").read_text())
    broken = copy.deepcopy(document)
    for _ in range(data.draw(st.integers(1, 4))):
        node, path = broken, []
        while isinstance(node, dict) and node and (not path or data.draw(st.booleans())):
            path.append(data.draw(st.sampled_from(sorted(node))))
            parent, node = node, node[path[-1]]
        if path:
            change = data.draw(st.sampled_from(["drop", None, 3, "x", [], {}, True, 1e308, -1, {"unit": "ms"}]))
            if change == "drop":
                del parent[path[-1]]
            else:
                parent[path[-1]] = change
    if is_summary(broken):
        run = parse_summary(broken, file="f", digest="d")
        assert isinstance(run, (ReadRun, UnreadableRun))
        msgspec.json.encode(dict(run.stated) if isinstance(run, ReadRun) else run.reason)
