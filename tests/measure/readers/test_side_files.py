"""Hints about the deployment: values written down from the files by hand."""

from __future__ import annotations

import json
import os
import shutil

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from support.paths import DATA

from calib.measure.columns import RUN_COLUMNS
from calib.measure.readers import server_metrics, side_files as deployment
from calib.measure.readers.hints import Hint, gpu_system
from calib.measure.readers.side_files import path_hints, read_hints

FILES = DATA / "deployment"
METRICS = "server_metrics_export.json"
SUMMARY = "profile_export_aiperf.json"
FIRST, SECOND = "http://10.0.0.5:8000/metrics", "http://10.0.0.6:8000/metrics"


def said(hints):
    """Field -> the values that were said of it, in order."""
    found = {}
    for hint in hints:
        assert hint.field in RUN_COLUMNS
        found.setdefault(hint.field, []).append(hint.value)
    return found


def write(folder, name, document):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document), encoding="utf-8")


def summary(urls=("http://10.0.0.5:8000",), gpus=None, host="10.0.0.5:9400", user_files=()):
    telemetry = {"endpoints": {host: {"gpus": gpus}}} if gpus else None
    files = [{"path": path} for path in user_files]
    config = {"endpoint": {"urls": list(urls)}, "artifacts": {"user_files": files}}
    return {"input_config": config, "request_count": {"avg": 1}, "telemetry_data": telemetry}


def scrape(**labels_of_metric):
    """A scrape of one endpoint: metric -> labels of its only series."""
    metrics = {
        name.replace("__", ":"): {"series": [{"endpoint_url": FIRST, "labels": labels, "stats": {"total": 1.0}}]}
        for name, labels in labels_of_metric.items()
    }
    return {"summary": {}, "metrics": metrics}


def gpu(name, uuid):
    return {"gpu_name": name, "gpu_uuid": uuid}


# Files that aiperf wrote


def test_the_side_car_of_the_sample(shared):
    root = shared / "samples" / "aiperf"
    hints, facts = read_hints(root / "ah_user_files_sidecar", root=root)
    file = "ah_user_files_sidecar/deployment.json"
    assert hints == [
        Hint("backend", "vllm", file, "backend"),
        Hint("backend_version", "0.11.0", file, "backend_version"),
        Hint("tp", 4, file, "tp"),
        Hint("pp", 2, file, "pp"),
        Hint("system", "h100_sxm", file, "gpu"),
        Hint("backend", "vllm", f"ah_user_files_sidecar/{METRICS}", "metrics.vllm:cache_config_info.series[0]"),
    ]
    assert facts == {
        "server_backend": "vllm",
        "server_generation_tokens": 160.0,
        "prefix_cache_hit_rate": 0.0,
        "gpu_names": ("H100-SXM",),
    }


def test_the_telemetry_of_the_sample_is_an_upper_bound(shared):
    folder = shared / "samples" / "aiperf" / "s_gpu_telemetry"
    hints, facts = read_hints(folder, root=folder)
    assert hints[1:] == [
        Hint("system", "h100_sxm", SUMMARY, "telemetry_data.endpoints"),
        Hint("gpus", 2, SUMMARY, "telemetry_data.endpoints", "at_least"),
        Hint("system", "h100_sxm", "gpu_telemetry_export.jsonl", "gpu_model_name"),
        Hint("gpus", 2, "gpu_telemetry_export.jsonl", "gpu_model_name", "at_least"),
    ]
    assert facts["gpu_names"] == ("NVIDIA H100 80GB HBM3",)
    assert facts["server_generation_tokens"] == 800.0


def test_two_servers_are_told_apart(shared):
    folder = shared / "samples" / "aiperf" / "r_multi_url"
    hints, facts = read_hints(folder, root=folder)
    assert [h.key for h in hints] == [f"metrics.vllm:cache_config_info.series[{i}]" for i in (0, 1)]
    assert facts["server_generation_tokens"] == 240.0
    assert facts["server_endpoints"] == {
        f"http://127.0.0.1:{port}/metrics": {"server_generation_tokens": 120.0, "prefix_cache_hit_rate": 0.0}
        for port in (9811, 9812)
    }


