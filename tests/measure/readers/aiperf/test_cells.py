"""Folders that no sample shows, made here: other versions, both trial orders, interrupted and repeated commands."""

from __future__ import annotations

import copy
import json
import os
import shutil

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from calib.errors import CalibError
from calib.measure.readers.aiperf import tree as aiperf_files
from calib.measure.readers.aiperf.read import read_runs
from calib.measure.readers.read_run import ReadRun, UnreadableRun

T0 = 1_796_062_356_000_000_000


def metric(unit, avg, **stats):
    return {"unit": unit, "avg": avg, **stats}


def summary(concurrency=2, *, run="aaaa", sweep=None, trial=0, start="2026-11-30T18:00:00.000000", requests=4, **keys):
    """A summary of 0.13 with what calib needs: ``requests`` of 10 tokens in half a second."""
    variation = {"phases.profiling.concurrency": concurrency} if sweep else None
    info = {"benchmark_id": run, "sweep_id": sweep, "trial": trial, "variation_values": variation}
    return {
        "schema_version": "1.4", "aiperf_version": "0.13.0", "benchmark_id": run,
        "request_count": metric("requests", float(requests)),
        "request_throughput": metric("requests/sec", requests / 0.5),
        "time_to_first_token": metric("ms", 20.0, p50=20.0, p99=21.0, count=requests),
        "inter_token_latency": metric("ms", 5.0, p50=5.0, count=requests),
        "total_osl": metric("tokens", 10.0 * requests),
        "benchmark_duration": metric("sec", 0.5),
        "output_token_throughput": metric("tokens/sec", 10.0 * requests / 0.5),
        "input_config": {
            "models": {"items": [{"name": "m"}]},
            "endpoint": {"urls": ["http://h"], "streaming": True},
            "datasets": [{"name": "main", "type": "synthetic", "prompts": {"isl": {"mean": 100.0}, "osl": {"mean": 10.0}}}],
            "phases": [{"name": "profiling", "kind": "profiling", "type": "concurrency", "requests": requests,
                        "concurrency": concurrency}],
        },
        "run_info": {k: v for k, v in info.items() if v is not None},
        "was_cancelled": False, "is_complete": True, "error_summary": [], "start_time": start,
        **keys,
    }  # fmt: skip


def record(number=0, *, start=0.0, length=0.065, error=None, phase="profiling"):
    """A line of a per-request file: 10 tokens, the first after 20 ms and one every 5 ms."""
    begin = T0 + round(start * 1e9)
    end = begin if error else begin + round(length * 1e9)
    metadata = {
        "session_num": number,
        "credit_issued_ns": begin - 10**6,
        "request_start_ns": begin,
        "request_end_ns": end,
    }
    values = {"time_to_first_token": (20.0, "ms"), "inter_token_latency": (5.0, "ms"), "request_latency": (65.0, "ms"),
              "output_sequence_length": (10, "tokens"), "usage_completion_tokens": (10, "tokens")}  # fmt: skip
    metrics = {"error_isl": {"value": 100, "unit": "tokens"}} if error else {
        name: {"value": value, "unit": unit} for name, (value, unit) in values.items()
    }  # fmt: skip
    line = {"metadata": {**metadata, "benchmark_phase": phase, "was_cancelled": False}, "metrics": metrics}
    return line | ({"error": error} if error else {})


