"""`calib init`: what it infers it can show the source of, what it cannot it asks for, and the file always parses."""

from __future__ import annotations

import json
import os
import shutil
import tomllib
from pathlib import Path

import pytest
from support.paths import DATA

import calib
from calib.errors import CampaignError, OutputError, UnknownTopologyError, UsageError
from calib.measure.campaign.config import parse_config
from calib.measure.draft.infer import draft_campaign, init_campaign
from calib.measure.draft.text import toml

AIPERF = DATA / "qwen3-8b-aiperf"
STATED = {"backend_version": '"0.19.1"', "system": '"h200_sxm"', "gpus": "8"}


@pytest.fixture
def aiperf(tmp_path):
    """The mock campaign as an analyst finds it: results, and no campaign.toml."""
    folder = tmp_path / "night"
    shutil.copytree(AIPERF, folder)
    (folder / "campaign.toml").unlink()
    return folder


@pytest.fixture
def sample(shared, tmp_path):
    """A copy of one sample of a tool's output."""

    def copy(name, to="sample"):
        source = shared / "samples" / name
        if not source.exists():
            pytest.skip(f"{name} is not among the samples")
        return Path(shutil.copytree(source, tmp_path / to))

    return copy


def fill_in(folder, values):
    """State what the drafted file asks for, as a user would."""
    path = folder / "campaign.toml"
    lines = path.read_text(encoding="utf-8").splitlines()
    for i, line in enumerate(lines):
        name = line.removeprefix("# ").partition(" = ")[0]
        if "state this: " in line and line.startswith("# ") and name in values:
            lines[i] = f"{name} = {values[name]}"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def asked(draft):
    return {(x.field, x.place) for x in draft.missing}


def found(draft):
    return {(x.field, x.place): x.value for x in draft.inferred}