def test_a_scrape_is_known_by_its_content_and_not_by_its_name(shared):
    folder = shared / "samples" / "aiperf" / "h_export_prefix"
    hints, facts = read_hints(folder, root=folder)
    assert {h.file for h in hints} == {"qwen3_8b_tp4pp2_server_metrics.json"}
    assert facts["server_generation_tokens"] == 160.0
    assert [(h.field, h.value) for h in path_hints("runs/qwen3_8b_tp4pp2.json")] == [("tp", 4), ("pp", 2)]


def test_tokens_of_the_warm_up_are_not_counted(shared):
    folder = shared / "samples" / "aiperf" / "i_warmup"
    assert read_hints(folder, root=folder)[1]["server_generation_tokens"] == 200.0  # 10 requests of 20; 4 more before


@pytest.mark.parametrize("case", ["00_base_single_run", "old_aiperf_0.6.0"])
def test_a_plain_run_says_only_which_engine_served_it(shared, case):
    folder = shared / "samples" / "aiperf" / case
    assert said(read_hints(folder, root=folder)[0]) == {"backend": ["vllm"]}


# Scrapes of each engine


def test_tensorrt_llm_says_all():
    hints, facts = read_hints(FILES / "trtllm", root=FILES)
    config = "metrics.trtllm_parallel_config_info.series[0].labels."
    assert hints[:4] == [
        Hint("backend", "trtllm", f"trtllm/{METRICS}", "metrics.trtllm_parallel_config_info.series[0]"),
        Hint("tp", 4, f"trtllm/{METRICS}", config + "tensor_parallel_size"),
        Hint("pp", 2, f"trtllm/{METRICS}", config + "pipeline_parallel_size"),
        Hint("gpus", 8, f"trtllm/{METRICS}", config + "gpu_count"),
    ]
    assert said(hints[4:]) == {"model": ["qwen3-32b"], "precision": ["fp8"], "system": ["h20e_sxm"]}
    assert facts == {
        "server_backend": "trtllm",
        "server_generation_tokens": 51200.0,
        "prefix_cache_hit_rate": 0.03,  # 30 of 1000 blocks
        "gpu_names": ("NVIDIA H20-3e",),
    }


def test_ranks_of_sglang_say_something_only_where_more_than_the_first_export():
    hints, facts = read_hints(FILES / "sglang", root=FILES)
    assert said(hints) == {"backend": ["sglang"], "tp": [4]}
    assert hints[1].key == "metrics.sglang:num_running_reqs.series[1].labels.tp_rank"
    assert facts["server_generation_tokens"] == 1000.0
    assert facts["prefix_cache_hit_rate"] == 0.25  # 1500 on the device and 500 on the host of 8000


def test_engines_of_vllm_are_counted_at_each_endpoint():
    hints, facts = read_hints(FILES / "vllm_dp", root=FILES)
    assert said(hints) == {"backend": ["vllm", "vllm"], "tp": [2, 4], "dp": [2]}  # no dp = 1, and no tp of the draft
    assert hints[-1].key == f"metrics.*.series[*].labels.engine of {FIRST}"
    label = "metrics.vllm:vllm_config_info.series[0].labels.parallel_config_pipeline_parallel_size"
    assert facts["odd_labels"] == (f"vllm_dp/{METRICS}: {label} = '4.0' is not a positive whole number",)
    assert facts["prefix_cache_hit_rate"] == 0.06  # 30 of 500
    assert facts["server_endpoints"] == {
        FIRST: {"server_generation_tokens": 240.0, "prefix_cache_hit_rate": 0.15},
        SECOND: {"server_generation_tokens": 60.0, "prefix_cache_hit_rate": 0.0},
    }


def test_a_server_of_one_engine_says_that_it_is_one(tmp_path):
    write(tmp_path, METRICS, scrape(vllm__vllm_config_info={"engine": "0", "data_parallel_size": "1"}))
    assert said(read_hints(tmp_path, root=tmp_path)[0])["dp"] == [1]


def test_a_front_end_says_nothing():
    assert read_hints(FILES / "dynamo", root=FILES) == ([], {})


