"""The stage picture of one configuration, from files, the roofline or an own GPU."""

from __future__ import annotations

import json

import pytest

from calib.errors import BreakdownError
from calib.measure.shipped import shipped_breakdowns
from calib.pipeline.explanation import explain_stages
from calib.reporting.efficiency_figure import figure_bytes
from calib.reporting.stage_figure import draw_stages

QWEN = {"system": "h200_sxm", "backend": "vllm", "tp": 1, "pp": 8, "concurrency": 64, "isl": 4000, "osl": 1000}
ARGUMENTS = ("Qwen/Qwen3-8B", "--system", "h200_sxm", "--backend", "vllm", "--tp", "1", "--pp", "8")


def test_a_shipped_configuration_comes_from_its_breakdown():
    found = explain_stages("Qwen/Qwen3-8B", **QWEN, partition="vllm", sources=shipped_breakdowns())
    assert found.source.name == "aiconfigurator-core"
    assert found.state.balance_factor == pytest.approx(0.796, abs=0.001)
    text = found.describe()
    assert "Qwen/Qwen3-8B on vllm / h200_sxm, TP1/PP8, C=64, microbatch 8" in text
    assert "<- critical" in text
    assert "mixed prefill and decode steps 0.80" in text


def test_what_no_file_has_comes_from_the_roofline_and_says_so():
    found = explain_stages("Qwen/Qwen3-8B", **(QWEN | {"isl": 100}), sources=shipped_breakdowns())
    assert found.source.name == "calib roofline"
    assert "not measured" in found.describe()


def test_a_pipeline_across_nodes_is_never_measured():
    found = explain_stages("Qwen/Qwen3-8B", **(QWEN | {"tp": 8, "pp": 2}))
    assert "never measured" in found.describe()


def test_figure_and_text_agree_and_the_figure_is_the_same_every_time():
    found = explain_stages("Qwen/Qwen3-8B", **QWEN, sources=shipped_breakdowns())
    figure = draw_stages(found)
    (axes,) = figure.axes
    assert axes.get_ylabel() == "time of one microbatch [ms]"
    assert axes.get_xlabel() == "stage"
    assert figure_bytes(draw_stages(found), "svg") == figure_bytes(draw_stages(found), "svg")
    assert figure_bytes(figure, "png").startswith(b"\x89PNG")


@pytest.mark.parametrize("name", ["tp", "pp", "concurrency", "isl", "osl"])
def test_degrees_below_one_are_named(name):
    with pytest.raises(BreakdownError, match=f"'{name}' = 0"):
        explain_stages("Qwen/Qwen3-8B", **(QWEN | {name: 0}))


def test_on_the_command_line(cli, tmp_path):
    done = cli("explain", *ARGUMENTS, "--concurrency", "64", "--plot", tmp_path / "s.svg")
    assert done.code == 0
    assert "balance 0." in done.out
    assert (tmp_path / "s.svg").read_text().startswith("<?xml")
    again = cli("explain", *ARGUMENTS, "--concurrency", "64", "--plot", tmp_path / "s.svg")
    assert again.code == 2
    assert "not overwritten" in again.err
    found = json.loads(cli("explain", *ARGUMENTS, "--concurrency", "64", "--json").out)
    assert len(found["stage_times_ms"]) == 8
    assert 0 < found["balance_factor"] < 1


@pytest.mark.parametrize(
    ("more", "code"),
    [
        (("--concurrency", "64", "--provider", "oracle"), 2),
        (("--concurrency", "64", "--plot", "s.gif"), 2),
        (("--concurrency", "64", "--provider", "roofline", "--breakdowns", "b.json"), 2),
        (("--concurrency", "0"), 3),
        (("--concurrency", "64", "--breakdowns", "none.json"), 3),
        (("--concurrency", "64", "--partition", "best"), 3),
    ],
)
def test_what_is_wrong_ends_with_its_exit_code(cli, more, code):
    done = cli("explain", *ARGUMENTS, *more)
    assert done.code == code
    assert done.err


def test_an_own_gpu_description(cli, tmp_path):
    from importlib.resources import files

    text = (files("calib.data") / "gpus" / "h200_sxm.toml").read_text().replace('"h200_sxm"', '"mine"')
    (tmp_path / "mine.toml").write_text(text)
    done = cli(
        "explain", "Qwen/Qwen3-8B", "--system", tmp_path / "mine.toml", "--backend", "vllm", "--tp", "1", "--pp", "4",
        "--concurrency", "4",
    )  # fmt: skip
    assert done.code == 0
    assert "Qwen/Qwen3-8B on vllm / mine" in done.out
