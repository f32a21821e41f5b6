"""Screening: every rule with the figure it saw; nothing is dropped without a finding."""

from __future__ import annotations

import pandas as pd
import pytest

from calib import load_campaign
from calib.errors import CampaignError
from calib.measure.screening.catalogue import RULE_NAMES, RULES
from calib.measure.screening.screen import screen, usable


def change(folder, row: int, **values):
    """Set cells of the ``row``-th run (0 is line 2 of the file)."""
    points = folder / "points.csv"
    frame = pd.read_csv(points, dtype=str)
    for name, value in values.items():
        if name not in frame:
            frame[name] = ""
        frame.loc[row, name] = value
    frame.to_csv(points, index=False)
    return load_campaign(folder)


def rules_at(campaign, line: int) -> dict[str, str]:
    return {f.rule: f.verdict for f in campaign.findings if f.source_row == line}


def test_the_clean_campaign_loses_nothing():
    campaign = load_campaign("h200-vllm-pp")
    assert campaign.set_aside() == ()
    assert len(usable(campaign)) == 104


def test_littles_law_coverage_of_32b_at_concurrency_32():
    """0.86 at PP1 and 0.74 at PP8, as published for the campaign."""
    found = {f.subject: f.seen for f in load_campaign("h200-vllm-pp").findings if f.rule == "littles_law"}
    assert round(found["Qwen/Qwen3-32B-FP8 vllm TP8/PP1 C=32"], 2) == 0.86
    assert round(found["Qwen/Qwen3-32B-FP8 vllm TP1/PP8 C=32"], 2) == 0.74


def test_every_peak_of_the_campaign_is_at_the_edge_of_its_sweep():
    found = [f for f in load_campaign("h200-vllm-pp").findings if f.rule == "peak_at_edge"]
    assert len(found) == 16
    assert {f.seen for f in found} == {32.0, 64.0}


@pytest.mark.parametrize("bad", ["nan", "NaN", "inf", "-inf", "0", "-5", "1e300", ""])
def test_a_throughput_that_is_none_is_set_aside(vllm_folder, bad):
    campaign = change(vllm_folder, 3, output_tokens_per_s=bad)
    rule = "no_result" if bad.lower() in ("nan", "") else "implausible_value"
    assert rules_at(campaign, 5)[rule] == "REJECT"
    assert len(usable(campaign)) == 103
    assert len(campaign.runs) == 104


@pytest.mark.parametrize("bad", ["1_000", "１２３", "1,000.5", "n/a", "12 tok/s", "0x10", "--"])
def test_a_cell_that_is_no_number_sets_its_run_aside(vllm_folder, bad):
    campaign = change(vllm_folder, 3, output_tokens_per_s=bad)
    (finding,) = campaign.set_aside()
    assert (finding.rule, finding.source_file, finding.source_row) == ("unreadable", "points.csv", 5)
    assert len(campaign.runs) == 103


def test_a_ragged_line_sets_its_run_aside(vllm_folder):
    path = vllm_folder / "points.csv"
    lines = path.read_text().splitlines()
    lines[4] += ",7"
    path.write_text("\n".join(lines) + "\n")
    (finding,) = load_campaign(vllm_folder).set_aside()
    assert "16 cells where the header names 15" in finding.reason


@pytest.mark.parametrize("bad", ["inf", "1e400"])
def test_an_infinite_latency_is_set_aside(vllm_folder, bad):
    assert rules_at(change(vllm_folder, 3, ttft_p50_ms=bad), 5)["implausible_value"] == "REJECT"


def test_a_row_with_two_results_is_set_aside(vllm_folder):
    assert rules_at(change(vllm_folder, 10, efficiency="0.1"), 12)["two_results"] == "REJECT"


@pytest.mark.parametrize("bad", ["-1", "nan", "inf"])
def test_a_limit_that_is_none_is_an_error(vllm_folder, edit, bad):
    edit(vllm_folder / "campaign.toml", "[balance]", f"[limits]\nerror_rate = {bad}\n[balance]")
    with pytest.raises(CampaignError, match=r"limits\.error_rate"):
        load_campaign(vllm_folder)


def test_three_thousand_duplicates_take_no_time(vllm_folder):
    path = vllm_folder / "points.csv"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines, *[lines[1]] * 3000]) + "\n")
    found = [f for f in load_campaign(vllm_folder).set_aside() if f.rule == "duplicate_point"]
    assert len(found) == 3001
    assert "and 2997 more" in found[0].reason


def test_a_latency_no_server_has_is_set_aside(vllm_folder):
    campaign = change(vllm_folder, 3, ttft_p50_ms="-1.7e12")
    assert rules_at(campaign, 5)["implausible_value"] == "REJECT"


def test_of_two_runs_of_one_identity_neither_is_used(vllm_folder):
    path = vllm_folder / "points.csv"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines, lines[1].replace("565.099", "600.0")]) + "\n")
    campaign = load_campaign(vllm_folder)
    found = [f for f in campaign.set_aside() if f.rule == "duplicate_point"]
    assert [f.source_row for f in found] == [2, 106]
    assert "points.csv line 106" in found[0].reason
    assert len(usable(campaign)) == 103


def test_failed_requests_over_one_percent_are_set_aside(vllm_folder):
    assert rules_at(change(vllm_folder, 3, failed_requests="3"), 5).get("error_rate") is None  # 3 of 475
    assert rules_at(change(vllm_folder, 3, failed_requests="5"), 5)["error_rate"] == "REJECT"  # 5 of 477


def test_few_requests_are_a_warning_whose_limit_can_be_set(vllm_folder, edit):
    found = [f for f in load_campaign(vllm_folder).findings if f.rule == "few_requests"]
    assert len(found) == 9
    assert {f.verdict for f in found} == {"WARN"}
    edit(vllm_folder / "campaign.toml", "[balance]", "[limits]\nfew_requests = 2\n[balance]")
    assert [f for f in load_campaign(vllm_folder).findings if f.rule == "few_requests"] == []


def test_the_disputed_engine_version_is_a_warning_at_every_run():
    found = [f for f in load_campaign("h200-vllm-pp").findings if f.rule == "disputed_label"]
    assert len(found) == 104
    assert "0.19.1 is used, 0.9.1 is claimed" in found[0].reason


def test_a_rejected_run_is_no_edge_of_the_sweep(vllm_folder):
    campaign = change(vllm_folder, 6, output_tokens_per_s="nan")  # 0.6B TP8/PP1 at C=64, its peak
    edges = {f.subject: f.seen for f in campaign.findings if f.rule == "peak_at_edge"}
    assert edges["Qwen/Qwen3-0.6B vllm TP8/PP1 C=32"] == 32.0


def test_verdict_and_rules_stand_in_the_run_table():
    runs = load_campaign("h200-vllm-pp").runs
    assert set(runs["verdict"]) == {"WARN"}  # the disputed version touches every run
    assert runs["rules"].str.contains("disputed_label").all()


def test_screening_twice_gives_the_same_verdicts():
    campaign = load_campaign("h200-vllm-pp")
    pd.testing.assert_frame_equal(screen(campaign).runs, campaign.runs)


def test_rule_names_are_unique_and_documented():
    assert len(set(RULE_NAMES)) == len(RULE_NAMES)
    assert all(rule.meaning for rule in RULES)