def test_a_worker_behind_a_front_end_is_seen(tmp_path):
    write(tmp_path, METRICS, scrape(dynamo_component_requests={}, sglang__num_queue_reqs={}))
    hints, facts = read_hints(tmp_path, root=tmp_path)
    assert said(hints) == {"backend": ["sglang"]}
    assert facts["server_backend"] == "sglang"


def test_nim_is_known_by_its_configuration():
    hints, facts = read_hints(FILES / "nim", root=FILES)
    assert said(hints) == {"backend": ["sglang"], "tp": [8], "pp": [1], "gpus": [8]}
    assert facts == {"server_backend": "sglang"}


def test_two_engines_in_one_scrape_are_both_named(tmp_path):
    write(tmp_path, METRICS, scrape(vllm__x={}, sglang__y={}))
    hints, facts = read_hints(tmp_path, root=tmp_path)
    assert said(hints) == {"backend": ["vllm", "sglang"]}
    assert "server_backend" not in facts


@pytest.mark.parametrize(("label", "rate"), [("False", 0.0), ("True", None)])
def test_a_cache_that_is_switched_off_has_no_hits(tmp_path, label, rate):
    write(tmp_path, METRICS, scrape(vllm__cache_config_info={"enable_prefix_caching": label}))
    assert read_hints(tmp_path, root=tmp_path)[1].get("prefix_cache_hit_rate") == rate


@pytest.mark.parametrize("total", [None, True, "7", -1.0, 1e30])
def test_a_counter_that_is_no_count_leaves_the_sum_unknown(tmp_path, total):
    document = json.loads((FILES / "sglang" / METRICS).read_text())
    document["metrics"]["sglang:generation_tokens"]["series"][0]["stats"]["total"] = total
    write(tmp_path, METRICS, document)
    assert "server_generation_tokens" not in read_hints(tmp_path, root=tmp_path)[1]


def test_a_model_that_is_a_path_is_no_name(tmp_path):
    write(tmp_path, METRICS, scrape(trtllm_model_config_info={"model": "/models/m", "quantization": "None"}))
    assert said(read_hints(tmp_path, root=tmp_path)[0]) == {"backend": ["trtllm"]}
    write(tmp_path, METRICS, scrape(trtllm_model_config_info={"model": "Qwen/Qwen3-32B"}))
    assert said(read_hints(tmp_path, root=tmp_path)[0])["model"] == ["Qwen/Qwen3-32B"]


# Side-cars


def test_every_key_of_a_side_car(tmp_path):
    write(tmp_path, "deployment.json", {
        "tp": "4", "pp_size": 2, "data-parallel-size": 1, "gpu_count": 8, "backend": "TensorRT-LLM", "backend_version": "1.2.0",
        "system": "b200_sxm", "model": "m", "precision": "fp8", "scenario": "x", "replicas": 2,
        "engine": {"max_num_seqs": 256, "enable_chunked_prefill": True, "cuda_graph_sizes": [1, 2, 4], "dummy_weights": False,
                   "executor": "ray", "async_scheduling": {}},
    })  # fmt: skip
    hints, facts = read_hints(tmp_path, root=tmp_path)
    assert said(hints) == {
        "tp": [4], "pp": [2], "dp": [1], "gpus": [8], "backend": ["trtllm"], "backend_version": ["1.2.0"],
        "system": ["b200_sxm"], "model": ["m"], "precision": ["fp8"], "replicas": [2],
    }  # fmt: skip
    engine = {"max_num_seqs": 256, "chunked_prefill": True, "cuda_graph_sizes": (1, 2, 4), "dummy_weights": False}
    assert facts == {"engine": {**engine, "executor": "ray"}}


@pytest.mark.parametrize("value", ["4.0", "", "auto", 4.0, 0, -4, True, [4], {"n": 4}, "٤", 10**12])
def test_a_degree_that_is_no_whole_number_is_no_hint(tmp_path, value):
    write(tmp_path, "deployment.json", {"tp": value, "pp": 2, "dp": None})
    hints, facts = read_hints(tmp_path, root=tmp_path)
    assert said(hints) == {"pp": [2]}
    (remark,) = facts["odd_labels"]
    assert remark.startswith("deployment.json: tp = ")


