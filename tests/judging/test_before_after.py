"""Throughput before and after calibration over the 78 PP>1 points of H200/vLLM at matched concurrency."""

from __future__ import annotations

import pytest

from calib.judging.before_after import WHY_D_DIFFERS, compare_before_after
from calib.measure.shipped import load_campaign
from calib.reporting.before_after_tables import before_after_tables


@pytest.fixture(scope="module")
def table():
    return compare_before_after(load_campaign("h200-vllm-pp")).set_index("approach")


def test_every_point_is_predicted_by_each(table):
    assert table["points"].tolist() == table["predicted"].tolist() == [78] * 5


def test_the_ideal_model_is_off_by_about_161_pct_and_52_where_the_pipe_is_full(table):
    a = table.loc["(a) ideal model: measured baseline * K"]
    assert a["mape_pct"] == pytest.approx(161, abs=3)
    assert a["full_mape_pct"] == pytest.approx(52, abs=3)


def test_balance_and_linear_fill_bring_it_to_about_39_pct(table):
    assert table.loc["(b) (a) * balance * linear fill", "mape_pct"] == pytest.approx(39, abs=3)


def test_the_baseline_factor_of_the_other_models_is_within_8_pct(table):
    assert table.loc["(c) baseline factor, without balance", "mape_pct"] <= 8.0
    assert table.loc["(c) baseline factor, balance of a decode step", "mape_pct"] < 9.0


def test_the_model_factor_is_printed_with_the_reason_it_differs(table):
    d = table.loc["(d) K * model factor"]
    assert d["mape_pct"] > table.loc["(c) baseline factor, without balance", "mape_pct"]
    assert d["note"] == WHY_D_DIFFERS


def test_a_campaign_of_ratios_has_no_such_table():
    for name in ("h200-sglang-trtllm-pp", "h20-trtllm-pp"):
        assert before_after_tables(load_campaign(name)) == []


def test_the_report_shows_it():
    (shown,) = before_after_tables(load_campaign("h200-vllm-pp"))
    assert shown.name == "before_after"
    cells = [shown.cells(r) for r in shown.rows]
    assert cells[0][1].startswith("(a)")
    assert all("%" in c.label for c in shown.columns if c.kind == "points")