def write(folder, document=None, records=None, **others):
    folder.mkdir(parents=True, exist_ok=True)
    if document is not None:
        (folder / "profile_export_aiperf.json").write_text(json.dumps(document))
    if records is not None:
        (folder / "profile_export.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    for name, content in others.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


def sweep_aggregate(values, trials=1, name="concurrency"):
    return {
        "aggregation_type": "sweep",
        "metadata": {"sweep_parameters": [{"name": name, "values": values}], "num_trials_per_value": trials},
    }


def reasons(found):
    return {r.source_file: r.reason for r in found if isinstance(r, UnreadableRun)}


def runs(found):
    return [r for r in found if isinstance(r, ReadRun)]


OLD_CONFIG = {
    "endpoint": {"model_names": ["m"], "url": "http://h", "streaming": True},
    "loadgen": {"concurrency": 4, "request_count": 8},
    "input": {
        "prompt": {"input_tokens": {"mean": 100}, "output_tokens": {"mean": 10}},
        "extra": [["ignore_eos", True]],
    },
    "cli_command": "aiperf profile",
}


def test_version_0_3_writes_null_for_what_does_not_apply(tmp_path):
    document = {
        "request_count": metric("requests", 8.0), "total_osl": metric("tokens", 80.0), "goodput": None,
        "benchmark_duration": metric("sec", 0.5), "time_to_first_token": None, "error_request_count": None,
        "inter_token_latency": {"unit": "ms", "avg": None, "p50": None}, "input_config": OLD_CONFIG, "was_cancelled": False,
        "error_summary": None, "benchmark_id": None, "min_request_timestamp": metric("ns", 1.7960637241239575e18),
    }  # fmt: skip
    (run,) = read_runs(write(tmp_path / "r", document), root=tmp_path)
    assert run.stated["output_tokens_per_s"] == 160.0
    assert run.stated["failed_requests"] == 0
    assert run.stated["concurrency"] == 4
    assert {"ttft_p50_ms", "itl_p50_ms"}.isdisjoint(run.stated)
    assert {"benchmark_id", "ttft_p99_ms", "inter_token_ms"}.isdisjoint(run.facts)
    assert run.facts["urls"] == 1
    assert run.facts["ignore_eos"] is True
    assert run.facts["load_type"] == "concurrency"


def test_a_bare_nan_of_an_old_version_is_unknown(tmp_path):
    text = json.dumps(summary(inter_token_latency=metric("ms", float("nan"), p50=float("nan"))))
    assert "NaN" in text
    write(tmp_path / "r")
    (tmp_path / "r/profile_export_aiperf.json").write_text(text)
    (run,) = read_runs(tmp_path, root=tmp_path)
    assert "itl_p50_ms" not in run.stated
    assert run.stated["output_tokens_per_s"] == 80.0


def test_schema_1_5_is_read_by_its_keys(tmp_path):
    document = summary(schema_version="1.5", aiperf_version="0.14.0", nvidia_power_usage=metric("W", 300.0))
    folder = write(tmp_path / "r", document)
    (folder / "profile_export_aiperf.json").rename(folder / "foo.json")
    (folder / "foo_outputs.json").write_text(json.dumps({"outputs": ["text"]}))
    (run,) = read_runs(tmp_path, root=tmp_path)
    assert run.source_file == "r/foo.json"
    assert run.stated["tool_version"] == "0.14.0"
    assert run.facts["ready_marker"] is False


def test_the_marker_is_asked_of_versions_that_write_it(tmp_path):
    write(tmp_path / "old", summary(aiperf_version="0.9.0", run="a"))
    write(tmp_path / "ready", summary(run="b"))
    (tmp_path / "ready/.aiperf_results_ready.json").write_text('{"ready":true}')
    old, ready = read_runs(tmp_path, root=tmp_path)
    assert "ready_marker" not in old.facts  # as text, 0.9 would come after 0.13
    assert ready.facts["ready_marker"] is True


@pytest.mark.parametrize(
    "order", ["profile_runs/trial_000{t}/concurrency_{c}", "concurrency_{c}/profile_runs/trial_000{t}"]
)
def test_sweep_and_trials_in_both_orders(tmp_path, order):
    lines = [record(i, start=0.1 * i) for i in range(4)]
    for c in (1, 2):
        for t in (1, 2):
            document = summary(c, run=f"{c}{t}", sweep="s", trial=t - 1, start=f"2026-11-30T18:0{c}:0{t}")
            document["total_osl"]["avg"] = 10.0 * c + t
            write(tmp_path / order.format(c=c, t=t), document, lines)
    write(tmp_path / "sweep_aggregate", profile_export_aiperf_sweep=sweep_aggregate([1, 2], trials=2))
    one, two = sorted(read_runs(tmp_path, root=tmp_path), key=lambda r: r.stated["concurrency"])
    assert one.facts["trials"] == two.facts["trials"] == 2
    assert one.stated["output_tokens_per_s"] == pytest.approx((22.0 + 24.0) / 2)
    assert one.stated["output_tokens_per_s_stderr"] == pytest.approx(1.0)
    assert one.stated["ttft_p50_ms"] == 20.0
    assert one.source_file == order.format(c=1, t=1) + "/profile_export_aiperf.json"


def test_names_of_folders_say_nothing(tmp_path):
    write(tmp_path / "concurrency_64", summary(1, run="a", sweep="s"))
    write(tmp_path / "concurrency_1", summary(64, run="b", sweep="s"))
    found = {r.source_file.split("/")[0]: r.stated["concurrency"] for r in read_runs(tmp_path, root=tmp_path)}
    assert found == {"concurrency_64": 1, "concurrency_1": 64}


def test_a_grid_names_the_cells_that_are_missing(tmp_path):
    for c, isl in ((1, 100), (2, 100), (1, 200)):
        document = summary(c, run=f"{c}-{isl}", sweep="s")
        document["run_info"]["variation_values"]["datasets.main.prompts.isl.mean"] = isl
        document["input_config"]["datasets"][0]["prompts"]["isl"]["mean"] = isl
        write(tmp_path / f"mean_{isl}__concurrency_{c}", document)
    aggregate = sweep_aggregate([1, 2])
    aggregate["metadata"]["sweep_parameters"].append({"name": "mean", "values": [100.0, 200.0]})
    write(tmp_path / "sweep_aggregate", profile_export_aiperf_sweep=aggregate)
    found = read_runs(tmp_path, root=tmp_path)
    assert list(reasons(found).values()) == [
        "the cell concurrency=2, mean=200.0 of the sweep is missing: it failed or was not run"
    ]
    assert len(runs(found)) == 3


def test_names_that_clash_are_full_paths(tmp_path):
    for isl, osl in ((100, 10), (200, 10), (100, 20)):
        document = summary(1, run=f"{isl}-{osl}", sweep="s")
        values = {"datasets.main.prompts.isl.mean": isl, "datasets.main.prompts.osl.mean": osl}
        document["run_info"]["variation_values"] = values
        write(tmp_path / f"mean_{isl}__mean_{osl}", document)
    aggregate = sweep_aggregate([100, 200], name="datasets.main.prompts.isl.mean")
    other = {"name": "datasets.main.prompts.osl.mean", "values": [10, 20]}
    aggregate["metadata"]["sweep_parameters"].append(other)
    write(tmp_path / "sweep_aggregate", profile_export_aiperf_sweep=aggregate)
    (missing,) = reasons(read_runs(tmp_path, root=tmp_path)).values()
    assert "isl.mean=200, datasets.main.prompts.osl.mean=20 of the sweep is missing" in missing


def test_a_cell_of_a_sweep_below_does_not_stand_in_for_one_that_is_missing(tmp_path):
    write(tmp_path / "concurrency_1", summary(1, run="a", sweep="s"))
    write(tmp_path / "sweep_aggregate", profile_export_aiperf_sweep=sweep_aggregate([1, 4]))
    write(tmp_path / "later/concurrency_4", summary(4, run="b", sweep="t"))
    write(tmp_path / "later/sweep_aggregate", profile_export_aiperf_sweep=sweep_aggregate([4]))
    assert "concurrency=4 of the sweep is missing" in str(reasons(read_runs(tmp_path, root=tmp_path)))


def test_a_server_that_counts_no_tokens_has_no_throughput(tmp_path):
    document = summary()  # o_server_count_but_no_usage: requests are counted, tokens are not
    for name in ("total_osl", "output_token_throughput", "inter_token_latency"):
        del document[name]
    lines = [record(i, start=i / 10) for i in range(4)]
    for one in lines:
        del one["metrics"]["output_sequence_length"], one["metrics"]["usage_completion_tokens"]
    (run,) = read_runs(write(tmp_path / "r", document, lines), root=tmp_path)
    assert run.stated["completed_requests"] == 4
    assert "output_tokens_per_s" not in run.stated
    assert "usage_completion_count" not in run.facts


def test_a_pipe_does_not_hang_the_job(tmp_path):
    write(tmp_path, summary(run="a"))
    os.mkfifo(tmp_path / "p.json")
    (tmp_path / "gone.jsonl").symlink_to(tmp_path / "nowhere")
    assert set(reasons(read_runs(tmp_path, root=tmp_path))) == {"p.json", "gone.jsonl"}


def test_a_sweep_parameter_that_no_cell_states_hides_nothing(tmp_path):
    write(tmp_path / "a", summary(1, run="a", sweep="s"))
    write(tmp_path / "sweep_aggregate", profile_export_aiperf_sweep=sweep_aggregate([1, 2], name="unheard_of"))
    assert "missing cells are not known" in str(reasons(read_runs(tmp_path, root=tmp_path)))


def test_an_interrupted_sweep_names_what_its_command_asked_for(tmp_path):
    # l_sweep_sigint: finished cells intact, the running one without a summary, no aggregates
    command = "aiperf profile --model m --concurrency '1,2,4' --request-count 4"
    for c in (1,):
        document = summary(c, run=f"r{c}", sweep="s")
        document["run_info"]["cli_command"] = command
        write(tmp_path / f"concurrency_{c}", document)
    config = {"cfg": {}, "benchmark_id": "r2", "variation": {"values": {"phases.profiling.concurrency": 2}}}
    write(tmp_path / "concurrency_2", records=[record()], run_config=config)
    found = read_runs(tmp_path, root=tmp_path)
    assert [r.stated["concurrency"] for r in runs(found)] == [1]
    assert reasons(found) == {
        "concurrency_2/profile_export.jsonl": "cell phases.profiling.concurrency=2: the run ended before its summary was "
        "written, after 1 completed and 0 failed requests",
        ".": "the cell concurrency=4 of the sweep is missing: it failed or was not run",
    }


def test_a_run_left_beside_a_later_sweep(tmp_path):
    # v_rerun_same_dir: a single run, then a sweep into the same folder
    write(tmp_path, summary(2, run="old", start="2026-11-30T17:00:00"))
    for c in (1, 2):
        write(tmp_path / f"concurrency_{c}", summary(c, run=f"n{c}", sweep="s", start=f"2026-11-30T18:0{c}:00"))
    write(tmp_path / "sweep_aggregate", profile_export_aiperf_sweep=sweep_aggregate([1, 2]))
    found = read_runs(tmp_path, root=tmp_path)
    assert reasons(found) == {
        "profile_export_aiperf.json": "is left of an earlier run: the folder was used again at 2026-11-30T18:01:00 by s"
    }
    assert [r.stated["concurrency"] for r in runs(found)] == [1, 2]
    assert all("stale" not in r.facts for r in runs(found))


def test_a_sweep_beside_a_later_run_is_stale(tmp_path):
    write(tmp_path, summary(2, run="new", start="2026-11-30T19:00:00"))
    for c in (1, 2):
        write(tmp_path / f"concurrency_{c}", summary(c, run=f"o{c}", sweep="s", start=f"2026-11-30T18:0{c}:00"))
    stale = {r.source_file: r.facts.get("stale") for r in read_runs(tmp_path, root=tmp_path)}
    assert stale["profile_export_aiperf.json"] is None
    assert "used again at 2026-11-30T19:00:00 by new" in stale["concurrency_1/profile_export_aiperf.json"]


def test_a_cell_left_of_an_earlier_sweep_is_stale(tmp_path):
    for c in (1, 2):
        write(tmp_path / f"concurrency_{c}", summary(c, run=f"n{c}", sweep="new", start="2026-11-30T19:00:00"))
    write(tmp_path / "concurrency_4", summary(4, run="o4", sweep="old", start="2026-11-30T18:00:00"))
    found = read_runs(tmp_path, root=tmp_path)
    assert [bool(r.facts.get("stale")) for r in found] == [False, False, True]


def test_two_sweeps_in_folders_of_their_own_are_not_stale(tmp_path):
    for name, hour in (("one", 18), ("two", 19)):
        for c in (1, 2):
            document = summary(c, run=f"{name}{c}", sweep=name, start=f"2026-11-30T{hour}:00:00")
            write(tmp_path / name / f"concurrency_{c}", document)
    found = read_runs(tmp_path, root=tmp_path)
    assert len(found) == 4
    assert all("stale" not in r.facts for r in found)


def test_a_summary_of_another_run_than_the_files_beside_it(tmp_path):
    write(tmp_path / "counts", summary(run="a"), [record(i, error={"code": 500}) for i in range(4)])
    write(tmp_path / "ids", summary(run="b", sweep="s"), run_config={"cfg": {}, "benchmark_id": "c"})
    told = reasons(read_runs(tmp_path, root=tmp_path))
    assert (
        "counts 4.0 completed requests and the per-request file beside it 0"
        in told["counts/profile_export_aiperf.json"]
    )
    assert "is of run b and run_config.json beside it of c" in told["ids/profile_export_aiperf.json"]


def test_copies_are_reported_and_read_once(tmp_path):
    document = summary(run="a")
    write(tmp_path / "first", document)
    shutil.copytree(tmp_path / "first", tmp_path / "second")
    write(tmp_path / "third", None)
    (tmp_path / "third/pretty.json").write_text(json.dumps(document, indent=2))  # same run, other bytes
    found = read_runs(tmp_path, root=tmp_path)
    assert [r.source_file for r in runs(found)] == ["first/profile_export_aiperf.json"]
    assert set(reasons(found)) == {"second/profile_export_aiperf.json", "third/pretty.json"}
    assert "is of the run that is read from first/" in reasons(found)["third/pretty.json"]


def test_runs_of_two_commands_are_no_trials_of_each_other(tmp_path):
    write(tmp_path / "a", summary(run="a", start="2026-11-30T18:00:00"))
    write(tmp_path / "b", summary(run="b", start="2026-11-30T19:00:00"))
    assert [r.facts.get("trials") for r in read_runs(tmp_path, root=tmp_path)] == [None, None]


def test_trials_before_0_9_share_only_their_id(tmp_path):
    for t in (1, 2):
        document = {
            "request_count": metric("requests", 8.0), "total_osl": metric("tokens", 80.0 * t), "benchmark_id": "x",
            "benchmark_duration": metric("sec", 0.5), "input_config": OLD_CONFIG, "start_time": f"2026-11-30T18:0{t}:00",
        }  # fmt: skip
        write(tmp_path / f"profile_runs/run_000{t}", document)
    (run,) = read_runs(tmp_path, root=tmp_path)
    assert run.facts["trials"] == 2
    assert run.stated["output_tokens_per_s"] == 240.0


def test_a_warning_of_one_trial_is_one_of_the_cell(tmp_path):
    for t in (1, 2):
        document = summary(run=f"t{t}", sweep="s", start=f"2026-11-30T18:0{t}:00", was_cancelled=t == 2)
        write(tmp_path / f"profile_runs/run_000{t}", document)
    (run,) = read_runs(tmp_path, root=tmp_path)
    assert run.facts["cancelled"] is True


def test_phase_copies_without_their_run_are_reported(tmp_path):
    write(tmp_path / "r/phases/warmup", summary(run="a"))
    assert "one phase of a run that has no summary" in str(reasons(read_runs(tmp_path, root=tmp_path)))


def test_a_folder_that_a_user_called_phases_is_no_copy(tmp_path):
    write(tmp_path / "phases/first", summary(run="a"), [record(i, start=i / 10) for i in range(4)])
    assert len(runs(read_runs(tmp_path, root=tmp_path))) == 1


def test_slices_of_time_and_aggregates_are_no_runs(tmp_path):
    write(tmp_path, summary(run="a"))
    (tmp_path / "foo_timeslices.json").write_text(json.dumps({**summary(run="a"), "timeslices": [summary()]}))
    (tmp_path / "profile_export_aiperf_aggregate.json").write_text(json.dumps({"metadata": {}, "metrics": {}}))
    (tmp_path / "profile_export_raw.jsonl").write_text('{"metadata":{"request_start_ns":1},"responses":[]}\n')
    assert [r.source_file for r in read_runs(tmp_path, root=tmp_path)] == ["profile_export_aiperf.json"]


def test_version_0_1_whose_requests_all_failed_wrote_a_summary(tmp_path):
    document = {
        "records": {"error_request_count": metric("requests", 8.0)}, "input_config": OLD_CONFIG,
        "error_summary": [{"error_details": {"code": None, "type": "Parse"}, "count": 8}],
    }  # fmt: skip
    write(tmp_path, document)
    assert list(reasons(read_runs(tmp_path, root=tmp_path)).values()) == ["all 8 requests failed (Parse x 8)"]


def test_errors_without_a_count_are_taken_from_their_list(tmp_path):
    errors = [{"error_details": {"code": 500}, "count": 7}]
    (run,) = read_runs(write(tmp_path / "r", summary(requests=13, error_summary=errors)), root=tmp_path)
    assert run.stated["failed_requests"] == 7


def test_errors_that_the_summary_does_not_count_are_taken_from_the_requests(tmp_path):
    lines = [record(i, start=i / 10) for i in range(4)] + [record(9, error={"code": 500})] * 2
    (run,) = read_runs(write(tmp_path / "r", summary(), lines), root=tmp_path)
    assert run.stated["failed_requests"] == 2


def test_a_run_that_did_not_start_says_what_its_log_said(tmp_path):
    (tmp_path / "r/logs").mkdir(parents=True)
    (tmp_path / "r/logs/aiperf.log").write_text(
        "2026-11-30 18:00:00.1 - a - INFO - up\n2026-11-30 18:00:01.1 - b - ERROR - no tokenizer\n"
    )
    assert reasons(read_runs(tmp_path, root=tmp_path)) == {
        "r": "the run wrote neither a summary nor requests: it did not start; its log ends with: no tokenizer"
    }


def test_a_killed_run_leaves_its_requests_and_half_a_line(tmp_path):
    write(tmp_path, None, [record(i) for i in range(3)])
    (tmp_path / "gpu_telemetry_export.jsonl").touch()
    with (tmp_path / "profile_export.jsonl").open("a") as file:
        file.write(json.dumps(record(3))[:80])
    assert list(reasons(read_runs(tmp_path, root=tmp_path)).values()) == [
        "the run ended before its summary was written, after 3 completed and 0 failed requests; its last line is cut"
    ]


def test_errors_of_several_kinds_are_counted(tmp_path):
    errors = [{"code": 500, "type": "x"}] * 2 + [{"type": "ClientPayloadError", "code": None}] + [{"code": 499}]
    write(tmp_path, None, [record(i, error=e) for i, e in enumerate(errors)])
    assert list(reasons(read_runs(tmp_path, root=tmp_path)).values()) == [
        "all 4 requests failed (500 x 2, 499 x 1, ClientPayloadError x 1)"
    ]


def test_a_damaged_line_names_file_and_line(tmp_path):
    write(tmp_path, summary(), [record(i, start=i / 10) for i in range(4)])
    path = tmp_path / "profile_export.jsonl"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:2], lines[2][:50], lines[3]]) + "\n")
    (found,) = read_runs(tmp_path, root=tmp_path)
    assert (found.source_file, found.source_row) == ("profile_export.jsonl", 3)
    assert "is not a per-request record" in found.reason


