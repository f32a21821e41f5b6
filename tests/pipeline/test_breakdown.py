"""The breakdown file, and the shipped ones against the package they come from."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from calib.errors import BreakdownError
from calib.measure.shipped import find_campaign, load_campaign
from calib.pipeline.breakdown import Breakdowns


def document(**changes) -> dict:
    step = {
        "model": "m", "backend": "vllm", "tp": 1, "pp": 2, "concurrency": 8, "microbatch": 4, "isl": 10, "osl": 10,
        "num_layers": 4, "status": "computed", "ops_ms": {"generation_attention": 4.0},
    }  # fmt: skip
    provider = {"name": "p", "version": "1", "system": "h200_sxm", "note": ""}
    return {"format": "calib-breakdowns", "format_version": 1, "provider": provider, "steps": [step | changes]}


def parse(doc) -> Breakdowns:
    return Breakdowns.from_json(json.dumps(doc).encode(), file="breakdowns.json")


def test_a_step_is_found_by_configuration_and_concurrency():
    found = parse(document())
    where = {"tp": 1, "pp": 2, "isl": 10, "osl": 10}
    assert found.find("m", "vllm", **where, concurrency=8) is found.steps[0]
    assert found.find("m", "vllm", **where, concurrency=16) is None
    assert found.find("m", "vllm", **(where | {"isl": 11}), concurrency=8) is None
    assert found.find("m", "vllm", **where, concurrency=None) is found.steps[0]


def test_a_step_without_concurrency_holds_at_any():
    found = parse(document(concurrency=None))
    assert found.find("m", "vllm", tp=1, pp=2, isl=10, osl=10, concurrency=16) is found.steps[0]


def test_no_stated_concurrency_and_several_steps_is_an_error():
    doc = document()
    doc["steps"].append(doc["steps"][0] | {"concurrency": 16})
    with pytest.raises(BreakdownError, match="states no concurrency"):
        parse(doc).find("m", "vllm", tp=1, pp=2, isl=10, osl=10, concurrency=None)


def test_a_step_that_stands_twice_is_an_error():
    doc = document()
    doc["steps"].append(doc["steps"][0])
    with pytest.raises(BreakdownError, match=r"breakdowns.json: field '\$.steps\[1\]': stands twice"):
        parse(doc)


@pytest.mark.parametrize(
    "change",
    [
        {"colour": "red"},
        {"tp": "1"},
        {"status": "guessed"},
        {"ops_ms": {"a": None}},
        {"tp": 0},
        {"num_layers": 1},
        {"concurrency": -1},
        {"ops_ms": {}},
        {"ops_ms": {"generation_attention": 1e308}},
        {"ops_ms": {"generation_attention": 5e-324}},
        {"pp": 10**8, "num_layers": 10**9},
        {"ops_ms": {"generation_attention": -1.0}},
    ],
)
def test_unknown_fields_and_wrong_types_are_errors_that_name_the_field(change):
    with pytest.raises(BreakdownError, match=r"breakdowns.json.*steps\[0\]"):
        parse(document(**change))


@pytest.mark.parametrize("name", ["h200-vllm-pp", "h200-sglang-trtllm-pp", "h20-trtllm-pp"])
def test_the_shipped_files_read_back_and_cover_every_measured_configuration(name):
    campaign = load_campaign(name)
    again = Breakdowns.from_json(campaign.breakdowns.to_json())
    assert again == campaign.breakdowns
    for row in campaign.runs.to_dict("records"):
        where = {k: row[k] for k in ("tp", "pp", "isl", "osl")}
        c = None if pd.isna(row["concurrency"]) else int(row["concurrency"])
        if row["pp"] > 1:
            assert campaign.breakdowns.find(row["model"], row["backend"], **where, concurrency=c) is not None


def test_assumed_and_derived_steps_are_labelled():
    assert {s.status for s in load_campaign("h200-vllm-pp").breakdowns.steps} == {"computed"}
    assert {s.status for s in load_campaign("h200-sglang-trtllm-pp").breakdowns.steps} == {"assumed"}
    h20 = {s.pp: s.status for s in load_campaign("h20-trtllm-pp").breakdowns.steps}
    assert h20 == {2: "derived", 4: "derived", 8: "computed"}


@pytest.mark.aic
@pytest.mark.parametrize("name", ["h200-vllm-pp", "h200-sglang-trtllm-pp"])
def test_the_shipped_latencies_are_what_the_package_gives(name):
    pytest.importorskip("aiconfigurator_core", reason="needs the extra aic")
    from calib.measure.campaign.load import read_campaign
    from calib.measure.needed_steps import compute_breakdowns
    from calib.pipeline.providers.kernel_tables import AiconfiguratorProvider

    shipped = load_campaign(name).breakdowns
    campaign = read_campaign(find_campaign(name), breakdowns=False)
    made = compute_breakdowns(campaign, AiconfiguratorProvider("h200_sxm"))
    assert made.provider == shipped.provider
    assert [s.key for s in made.steps] == [s.key for s in shipped.steps]
    for new, old in zip(made.steps, shipped.steps, strict=True):
        assert new.num_layers == old.num_layers
        assert new.ops_ms == pytest.approx(old.ops_ms, rel=1e-6, abs=1e-9)


@pytest.mark.aic
def test_a_model_the_package_does_not_know_is_an_error_with_the_remedy():
    pytest.importorskip("aiconfigurator_core", reason="needs the extra aic")
    from calib.pipeline.breakdown import StepRequest
    from calib.pipeline.providers.kernel_tables import AiconfiguratorProvider

    request = StepRequest(
        model="nobody/none",
        backend="vllm",
        system="h200_sxm",
        tp=1,
        pp=2,
        concurrency=8,
        isl=10,
        osl=10,
        status="computed",
    )
    with pytest.raises(BreakdownError, match="--model-config"):
        AiconfiguratorProvider("h200_sxm").step(request)


@pytest.mark.aic
def test_a_pipeline_across_nodes_is_never_measured_by_the_package_either():
    pytest.importorskip("aiconfigurator_core", reason="needs the extra aic")
    from calib.pipeline.breakdown import StepRequest
    from calib.pipeline.providers.kernel_tables import AiconfiguratorProvider

    provider = AiconfiguratorProvider("h200_sxm")
    status = {
        tp: provider.step(
            StepRequest(
                model="Qwen/Qwen3-8B", backend="vllm", system="h200_sxm", tp=tp, pp=2, concurrency=8, isl=100, osl=100,
                status="computed",
            )
        ).status
        for tp in (4, 8)
    }  # fmt: skip
    assert status == {4: "computed", 8: "never measured"}
