"""campaign.toml against the files it describes: what is unknown or contradictory is an error, never a guess."""

from __future__ import annotations

import json
import shutil

import pandas as pd
import pytest

from calib import load_campaign
from calib.errors import BreakdownError, CampaignError, ContradictionError, UnknownTopologyError
from calib.measure.shipped import shipped_campaigns


def test_three_campaigns_ship():
    assert list(shipped_campaigns()) == ["h20-trtllm-pp", "h200-sglang-trtllm-pp", "h200-vllm-pp"]
    assert [len(load_campaign(n).runs) for n in shipped_campaigns()] == [15, 16, 104]


def test_every_shipped_figure_has_its_source():
    for name in shipped_campaigns():
        assert (
            "pull request 1459" in load_campaign(name).config.source
            or "natoscott/benchmarks" in load_campaign(name).config.source
        )


def test_the_run_table_says_what_the_file_says():
    runs = load_campaign("h200-vllm-pp").runs
    row = runs[(runs["model"] == "Qwen/Qwen3-32B-FP8") & (runs["pp"] == 8) & (runs["concurrency"] == 32)].iloc[0]
    assert row["output_tokens_per_s"] == 1039.888
    assert row["completed_requests"] == 129
    assert row["itl_p50_ms"] == 22.3391
    assert (row["gpus"], row["dp"], row["replicas"], row["backend_version"]) == (8, 1, 1, "0.19.1")
    assert (row["source_file"], row["source_row"]) == ("points.csv", 105)
    assert load_campaign("h200-sglang-trtllm-pp").runs["concurrency"].isna().all()


def test_the_order_of_files_is_not_the_order_of_rows():
    runs = load_campaign("h200-vllm-pp").runs
    assert list(dict.fromkeys(runs["model"]))[:2] == ["Qwen/Qwen3-0.6B", "Qwen/Qwen3-8B"]
    assert runs.index.tolist() == list(range(104))