def test_a_cut_file_beside_a_summary_is_a_fact(tmp_path):
    write(tmp_path, summary(), [record(i, start=i / 10) for i in range(4)])
    path = tmp_path / "profile_export.jsonl"
    path.write_text(path.read_text()[:-40])
    (run,) = read_runs(tmp_path, root=tmp_path)
    assert run.facts["cut_last_line"] is True
    assert run.facts["steady_output_tokens_per_s"] is None
    assert run.stated["output_tokens_per_s"] == 80.0


def test_throughput_of_a_summary_without_duration_comes_from_the_requests(tmp_path):
    document = summary()
    del document["total_osl"], document["benchmark_duration"]
    write(tmp_path, document, [record(i, start=0.1 * i) for i in range(4)])
    (run,) = read_runs(tmp_path, root=tmp_path)
    assert run.stated["output_tokens_per_s"] == pytest.approx(40 / 0.365)  # the last begins at 0.3 s and takes 65 ms
    assert run.stated["duration_s"] == pytest.approx(0.365)
    assert "per-request file" in run.facts["throughput_method"]
    assert "by a definition that is not known" in run.facts["throughput_note"]


def test_two_prefixes_in_one_folder_are_two_runs(tmp_path):
    for name, c in (("one", 1), ("two", 2)):
        (tmp_path / f"{name}.json").write_text(json.dumps(summary(c, run=name)))
        lines = [json.dumps(record(i, start=i / 10)) for i in range(4)]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    one, two = read_runs(tmp_path, root=tmp_path)
    assert (one.facts["records_file"], two.facts["records_file"]) == ("one.jsonl", "two.jsonl")