def test_an_unknown_engine_is_no_hint(tmp_path):
    write(tmp_path, "deployment.json", {"backend": "dynamo", "system": "eight H100s", "gpu": "NVIDIA B300"})
    hints, facts = read_hints(tmp_path, root=tmp_path)
    assert hints == []
    assert [r.partition(": ")[2] for r in facts["odd_labels"]] == [
        "backend = 'dynamo' is not a known engine",
        "system = 'eight H100s' is not a known system",
    ]
    assert facts["gpu_names"] == ("NVIDIA B300",)


def test_other_files_count_only_where_aiperf_wrote_them(tmp_path):
    write(tmp_path, "meta/server.json", {"tp": 2})
    write(tmp_path, "rack-7.json", {"pp": 2})
    write(tmp_path, "notes.json", {"dp": 8})
    assert read_hints(tmp_path, root=tmp_path) == ([], {})
    listed = (
        "meta/server.json",
        "{{ rack }}-7.json",
        "../up.json",
        "/etc/x.json",
        "inputs.json",
        "none.json",
        "x.yaml",
    )
    write(tmp_path, SUMMARY, summary(user_files=listed))
    hints, _ = read_hints(tmp_path, root=tmp_path)
    assert [(h.field, h.value, h.file) for h in hints] == [("tp", 2, "meta/server.json"), ("pp", 2, "rack-7.json")]


# Telemetry


def test_gpus_of_the_machine_that_sent_the_requests_are_not_the_servers(tmp_path):
    gpus = {"gpu_0": gpu("NVIDIA H200", "a")}
    write(tmp_path, SUMMARY, summary(gpus=gpus, host="localhost:9400"))
    hints, facts = read_hints(tmp_path, root=tmp_path)
    assert hints == []
    assert facts["gpu_names"] == ("NVIDIA H200",)
    assert "machine that sent the requests" in facts["odd_labels"][0]
    write(tmp_path, SUMMARY, summary(urls=["http://localhost:8000"], gpus=gpus, host="localhost:9400"))
    assert said(read_hints(tmp_path, root=tmp_path)[0]) == {"system": ["h200_sxm"], "gpus": [1]}


def test_gpus_of_two_kinds_name_no_system_and_one_seen_twice_is_one(tmp_path):
    write(
        tmp_path, SUMMARY, summary(gpus={"0": gpu("NVIDIA H200", "a"), "1": gpu("NVIDIA L4", "b"), "2": gpu("", "a")})
    )
    hints, facts = read_hints(tmp_path, root=tmp_path)
    assert said(hints) == {"gpus": [2]}
    assert facts["gpu_names"] == ("NVIDIA L4",)
    write(tmp_path, SUMMARY, summary(gpus={"0": gpu("NVIDIA H200", "a"), "1": gpu("NVIDIA L4", "b")}))
    assert said(read_hints(tmp_path, root=tmp_path)[0]) == {"gpus": [2]}


def records(folder, lines, name="gpu_telemetry_export.jsonl"):
    row = {"gpu_model_name": "", "telemetry_data": {}, "telemetry_source_url": "u"}
    text = "".join(json.dumps({**row, "gpu_uuid": f"GPU-{i % 8}"}) + "\n" for i in range(lines))
    (folder / name).write_text(text + "{cut off", encoding="utf-8")


def test_records_without_names_still_count_gpus(tmp_path):
    records(tmp_path, 40)
    hints, facts = read_hints(tmp_path, root=tmp_path)
    assert hints == [Hint("gpus", 8, "gpu_telemetry_export.jsonl", "gpu_model_name", "at_least")]
    assert facts == {}


def test_the_beginning_of_long_records_is_no_bound(tmp_path):
    records(tmp_path, deployment.TELEMETRY_LINES)
    assert read_hints(tmp_path, root=tmp_path)[0] == []


def test_more_gpus_than_are_kept_are_no_bound(tmp_path):
    rows = [{"gpu_uuid": f"GPU-{i}", "gpu_model_name": "NVIDIA H200", "telemetry_data": {}} for i in range(501)]
    text = "\n".join(map(json.dumps, rows))
    (tmp_path / "gpu_telemetry_export.jsonl").write_text(text, encoding="utf-8")
    assert said(read_hints(tmp_path, root=tmp_path)[0]) == {"system": ["h200_sxm"]}