@pytest.mark.parametrize(
    ("old", "new", "kind", "words"),
    [
        ('backend_version = "0.19.1"', "", UnknownTopologyError, r"field 'backend_version': of points.csv line"),
        ('backend = "vllm"\n', 'backend = "sglang"\n', ContradictionError, r"defaults.backend'.*'sglang' there and 'vllm' in"),
        ('backend = "vllm"\n', "gpus = 4\n", ContradictionError, r"defaults.gpus'.*4 there and 8 in"),
        ("format_version = 1", "format_version = 2", CampaignError, r"'format_version'"),
        ('matching = "peak"', 'matching = "best"', CampaignError, r"'matching'"),
        ('tool = "guidellm"', 'colour = "red"', CampaignError, r"field 'defaults'.*unknown field `colour`"),
        ('tool = "guidellm"', "pp = 0", CampaignError, r"'pp' = 0: must be at least 1"),
        ('tool = "guidellm"', 'pp = "auto"', CampaignError, r"defaults.pp"),
        ('file = "points.csv"', 'file = "../points.csv"', CampaignError, r"leaves the campaign folder"),
        ('file = "points.csv"', 'file = "nothing.csv"', CampaignError, r"tables\[0\].file' = 'nothing.csv': is not a file"),
        ('partition = "vllm"', 'partition = "best"', CampaignError, r"balance.partition' = 'best'.*even, vllm"),
        ('[[tables]]\nfile = "points.csv"', "", CampaignError, r"names no results"),
        ('name = "h200-vllm-pp"', 'name = "h200-vllm-pp', CampaignError, r"is not TOML"),
        ("sweep = [1, 64]", "sweep = [1, 128]", ContradictionError, r"'sweep' = \[1, 128\]: is not that of the runs, 1 to 64"),
        ('name = "h200-vllm-pp"', 'name = " "', CampaignError, r"'name': is empty"),
        ('tool = "guidellm"', 'tool = "guidellm "', CampaignError, r"spaces around it"),
        ('tool = "guidellm"', "isl = " + "9" * 5000, CampaignError, r"campaign.toml"),
        ('tool = "guidellm"', "isl = 9999999999", CampaignError, r"'isl' = 9999999999"),
        ('tool = "guidellm"', "x = " + "[" * 5000 + "]" * 5000, CampaignError, r"campaign.toml: is not TOML"),
        ('file = "points.csv"', 'file = "' + "a" * 5000 + '"', CampaignError, r"tables\[0\].file"),
        ('field = "backend_version"', 'field = "bogus"', CampaignError, r"disputed\[0\].field' = 'bogus'"),
        ('accuracy = "published-accuracy.csv"', 'accuracy = "points.csv"', CampaignError, r"'approach': is missing"),
        ('file = "points.csv"', 'file = "points.csv"\ncolumns = { nosuch = "tp" }', CampaignError, r"'nosuch': is mapped"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_campaign_toml_is_named(vllm_folder, edit, old, new, kind, words):
    edit(vllm_folder / "campaign.toml", old, new)
    with pytest.raises(kind, match=words) as error:
        load_campaign(vllm_folder)
    assert str(vllm_folder) in str(error.value)
    assert "\n" not in str(error.value)


def test_binary_missing_and_foreign_folders(vllm_folder, tmp_path):
    (vllm_folder / "campaign.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(CampaignError, match="is not TOML"):
        load_campaign(vllm_folder)
    (vllm_folder / "campaign.toml").unlink()
    with pytest.raises(CampaignError, match=r"campaign.toml: is missing"):
        load_campaign(vllm_folder)
    with pytest.raises(CampaignError, match="give a folder, or one of h20-trtllm-pp"):
        load_campaign(tmp_path / "nowhere")


@pytest.mark.parametrize("bad", ["", "0", "auto", "4.0", "-2", "1e1", "٢"])
def test_an_unknown_pp_is_never_one(vllm_folder, bad):
    points = vllm_folder / "points.csv"
    frame = pd.read_csv(points, dtype=str)
    frame.loc[3, "pp"] = bad
    frame.to_csv(points, index=False)
    with pytest.raises(UnknownTopologyError, match="'pp'"):
        load_campaign(vllm_folder)


def test_tp_pp_and_gpus_that_do_not_multiply_are_a_contradiction(vllm_folder):
    points = vllm_folder / "points.csv"
    frame = pd.read_csv(points)
    frame.loc[3, "pp"] = 3
    frame.to_csv(points, index=False)
    with pytest.raises(ContradictionError, match=r"'gpus' = 8: of points.csv line 5 is not tp\*pp\*dp = 24"):
        load_campaign(vllm_folder)


def test_breakdowns_of_another_system_are_an_error(vllm_folder, edit):
    edit(vllm_folder / "breakdowns.json", '"system":"h200_sxm"', '"system":"b200_sxm"')
    with pytest.raises(BreakdownError, match=r"breakdowns.json: field 'provider.system' = 'b200_sxm'"):
        load_campaign(vllm_folder)


def test_the_inputs_are_known_by_content(vllm_folder, edit):
    before = {i.path: i.sha256 for i in load_campaign(vllm_folder).inputs}
    published = {f"published-{n}.csv" for n in ("accuracy", "decomposition", "s")} | {"uncalibrated-predictions.csv"}
    assert set(before) == {"campaign.toml", "points.csv", "breakdowns.json"} | published
    edit(vllm_folder / "points.csv", "565.099", "565.098")
    after = {i.path: i.sha256 for i in load_campaign(vllm_folder).inputs}
    assert {p for p in before if before[p] != after[p]} == {"points.csv"}


AIPERF = """format_version = 1
name = "aiperf"
title = "t"
source = "s"
matching = "peak"
[defaults]
system = "h200_sxm"
gpus = 8
backend = "vllm"
backend_version = "0.19.1"
[[runs]]
folder = "{folder}"
{more}
"""


@pytest.fixture
def aiperf_folder(shared, tmp_path):
    folder = tmp_path / "aiperf"
    for tp, pp in ((8, 1), (4, 2), (2, 4), (1, 8)):
        shutil.copytree(shared / "samples/aiperf/00_base_single_run", folder / f"qwen3-8b-tp{tp}pp{pp}")

    def write(pattern="qwen3-8b-tp{tp}pp{pp}", more=""):
        (folder / "campaign.toml").write_text(AIPERF.format(folder=pattern, more=more))
        return folder

    return write


def test_folder_names_give_tp_and_pp_where_the_pattern_says_so(aiperf_folder):
    runs = load_campaign(aiperf_folder()).runs
    assert sorted(zip(runs["tp"], runs["pp"], strict=True)) == [(1, 8), (2, 4), (4, 2), (8, 1)]
    assert set(runs["model"]) == {"Qwen/Qwen3-8B"}
    assert set(runs["tool_version"]) == {"0.13.0"}


def test_a_folder_name_and_an_entry_that_differ_are_a_contradiction(aiperf_folder):
    with pytest.raises(ContradictionError, match=r"runs\[0\]'.*says pp = 4 and the folder name .* says"):
        load_campaign(aiperf_folder(more="pp = 4"))


def test_defaults_that_a_folder_name_contradicts_are_a_contradiction(aiperf_folder, edit):
    folder = aiperf_folder()
    edit(folder / "campaign.toml", "gpus = 8", "gpus = 8\npp = 2")
    with pytest.raises(ContradictionError, match=r"defaults.pp'.*2 there and \d in campaign.toml runs\[0\]"):
        load_campaign(folder)


@pytest.mark.parametrize(
    ("pattern", "words"),
    [("qwen3-8b-tp{tp}pp{tp}", "placeholder twice"), ("zero-tp{tp}pp{pp}", "is 0 in the folder name")],
)
def test_patterns_that_make_no_sense(aiperf_folder, pattern, words):
    folder = aiperf_folder(pattern)
    (folder / "zero-tp4pp0").mkdir()
    with pytest.raises(CampaignError, match=words):
        load_campaign(folder)


def test_a_file_and_an_entry_that_differ_are_a_contradiction(aiperf_folder):
    with pytest.raises(ContradictionError, match=r"runs\[0\].model'.*'Qwen/Qwen3-14B' there and 'Qwen/Qwen3-8B'"):
        load_campaign(aiperf_folder(more='model = "Qwen/Qwen3-14B"'))


def test_a_folder_that_tells_no_tp_leaves_it_unknown(aiperf_folder):
    with pytest.raises(UnknownTopologyError, match="'tp'"):
        load_campaign(aiperf_folder("qwen3-8b-tp8pp{pp}"))


@pytest.mark.parametrize(
    ("pattern", "words"), [("nothing-tp{tp}", "matches no folder"), ("x-{colour}", "is not a placeholder")]
)
def test_a_pattern_that_finds_nothing_or_means_nothing(aiperf_folder, pattern, words):
    with pytest.raises(CampaignError, match=words):
        load_campaign(aiperf_folder(pattern))


def test_links_are_not_followed_and_said(aiperf_folder):
    folder = aiperf_folder()
    (folder / "other-tp2pp4").symlink_to(folder / "qwen3-8b-tp2pp4", target_is_directory=True)
    (folder / "qwen3-8b-tp8pp1" / "loop").symlink_to(folder, target_is_directory=True)
    campaign = load_campaign(folder)
    assert len(campaign.runs) == 4
    assert [(f.rule, f.subject) for f in campaign.set_aside() if f.rule == "not_covered"] == [
        ("not_covered", "other-tp2pp4")
    ]


@pytest.mark.parametrize("name", ["qwen3-8b-tp4ppauto", "qwen3-8b-tp4-pp2", "deeper/qwen3-8b-tp4pp2"])
def test_results_that_no_entry_covers_are_said(aiperf_folder, name):
    folder = aiperf_folder()
    shutil.copytree(folder / "qwen3-8b-tp4pp2", folder / name)
    found = [f for f in load_campaign(folder).set_aside() if f.rule == "not_covered"]
    assert [f.subject for f in found] == [name]
    assert "no [[runs]] entry covers" in found[0].reason


def test_results_of_other_tools_are_runs_of_a_campaign(shared, tmp_path):
    source = next((shared / "samples/other/vllm_bench_serve_inferencex_fork").glob("*.json"))
    (tmp_path / "runs").mkdir()
    shutil.copy(source, tmp_path / "runs" / "one-tp4pp2.json")
    text = AIPERF.format(folder="runs/one-tp{tp}pp{pp}.json", more="isl = 1024\nosl = 1024")
    model = json.loads(source.read_text())["model_id"]
    (tmp_path / "campaign.toml").write_text(
        text.replace("[defaults]", f'aliases = {{ "{model}" = "Qwen/Alias" }}\n[defaults]')
    )
    runs = load_campaign(tmp_path).runs
    assert (runs["tp"].tolist(), runs["pp"].tolist()) == ([4], [2])
    assert runs["model"].tolist() == ["Qwen/Alias"]
    assert runs["tool"].tolist() == ["vllm-bench"]


def test_limits_are_checked(vllm_folder, edit):
    edit(vllm_folder / "campaign.toml", "[balance]", "[limits]\nlittles_lore = 0.9\n[balance]")
    with pytest.raises(CampaignError, match=r"limits.littles_lore'.*use one of chunked_tokens"):
        load_campaign(vllm_folder)


def test_published_tables_are_read_for_comparison_only():
    published = load_campaign("h200-vllm-pp").published
    assert len(published["accuracy"]) == 6
    assert json.dumps(published["decomposition"][0]).startswith('{"model": "Qwen/Qwen3-8B"')
