"""What is learnt about a run from where, and what happens when two sources disagree."""

from __future__ import annotations

from pathlib import Path

import pytest

from calib.errors import ContradictionError, UnknownTopologyError
from calib.measure.campaign.config import CampaignConfig, parse_config
from calib.measure.campaign.topology import identify
from calib.measure.readers.hints import Hint
from calib.measure.readers.read_run import ReadRun

TOML = Path("campaign.toml")
STATED = {"model": "Qwen/Qwen3-8B", "isl": 100, "osl": 20, "concurrency": 4, "tool": "aiperf"}


def config(
    defaults='system = "h200_sxm"\ngpus = 8\nbackend = "vllm"\nbackend_version = "1"', more=""
) -> CampaignConfig:
    text = f'format_version = 1\nname = "n"\ntitle = "t"\nsource = "s"\nmatching = "peak"\n{more}\n[defaults]\n{defaults}\n'
    return parse_config((text + '[[runs]]\nfolder = "r"\n').encode(), file=TOML)


def run(*hints: Hint) -> ReadRun:
    return ReadRun("r/profile.json", 0, "0" * 64, STATED, {"hints": hints})


def put(made: ReadRun, entry=None, cfg=None):
    return identify(made, {"tp": 4, "pp": 2} if entry is None else entry, "runs[0]", cfg or config(), TOML)


def test_every_field_knows_where_it_was_learnt():
    placed = put(
        run(Hint("tp", 4, "r/deployment.json", "tp"), Hint("pp", 2, "r/deployment.json", "pp")), entry={"pp": 2}
    )
    assert (placed.row["tp"], placed.row["pp"], placed.row["dp"]) == (4, 2, 1)
    assert placed.learnt["tp"] == "r/deployment.json tp"
    assert placed.learnt["pp"] == "campaign.toml runs[0]"
    assert placed.learnt["gpus"] == "campaign.toml defaults"
    assert placed.learnt["model"] == "r/profile.json"


@pytest.mark.parametrize("file", ["r/server_metrics_export.json", "r/gpu_telemetry_export.jsonl", "r/profile.json"])
def test_what_a_server_reports_checks_and_does_not_state(file):
    with pytest.raises(UnknownTopologyError, match="'tp'"):
        put(run(Hint("tp", 4, file, "k")), entry={"pp": 2})


@pytest.mark.parametrize(
    ("hint", "words"),
    [
        (Hint("tp", 8, "r/server_metrics.json", "x"), r"metrics.json: field 'x': says tp = 8, and campaign.toml runs\[0\]"),
        (Hint("backend", "sglang", "r/server_metrics_export.json", "prefix"), "says backend = 'sglang'.* 'vllm'"),
        (Hint("system", "h20_sxm", "r/gpu_telemetry_export.jsonl", "names"), "h20_sxm.*h200_sxm"),
        (Hint("model", "Qwen/Qwen3-14B", "r/server_metrics_export.json", "model"), "Qwen3-14B.*Qwen3-8B"),
        (Hint("gpus", 4, "r/gpu_telemetry_export.jsonl", "gpus", "at_least"), "there were 4 GPUs, and .* needs 8"),
        (Hint("tp", 2, "r/deployment.json", "tp"), r"deployment.json: field 'tp': says tp = 2"),
    ],
)  # fmt: skip
def test_two_sources_that_disagree_are_both_named(hint, words):
    with pytest.raises(ContradictionError, match=words):
        put(run(hint))


@pytest.mark.parametrize(
    "hint",
    [
        Hint("gpus", 8, "r/gpu_telemetry_export.jsonl", "gpus", "at_least"),
        Hint("gpus", 16, "r/gpu_telemetry_export.jsonl", "gpus", "at_least"),  # it lists every GPU of the node
        Hint("model", "qwen3-8b", "r/server_metrics_export.json", "model"),
        Hint("backend", "vLLM", "r/server_metrics_export.json", "prefix"),
        Hint("precision", "fp8", "r/server_metrics_export.json", "quantization"),  # not stated by anybody
    ],
)
def test_what_agrees_or_concerns_nothing_stated(hint):
    assert put(run(hint)).row["gpus"] == 8


def test_replicas_need_their_gpus_too():
    with pytest.raises(ContradictionError, match="needs 16"):
        put(
            run(Hint("gpus", 8, "r/gpu_telemetry_export.jsonl", "gpus", "at_least")),
            entry={"tp": 4, "pp": 2, "replicas": 2},
        )


def test_an_alias_counts_for_hints_too():
    cfg = config(more='aliases = { "/models/q" = "Qwen/Qwen3-8B" }')
    assert (
        put(run(Hint("model", "/models/q", "r/server_metrics_export.json", "model")), cfg=cfg).row["model"]
        == "Qwen/Qwen3-8B"
    )


def test_the_side_car_of_a_real_run_states_its_deployment(shared, tmp_path):
    import shutil

    from calib import load_campaign

    shutil.copytree(shared / "samples/aiperf/ah_user_files_sidecar", tmp_path / "run")
    (tmp_path / "campaign.toml").write_text(
        'format_version = 1\nname = "n"\ntitle = "t"\nsource = "s"\nmatching = "peak"\n[defaults]\ngpus = 8\n'
        '[[runs]]\nfolder = "run"\n'
    )
    campaign = load_campaign(tmp_path)
    row = campaign.runs.iloc[0]
    # Written down from deployment.json of the sample.
    assert (row["tp"], row["pp"], row["backend"], row["backend_version"], row["system"]) == (
        4,
        2,
        "vllm",
        "0.11.0",
        "h100_sxm",
    )
    (learnt,) = campaign.learnt.values()
    assert learnt["tp"].startswith("run/deployment.json")
    assert "run/deployment.json" in {i.path for i in campaign.inputs}