@pytest.mark.parametrize(
    ("name", "system"),
    [
        ("NVIDIA H200", "h200_sxm"),
        ("H200-SXM-141GB", "h200_sxm"),
        ("NVIDIA H20-3e", "h20e_sxm"),
        ("h20e_sxm", "h20e_sxm"),
        ("NVIDIA H20", "h20_sxm"),
        ("NVIDIA H100 80GB HBM3", "h100_sxm"),
        ("NVIDIA-H100-SXM5-80GB", "h100_sxm"),
        ("h100_sxm", "h100_sxm"),
        ("NVIDIA H100 PCIe", None),
        ("NVIDIA H100 NVL", None),
        ("NVIDIA H200 NVL", None),
        ("NVIDIA H200 MIG 1g.18gb", None),
        ("NVIDIA GH200 480GB", None),
        ("NVIDIA H100", None),
        ("NVIDIA B200", None),
        ("", None),
    ],
)
def test_systems_of_gpu_names(name, system):
    assert gpu_system(name) == system


# Names


@pytest.mark.parametrize(
    ("path", "degrees"),
    [
        ("runs/qwen3-8b-tp4pp2/profile_export_aiperf.json", {"tp": 4, "pp": 2}),
        ("qwen3_8b_tp4pp2.json", {"tp": 4, "pp": 2}),
        ("TP-4_PP-2/c64", {"tp": 4, "pp": 2}),
        ("tp_4/pp=2/dp2", {"tp": 4, "pp": 2, "dp": 2}),
        ("tp1/run/tp8", {"tp": 8}),
        ("tp4-vs-tp8/pp2", {"pp": 2}),
        ("tpot5/http8/app-2/mpp2", {}),
        ("app-pp2", {"pp": 2}),
        ("pp512/tg128", {}),
        ("tp0/pp", {}),
        ("tp4k", {}),
        ("mean_100__mean_10", {}),
        ("ep8", {}),
        ("", {}),
    ],
)
def test_degrees_in_names(path, degrees):
    hints = path_hints(path)
    assert {h.field: h.value for h in hints} == degrees
    assert {h.file for h in hints} <= {path}


# Several runs in a folder


def test_files_of_several_runs_are_told_apart_by_their_names(tmp_path):
    for stem, folder in (("a", "trtllm"), ("a_b", "sglang")):
        write(tmp_path, f"{stem}.json", summary(gpus={"0": gpu("NVIDIA H200", stem)}))
        shutil.copy(FILES / folder / METRICS, tmp_path / f"{stem}_server_metrics.json")
        records(tmp_path, 8, f"{stem}_gpu_telemetry.jsonl")
    write(tmp_path, "deployment.json", {"dp": 1})
    hints, facts = read_hints(tmp_path, root=tmp_path, run="a.json")
    assert {h.file for h in hints} == {"deployment.json", "a_server_metrics.json", "a.json", "a_gpu_telemetry.jsonl"}
    assert facts["server_backend"] == "trtllm"
    assert read_hints(tmp_path, root=tmp_path, run="a_b.json")[1]["server_backend"] == "sglang"
    hints, facts = read_hints(tmp_path, root=tmp_path)
    assert said(hints) == {"dp": [1]}
    assert facts == {}


# Whatever lies there


def test_a_folder_that_is_missing_or_a_file(tmp_path):
    (tmp_path / "file").write_text("")
    assert read_hints(tmp_path / "none", root=tmp_path) == ([], {})
    assert read_hints(tmp_path / "file", root=tmp_path) == ([], {})


def test_what_could_not_be_read_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(deployment, "SIZE_LIMIT", 1000)
    write(tmp_path, METRICS, {**scrape(vllm__x={}), "pad": "x" * 2000})
    (tmp_path / "deployment.json").write_text('{"tp": 4', encoding="utf-8")
    (tmp_path / "deep.json").write_text("[" * 900, encoding="utf-8")
    os.mkfifo(tmp_path / "pipe.json")
    os.mkfifo(tmp_path / "gpu_telemetry_export.jsonl")
    hints, facts = read_hints(tmp_path, root=tmp_path)
    assert hints == []
    assert facts == {"unread": (
        "deep.json: is not a JSON object", "deployment.json: is not a JSON object", "pipe.json: is not a file",
        "server_metrics_export.json: is 0 MiB, over the limit of 0 MiB",
    )}  # fmt: skip