def test_an_aiperf_campaign_needs_only_what_no_file_says(aiperf, cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")  # no path is folded
    done = cli("init", aiperf)
    assert done.code == 0
    assert done.err == ""
    assert "qwen3-8b-tp1pp8/c2/server_metrics_export.json" in done.out  # the source of the backend
    text = (aiperf / "campaign.toml").read_text(encoding="utf-8")
    written = tomllib.loads(text)
    assert written["runs"] == [{"folder": "qwen3-8b-tp{tp}pp{pp}"}]
    assert written["defaults"] == {"backend": "vllm"}
    assert written["balance"] == {"file": "breakdowns.json", "partition": "vllm"}
    assert "TODO" not in text
    for name in STATED:
        assert f"# {name} = " in text
    # ingest names one field after another, until everything is stated
    for name in ("backend_version", "system", "gpus"):
        done = cli("ingest", aiperf)
        assert done.code == 3
        assert f"field '{name}'" in done.err
        fill_in(aiperf, {name: STATED[name]})
    assert cli("ingest", aiperf).code == 0


def test_the_filled_in_draft_gives_what_the_campaign_written_by_hand_gives(aiperf):
    init_campaign(aiperf)
    fill_in(aiperf, STATED)
    drafted, by_hand = calib.load_campaign(aiperf), calib.load_campaign(AIPERF)
    columns = [c for c in by_hand.runs if c != "campaign"]
    assert drafted.runs[columns].equals(by_hand.runs[columns])
    first = calib.fit(calib.decompose(drafted)).table()
    assert first["s"].equals(calib.fit(calib.decompose(by_hand)).table()["s"])


def test_a_draft_in_memory_writes_nothing(aiperf):
    draft = draft_campaign(aiperf)
    assert not draft.path.exists()
    assert init_campaign(aiperf).text == draft.text
    assert draft.path.read_text(encoding="utf-8") == draft.text
    assert draft.results == 12


def test_an_existing_campaign_is_never_overwritten(aiperf, cli):
    (aiperf / "campaign.toml").write_text("mine", encoding="utf-8")
    done = cli("init", aiperf)
    assert done.code == 2
    assert "campaign.toml: exists already and is not overwritten" in done.err
    assert (aiperf / "campaign.toml").read_text(encoding="utf-8") == "mine"
    (aiperf / "campaign.toml").unlink()
    (aiperf / "campaign.toml").symlink_to("nowhere")
    with pytest.raises(UsageError, match="exists already"):
        init_campaign(aiperf)


def test_nothing_but_the_file_appears(aiperf):
    before = set(aiperf.rglob("*"))
    init_campaign(aiperf)
    assert set(aiperf.rglob("*")) - before == {aiperf / "campaign.toml"}


def test_json_says_the_same(aiperf, cli):
    said = json.loads(cli("init", aiperf, "--json").out)
    assert said["runs"] == 12
    assert {x["field"] for x in said["missing"]} == set(STATED)
    assert {"field": "backend", "place": "defaults", "value": "vllm"}.items() <= said["inferred"][1].items()
    assert said["remarks"] == []


def test_an_unknown_pp_is_asked_for_and_never_guessed(aiperf):
    for i, name in enumerate(sorted(p.name for p in aiperf.iterdir() if p.is_dir())):
        (aiperf / name).rename(aiperf / f"machine{i}")
    draft = init_campaign(aiperf)
    assert {("pp", f"machine{i}") for i in range(4)} <= asked(draft)
    assert "pp" not in {x.field for x in draft.inferred}
    assert not any({"pp", "tp"} & set(entry) for entry in tomllib.loads(draft.text)["runs"])
    with pytest.raises(UnknownTopologyError, match="field 'backend_version'"):
        calib.load_campaign(aiperf)
    fill_in(aiperf, STATED | {"tp": "8"})
    with pytest.raises(UnknownTopologyError, match=r"field 'pp': of machine0/c2/profile_export_aiperf.json is stated"):
        calib.load_campaign(aiperf)


def test_a_name_that_a_side_car_denies_is_not_believed(aiperf):
    place = aiperf / "qwen3-8b-tp4pp2" / "c2"
    (place / "deployment.json").write_text('{"pp": 4}', encoding="utf-8")
    draft = draft_campaign(aiperf)
    folders = {r["folder"] for r in tomllib.loads(draft.text)["runs"]}
    assert folders == {"qwen3-8b-tp1pp8", "qwen3-8b-tp2pp4", "qwen3-8b-tp4pp2", "qwen3-8b-tp8pp1"}
    assert any(
        "disagree about pp: 4 (qwen3-8b-tp4pp2/c2/deployment.json pp) and 2 (the name" in r for r in draft.remarks
    )


def test_side_cars_state_and_gpus_follow_where_all_degrees_are_known(aiperf):
    for name in sorted(p.name for p in aiperf.iterdir() if p.is_dir()):
        for run in (aiperf / name).iterdir():
            (run / "deployment.json").write_text(
                '{"dp": 1, "backend_version": "0.19.1", "gpu": "NVIDIA H200"}', "utf-8"
            )
    draft = init_campaign(aiperf)
    assert draft.missing == ()
    assert found(draft)["gpus", "defaults"] == 8
    assert found(draft)["system", "the results"] == "h200_sxm"
    assert len(calib.load_campaign(aiperf).runs) == 12


def test_gpus_are_known_where_the_telemetry_saw_as_many_as_the_degrees_need(sample):
    folder = sample("aiperf/s_gpu_telemetry", "night/run-tp2pp1").parent
    draft = draft_campaign(folder)
    assert found(draft)["gpus", "defaults"] == 2
    assert found(draft)["system", "defaults"] == "h100_sxm"
    assert asked(draft) == {("backend_version", "defaults")}


def test_a_folder_that_is_a_sweep_itself_is_covered_whole(sample):
    folder = sample("aiperf/ae_sweep_one_cell_fails")
    draft = init_campaign(folder)
    assert tomllib.loads(draft.text)["runs"] == [{"folder": "."}]
    assert any("concurrency_4/profile_export.jsonl cannot be used" in r for r in draft.remarks)
    fill_in(folder, STATED | {"tp": "8", "pp": "1"})
    campaign = calib.load_campaign(folder)
    assert list(campaign.runs["concurrency"]) == [1, 2]
    assert [f.rule for f in campaign.set_aside()] == ["unreadable"]


@pytest.mark.parametrize("name", ["a_multirun_sweep", "w_multirun_nosweep", "old_aiperf_0.8.0_sweep", "ad_multi_phase"])
def test_every_layout_of_aiperf_is_one_entry(sample, name):
    folder = sample(f"aiperf/{name}", "night/somewhere/on-disk")
    draft = draft_campaign(folder.parents[1])
    assert [r["folder"] for r in tomllib.loads(draft.text)["runs"]] == ["somewhere/on-disk"]
    assert {("pp", "defaults"), ("tp", "defaults")} <= asked(draft)


def test_degrees_in_the_name_of_a_summary_are_stated_in_the_entry(sample):
    draft = draft_campaign(sample("aiperf/h_export_prefix"))
    assert found(draft)["tp", "defaults"] == 4
    assert found(draft)["pp", "defaults"] == 2


def test_files_of_other_tools_each_ask_for_what_they_do_not_say(sample):
    folder = sample("other")
    draft = init_campaign(folder)
    entries = [r["folder"] for r in tomllib.loads(draft.text)["runs"]]
    assert entries[-1] == "vllm_bench_serve_inferencex_fork/qwen3-8b_tp{tp}pp{pp}_conc{concurrency}.json"
    assert ("isl", entries[-1]) in asked(draft)
    assert "the requests had 100.0 on average" in draft.text
    assert ("model", "sglang_0.5.23/appended_two_runs.jsonl") in asked(draft)
    fill_in(
        folder,
        STATED | {"backend": '"vllm"', "model": '"Qwen/Qwen3-8B"', "tp": "8", "pp": "1", "isl": "100", "osl": "20"},
    )
    assert len(calib.load_campaign(folder).runs) == 5


def test_predictions_of_a_planner_are_not_taken_for_measurements(sample):
    draft = draft_campaign(sample("aiconfigurator"))
    assert draft.results == 0
    assert all("left out as it is: has no column output_tokens_per_s" in r for r in draft.remarks)
    assert "tables" not in tomllib.loads(draft.text)


def test_a_table_is_taken_with_its_unknown_columns_named(vllm_folder):
    (vllm_folder / "campaign.toml").unlink()
    points = vllm_folder / "points.csv"
    lines = points.read_text(encoding="utf-8").splitlines()
    points.write_text("\n".join([f"{lines[0]},who", *(f"{x},me" for x in lines[1:])]) + "\n", encoding="utf-8")
    draft = init_campaign(vllm_folder)
    assert asked(draft) == {("backend_version", "defaults")}
    assert tomllib.loads(draft.text)["tables"] == [{"file": "points.csv", "ignore": ["who"]}]
    assert any(r.startswith("points.csv: ignored are who") for r in draft.remarks)
    with pytest.raises(UnknownTopologyError, match=r"field 'backend_version': of points.csv line 2"):
        calib.load_campaign(vllm_folder)
    fill_in(vllm_folder, STATED)
    assert len(calib.load_campaign(vllm_folder).runs) == 104


@pytest.mark.parametrize("cell", ["0", "many"])
def test_a_table_with_a_degree_that_cannot_be_is_named(tmp_path, cell):
    (tmp_path / "points.csv").write_text(f"model,tp,pp,output_tokens_per_s\nm,8,{cell},1000\n", encoding="utf-8")
    draft = draft_campaign(tmp_path)
    assert "points.csv is left out as it is: pp: is not a positive whole number in line 2" in draft.remarks


def test_two_spellings_of_one_model_become_one(tmp_path):
    rows = ["model,tp,pp,output_tokens_per_s", "Qwen/Qwen3-8B,8,1,1000", "qwen3-8b,4,2,700"]
    (tmp_path / "points.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    assert tomllib.loads(draft_campaign(tmp_path).text)["aliases"] == {"qwen3-8b": "Qwen/Qwen3-8B"}


@pytest.mark.parametrize(
    "name", ['say "hi"', "back\\slash", "line\nbreak", "del\x7f", "# [runs]", "münchen-\U0001f680", "'''"]
)
def test_hostile_names_stay_inside_their_strings(tmp_path, name):
    folder = tmp_path / name
    shutil.copytree(AIPERF / "qwen3-8b-tp4pp2", folder / f"{name}-tp4pp2")
    shutil.copytree(AIPERF / "qwen3-8b-tp8pp1", folder / f"{name}-tp8pp1")
    model = name.replace('"', '""')
    (folder / f"{name}.csv").write_text(f'model,tp,pp,output_tokens_per_s\n"{model} m",4,2,7\n', encoding="utf-8")
    draft = init_campaign(folder)
    written = tomllib.loads(draft.text)
    assert written["runs"] == [{"folder": f"{name}-tp{{tp}}pp{{pp}}"}]
    assert written["tables"] == [{"file": f"{name}.csv"}]
    parse_config(draft.path.read_bytes(), file=draft.path)
    fill_in(folder, STATED | {"backend": '"vllm"', "isl": "64", "osl": "32"})
    assert len(calib.load_campaign(folder, breakdowns=False).runs) == 7


def test_a_brace_cannot_be_named_and_is_said(aiperf):
    (aiperf / "qwen3-8b-tp4pp2").rename(aiperf / "{x}-tp4pp2")
    draft = draft_campaign(aiperf)
    assert "{x}-tp4pp2 has a brace in its name, which campaign.toml cannot name: rename it" in draft.remarks
    assert draft.results == 9


def test_control_characters_do_not_reach_the_terminal(tmp_path, cli):
    folder = tmp_path / "x\x1b[2Jy"
    shutil.copytree(AIPERF / "qwen3-8b-tp4pp2", folder / "\x1b[31m-tp4pp2")
    done = cli("init", folder)
    assert done.code == 0
    assert "\x1b" not in done.out + done.err


@pytest.mark.parametrize("text", ['a"b', "a\\b", "a\nb\tc\x00\x1f\x7f", "\U0001f680\u2028"])
def test_toml_strings_read_back(text):
    assert tomllib.loads(f"x = {toml(text)}") == {"x": text}


def test_an_empty_folder_is_an_error_and_stays_empty(tmp_path, cli):
    done = cli("init", tmp_path)
    assert done.code == 3
    assert "holds no result that calib can read; give the folder" in done.err
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_failed_runs_says_why(sample):
    with pytest.raises(CampaignError, match=r"profile_export.jsonl, which all 8 requests failed"):
        init_campaign(sample("aiperf/c_all_fail"))


@pytest.mark.parametrize("name", ["nowhere", "file", "a\0b", "x" * 300])
def test_what_is_no_folder_is_said(tmp_path, cli, name):
    (tmp_path / "file").write_text("x", encoding="utf-8")
    done = cli("init", f"{tmp_path}/{name}")
    assert done.code == 3
    assert "cannot be read as a folder" in done.err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_folder_is_said(aiperf):
    aiperf.chmod(0)
    with pytest.raises(CampaignError, match=r"cannot be read as a folder \(Permission denied\)"):
        init_campaign(aiperf)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_said(aiperf):
    aiperf.chmod(0o555)
    with pytest.raises(OutputError, match="make the folder writable"):
        init_campaign(aiperf)


def test_the_breakdowns_of_another_tool_are_no_breakdowns(aiperf):
    (aiperf / "breakdowns.json").write_text("{}", encoding="utf-8")
    draft = draft_campaign(aiperf)
    assert "balance" not in tomllib.loads(draft.text)
    assert any("breakdowns.json" in r for r in draft.remarks)


def test_a_draft_shows_itself_in_a_notebook(aiperf):
    (aiperf / "qwen3-8b-tp8pp1").rename(aiperf / "<img src=x>-tp8pp1")
    text = draft_campaign(aiperf)._repr_html_()
    assert "STATE THIS" in text
    assert "3 fields have to be stated" in text
    assert "<img" not in text


def test_a_table_whose_throughput_has_another_name_still_gets_its_fields_to_state(tmp_path):
    (tmp_path / "t.csv").write_text("model,tp,pp,concurrency,tok_s,comment\nm,8,1,16,1000,x\n", encoding="utf-8")
    draft = draft_campaign(tmp_path)
    assert [line.field for line in draft.missing] == ["backend", "backend_version", "system", "gpus", "isl", "osl"]
    assert '# backend_version = "..."  # state this' in draft.text
    assert "# ignore = []  # what is no figure of: tok_s, comment" in draft.text


def test_links_and_pipes_are_no_tables(tmp_path):
    """A pipe would never end, and a link may lead anywhere."""
    inside, outside = tmp_path / "in", tmp_path / "out.csv"
    inside.mkdir()
    outside.write_text("model,tp,pp,concurrency,output_tokens_per_s\nm,8,1,16,1000\n", encoding="utf-8")
    (inside / "link.csv").symlink_to(outside)
    os.mkfifo(inside / "pipe.csv")
    with pytest.raises(CampaignError, match="holds no result"):
        draft_campaign(inside)