def test_a_link_out_of_the_folder_is_reported_and_one_inside_is_not(tmp_path):
    write(tmp_path / "inside/run", summary(run="a"))
    write(tmp_path / "outside", summary(run="b"))
    (tmp_path / "inside/latest").symlink_to(tmp_path / "inside/run", target_is_directory=True)
    (tmp_path / "inside/other").symlink_to(tmp_path / "outside", target_is_directory=True)
    found = read_runs(tmp_path / "inside", root=tmp_path)
    assert len(runs(found)) == 1
    assert set(reasons(found)) == {"inside/other"}


def test_the_order_in_which_files_were_made_does_not_matter(tmp_path):
    cells = [(c, t) for c in (1, 2, 4) for t in (1, 2)]
    for name, order in (("a", cells), ("b", cells[::-1])):
        for c, t in order:
            document = summary(c, run=f"{c}{t}", sweep="s", trial=t, start=f"2026-11-30T18:0{t}:0{c}")
            lines = [record(i, start=i / 10) for i in range(4)]
            write(tmp_path / name / f"concurrency_{c}/profile_runs/t{t}", document, lines)
    assert read_runs(tmp_path / "a", root=tmp_path / "a") == read_runs(tmp_path / "b", root=tmp_path / "b")


WHAT = ["drop", None, 3, "x", [], {}, True, -1, {"unit": "ms"}, [{}]]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=150)
@given(data=st.data())
def test_any_change_in_any_file_of_a_sweep_gives_runs_or_reasons(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("sweep")
    files = {
        "c1/profile_export_aiperf.json": summary(1, run="a", sweep="s"),
        "c2/profile_export_aiperf.json": summary(2, run="b", sweep="s"),
        "c1/run_config.json": {
            "cfg": {},
            "benchmark_id": "a",
            "variation": {"values": {"phases.profiling.concurrency": 1}},
        },
        "sweep_aggregate/x.json": sweep_aggregate([1, 2, 4]),
        "phase_manifest.json": {"phases": [{"metrics_json": "phases/p/x.json"}]},
        "c1/profile_export.jsonl": record(),
        "c1/.aiperf_results_ready.json": {"ready": True},
    }
    for _ in range(data.draw(st.integers(1, 5))):
        name = data.draw(st.sampled_from(sorted(files)))
        files[name] = changed(files[name], data)
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(json.dumps(content) + "\n" * name.endswith("l"))
    try:
        found = read_runs(folder, root=folder)
    except CalibError:
        return
    assert found
    assert all(isinstance(r, (ReadRun, UnreadableRun)) for r in found)


def changed(document, data):
    document = copy.deepcopy(document)
    node, key = document, None
    while isinstance(node, (dict, list)) and node and (key is None or data.draw(st.booleans())):
        key = data.draw(st.sampled_from(sorted(node) if isinstance(node, dict) else range(len(node))))
        parent, node = node, node[key]
    change = data.draw(st.sampled_from(WHAT))
    if key is None:
        return change
    if change == "drop":
        del parent[key]
    else:
        parent[key] = change
    return document


def test_a_file_that_may_not_be_read_is_reported(tmp_path):
    if os.geteuid() == 0:
        pytest.skip("root may read everything")
    write(tmp_path, summary())
    (tmp_path / "profile_export_aiperf.json").chmod(0)
    assert "cannot be read" in str(reasons(read_runs(tmp_path, root=tmp_path)))


def test_steady_throughput_of_trials_is_their_mean(tmp_path):
    # two slots, a request of 10 tokens every 65 ms in each: 2 * 10 / 0.065 tok/s
    lines = [record(i, start=0.065 * (i // 2) + 0.03 * (i % 2)) for i in range(40)]
    for t in (1, 2):
        document = summary(run=f"t{t}", sweep="s", start=f"2026-11-30T18:0{t}:00", requests=40)
        write(tmp_path / f"profile_runs/run_000{t}", document, lines)
    (run,) = read_runs(tmp_path, root=tmp_path)
    (alone,) = read_runs(tmp_path / "profile_runs/run_0001", root=tmp_path)
    assert run.facts["steady_output_tokens_per_s"] == pytest.approx(20 / 0.065, rel=0.02)
    # two trials of one error each: the error of their mean is smaller by the root of two
    assert run.facts["steady_rel_error"] == pytest.approx(alone.facts["steady_rel_error"] / 2**0.5)


def test_a_sweep_id_may_stand_in_the_configuration_beside_alone(tmp_path):
    for t in (1, 2):
        document = summary(run=f"t{t}", start=f"2026-11-30T18:0{t}:00")
        write(tmp_path / f"t{t}", document, run_config={"cfg": {}, "sweep_id": "s"})
    (run,) = read_runs(tmp_path, root=tmp_path)
    assert run.facts["trials"] == 2


def test_a_cancelled_run_may_have_more_requests_than_its_summary(tmp_path):
    document = summary(was_cancelled=True, is_complete=False)
    (run,) = read_runs(write(tmp_path / "r", document, [record(i, start=i / 10) for i in range(6)]), root=tmp_path)
    assert (run.facts["cancelled"], run.facts["incomplete"]) == (True, True)


def test_a_run_that_was_killed_in_its_warmup(tmp_path):
    write(tmp_path, None, [record(i, phase="warmup") for i in range(3)])
    assert list(reasons(read_runs(tmp_path, root=tmp_path)).values()) == [
        "the run ended before its first request was done, after 3 of a warm-up"
    ]


def test_a_cell_that_did_not_start_is_named(tmp_path):
    write(tmp_path / "c1", summary(1, run="a", sweep="s"))
    config = {"cfg": {}, "variation": {"values": {"phases.profiling.concurrency": 2}}}
    write(tmp_path / "c2", run_config=config)
    write(tmp_path / "sweep_aggregate", x=sweep_aggregate([1, 2]))
    assert reasons(read_runs(tmp_path, root=tmp_path)) == {
        "c2": "cell phases.profiling.concurrency=2: the run wrote neither a summary nor requests: it did not start"
    }


def test_a_cell_that_cannot_be_read_is_not_reported_as_missing_too(tmp_path):
    document = summary(2, run="b", sweep="s")
    document["total_osl"]["unit"] = "words"
    write(tmp_path / "c2", document)
    write(tmp_path / "c1", summary(1, run="a", sweep="s"))
    write(tmp_path / "sweep_aggregate", x=sweep_aggregate([1, 2]))
    assert set(reasons(read_runs(tmp_path, root=tmp_path))) == {"c2/profile_export_aiperf.json"}


@pytest.mark.parametrize(
    ("part", "value", "told"),
    [
        ("models", {"items": [{"name": "m"}, {"name": "n"}]}, "states 2 values of model (m, n)"),
        ("models", {"items": [{"name": 3}]}, "the model's name is '3' and not text"),
        ("models", 3, "models is not an object"),
        ("phases", 3, "phases is not a list of objects"),
        ("phases", [{"kind": "profiling", "type": "poisson", "rate": "fast"}], "rate is 'fast' and not a number"),
        (
            "phases",
            [{"kind": "profiling", "type": "concurrency", "concurrency": [1, 2]}],
            "not a positive whole number",
        ),
        ("datasets", [{"prompts": {"isl": {"mean": 100.5}}}], "isl is '100.5' and not a positive whole number"),
    ],
)
def test_a_workload_that_is_not_one_is_told_in_words(tmp_path, part, value, told):
    document = summary()
    document["input_config"][part] = value
    assert told in str(reasons(read_runs(write(tmp_path / "r", document), root=tmp_path)))


@pytest.mark.parametrize(
    ("loadgen", "given", "load", "random"),
    [
        ({"request_rate": 5.0}, {}, "poisson", None),
        ({"request_rate": 5.0, "arrival_pattern": "gamma"}, {}, "gamma", None),
        ({"concurrency": 2}, {"fixed_schedule": True, "file": "t.jsonl"}, "fixed_schedule", False),
        ({"concurrency": 2}, {"public_dataset": "sharegpt"}, "concurrency", False),
        ({}, {}, "unspecified", None),
    ],
)
def test_loads_of_the_old_configuration(tmp_path, loadgen, given, load, random):
    document = summary(run="a", input_config={**OLD_CONFIG, "loadgen": loadgen, "input": given})
    (run,) = read_runs(write(tmp_path / "r", document), root=tmp_path)
    assert run.facts["load_type"] == load
    assert run.facts.get("random_prompts") is random
    assert ("concurrency" in run.stated) is (load == "concurrency")


@pytest.mark.parametrize("command", ["aiperf 'open --concurrency 1,2", "aiperf --concurrency 1,x", "", None])
def test_a_command_that_cannot_be_understood_names_nothing(tmp_path, command):
    document = summary(1, run="a", sweep="s")
    document["run_info"]["cli_command"] = command
    (run,) = read_runs(write(tmp_path / "c", document), root=tmp_path)
    assert isinstance(run, ReadRun)


def test_a_file_over_the_limit_is_reported_unless_it_is_never_a_run(tmp_path, monkeypatch):
    monkeypatch.setattr(aiperf_files, "SIZE_LIMIT", 10)
    write(tmp_path, summary(), inputs={"data": ["long"] * 10}, foo_server_metrics={"metrics": ["long"] * 10})
    assert set(reasons(read_runs(tmp_path, root=tmp_path))) == {"profile_export_aiperf.json"}


def test_a_folder_that_cannot_be_listed_is_reported(tmp_path, monkeypatch):
    write(tmp_path, summary())
    walk = os.walk

    def refused(top, onerror):
        onerror(PermissionError(13, "Permission denied", str(tmp_path / "private")))
        return walk(top)

    monkeypatch.setattr(os, "walk", refused)
    assert reasons(read_runs(tmp_path, root=tmp_path)) == {"private": "cannot be listed (Permission denied)"}


@pytest.mark.parametrize(
    "part", ["concurrency_1", "concurrency_1/profile_runs", "concurrency_1/profile_runs/trial_0001"]
)
@pytest.mark.parametrize("aggregated", [True, False])
def test_the_rest_of_a_sweep_is_not_missing_where_a_part_was_asked_for(tmp_path, part, aggregated):
    sweep = tmp_path / "sweep"
    for c in (1, 2):
        document = summary(c, run=f"r{c}", sweep="s")
        own = f"concurrency_{c}/profile_runs/trial_0001"
        document["input_config"]["artifacts"] = {"dir": f"/data/out/{own}"}
        document["run_info"]["cli_command"] = "aiperf profile --concurrency '1,2,4' --artifact-dir /data/out"
        write(sweep / own, document)
    if aggregated:
        write(sweep / "sweep_aggregate", x=sweep_aggregate([1, 2, 4]))
    assert len(read_runs(sweep / part, root=sweep / part)) == 1
    assert len(read_runs(sweep / part, root=tmp_path)) == 1
    (missing,) = reasons(read_runs(sweep, root=sweep)).values()
    assert missing == "the cell concurrency=4 of the sweep is missing: it failed or was not run"


def test_a_phase_summary_that_was_moved_is_of_a_run_that_is_read(tmp_path):
    write(tmp_path / "z", summary(run="a"), [record(i, start=i / 10) for i in range(4)])
    write(tmp_path / "moved", summary(run="a", start="2026-11-30T17:59:59", total_osl=metric("tokens", 4.0)))
    found = read_runs(tmp_path, root=tmp_path)
    assert [r.source_file for r in runs(found)] == ["z/profile_export_aiperf.json"]
    assert "or one of its phases" in reasons(found)["moved/profile_export_aiperf.json"]


def test_a_cell_left_of_an_earlier_sweep_does_not_stand_in_for_one_that_is_missing(tmp_path):
    write(tmp_path / "concurrency_1", summary(1, run="n1", sweep="new", start="2026-11-30T19:00:00"))
    write(tmp_path / "concurrency_4", summary(4, run="o4", sweep="old", start="2026-11-30T18:00:00"))
    write(tmp_path / "sweep_aggregate", x=sweep_aggregate([1, 4]))
    assert "concurrency=4 of the sweep is missing" in str(reasons(read_runs(tmp_path, root=tmp_path)))


def test_a_sweep_that_asks_for_too_many_cells_does_not_hang_the_job(tmp_path):
    write(tmp_path / "c", summary(1, run="a", sweep="s"))
    aggregate = sweep_aggregate([1])
    one = {"name": "concurrency", "values": list(range(1000))}
    aggregate["metadata"]["sweep_parameters"] = [one, {**one, "name": "profiling.concurrency"}]
    write(tmp_path / "sweep_aggregate", x=aggregate)
    assert "asks for 1000000 cells" in str(reasons(read_runs(tmp_path, root=tmp_path)))