def test_a_side_car_is_small(tmp_path):
    write(tmp_path, "deployment.json", {"tp": 4, "pad": "x" * deployment.SIDECAR_LIMIT})
    assert read_hints(tmp_path, root=tmp_path) == (
        [],
        {"unread": ("deployment.json: is 1 MiB, over the limit of 1 MiB",)},
    )


def test_a_scrape_nested_too_deep_costs_only_that_metric(tmp_path):
    deep = "[" * 50_000 + "]" * 50_000
    text = f'{{"summary": {{}}, "metrics": {{"vllm:x": {{"series": [{{"labels": {{}}}}]}}, "vllm:y": {deep}}}}}'
    (tmp_path / METRICS).write_text(text, encoding="utf-8")
    hints, facts = read_hints(tmp_path, root=tmp_path)
    assert said(hints) in ({"backend": ["vllm"]}, {})
    assert hints or facts["unread"]


def test_a_scrape_of_too_many_series_gives_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(server_metrics, "SERIES_LIMIT", 10)
    document = scrape(vllm__x={})
    document["metrics"]["vllm:x"]["series"] *= 20
    write(tmp_path, METRICS, document)
    hints, facts = read_hints(tmp_path, root=tmp_path)
    assert hints == []
    assert facts == {"odd_labels": (f"{METRICS}: metrics holds more than 10 series",)}


def test_remarks_are_limited(tmp_path):
    document = scrape(vllm__x_info={f"{i}_tensor_parallel_size": f"odd{i}" for i in range(2000)})
    write(tmp_path, METRICS, document)
    assert len(read_hints(tmp_path, root=tmp_path)[1]["odd_labels"]) == 500


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8) | st.just(10**400),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


@st.composite
def spoilt(draw, document):
    """``document`` with one of its values, at any depth, replaced by anything."""
    document = json.loads(json.dumps(document))
    here = document
    while True:
        steps = list(here) if isinstance(here, dict) else range(len(here))
        step = draw(st.sampled_from(list(steps)))
        if isinstance(here[step], dict | list) and here[step] and draw(st.integers(0, 4)):
            here = here[step]
        else:
            here[step] = draw(anything)
            return document


SCRAPES = [json.loads((FILES / case / METRICS).read_text()) for case in ("trtllm", "sglang", "vllm_dp")]
RUN = summary(gpus={"0": gpu("NVIDIA H200", "a")}, user_files=["a.json", "{{ x }}.json"])
SIDECAR = {"tp": 4, "backend": "vllm", "gpu": "H200", "system": "x", "model": "m", "engine": {"cuda_graph_sizes": [1]}}


@given(data=st.data())
@settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_content_raises(tmp_path, data):
    row = {"gpu_model_name": "NVIDIA H200", "gpu_uuid": "a", "telemetry_data": {}, "telemetry_source_url": "u"}
    documents = {
        METRICS: data.draw(spoilt(data.draw(st.sampled_from(SCRAPES)))),
        SUMMARY: data.draw(spoilt(RUN)),
        "deployment.json": data.draw(spoilt(SIDECAR)),
        "gpu_telemetry_export.jsonl": data.draw(spoilt(row)),
    }
    for name, document in documents.items():
        write(tmp_path, name, document)
    hints, facts = read_hints(tmp_path, root=tmp_path)
    said(hints)
    msgspec.json.encode(facts)


@given(content=st.binary(max_size=200))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_bytes_raise(tmp_path, content):
    for name in (METRICS, SUMMARY, "deployment.json", "gpu_telemetry_export.jsonl", "x.json.gz"):
        (tmp_path / name).write_bytes(content)
    hints, facts = read_hints(tmp_path, root=tmp_path)
    assert isinstance(hints, list)
    assert isinstance(facts, dict)


@given(path=st.text(alphabet="tpd0123456789-_/.=a", max_size=30) | st.text(max_size=30))
def test_no_name_raises(path):
    assert all(h.field in ("tp", "pp", "dp") and h.value >= 1 for h in path_hints(path))
