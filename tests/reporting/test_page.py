"""The report: complete, escaped, self-contained, the same every time."""

from __future__ import annotations

import base64
import html.parser
import json
import re
from dataclasses import replace
from pathlib import Path

import jsonschema
import numpy as np
import pandas as pd
import pytest

import calib
from calib.measure.shipped import shipped_campaigns
from calib.reporting.contents import command, report_tables
from calib.reporting.document import render_json, report_schema
from calib.reporting.efficiency_figure import draw_efficiency, svg
from calib.reporting.figure_output import figure_files, report_figures
from calib.reporting.figures import log_parts, loss_shares
from calib.reporting.markdown import render_markdown
from calib.reporting.page import render_html
from calib.reporting.table import cell_text
from calib.workflow import Options, calibrate


@pytest.fixture(scope="module")
def reports(calibrated):
    return {name: calibrated(name).report_data for name in shipped_campaigns()}


class Page(html.parser.HTMLParser):
    """Tags, attributes and visible text of a page."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.text, self.open = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.open.append(tag)

    def handle_endtag(self, tag):
        while self.open and self.open.pop() != tag:
            pass

    def handle_data(self, data):
        if not {"style", "script"} & set(self.open):
            self.text.append(data)


def test_the_page_shows_every_table_and_figure_and_needs_no_network(reports):
    for data in reports.values():
        page = Page(render_html(data))
        text = " ".join(page.text)
        for table in report_tables(data).values():
            assert table.title in text
        images = [a for t, a in page.tags if t == "img"]
        assert len(images) == len(report_figures(data)) >= 3
        assert all(a["src"].startswith("data:image/svg+xml;base64,") and len(a["alt"]) > 60 for a in images)
        assert not [t for t, _ in page.tags if t in ("link", "iframe", "object")]
        assert [a for t, a in page.tags if t == "script"] == [{}]  # one, inline
        assert all(not a.get(k, "").startswith(("http", "//")) for _, a in page.tags for k in ("src", "href"))
        policy = next(
            a["content"] for t, a in page.tags if t == "meta" and a.get("http-equiv") == "Content-Security-Policy"
        )
        assert "default-src 'none'" in policy
        assert re.search(r"script-src 'sha256-[A-Za-z0-9+/]{43}='", policy)


def test_the_page_answers_first_whether_to_trust(reports):
    page = Page(render_html(reports["h20-trtllm-pp"]))
    text = " ".join(" ".join(page.text).split())
    assert "The form 1 - s*log2(pp) is refused for 1 of 1 models (Qwen/Qwen3-32B)." in text
    text = render_html(reports["h200-vllm-pp"])
    assert text.index("fits 4 of 4 models") < text.index("<main>")


def test_published_figures_stand_beside_our_own_with_the_reason(reports):
    tables = report_tables(reports["h200-vllm-pp"])
    rows = {(r["model"], r["pp"]): r for r in tables["published_decomposition"].rows}
    assert rows[("Qwen/Qwen3-8B", 8)]["published_total"] == 68.5
    assert round(rows[("Qwen/Qwen3-8B", 8)]["total"], 1) == 68.5
    assert rows[("Qwen/Qwen3-8B", 8)]["published_balance"] == 40.7
    assert {r["published"] for r in tables["published_coefficients"].rows} == {0.158, 0.195, 0.212}
    assert ("1.8", "4.7") in {(r["published_mean"], r["published_max"]) for r in tables["published_accuracy"].rows}
    assert "unreleased version" in tables["published_accuracy"].note


def test_markdown_fits_a_pull_request_comment(reports):
    for data in reports.values():
        text = render_markdown(data)
        assert text.count("\n") <= 60
        assert len(text) < 65_000
        assert re.search(r"\*\*(vllm|sglang|trtllm): (FIT|WARN|REFUSED)\*\*", text)


def test_json_holds_every_table_in_full_precision(reports):
    for data in reports.values():
        document = json.loads(render_json(data))
        assert document["format"] == "calib-report"
        assert set(document["tables"]) == set(report_tables(data))
    shown = json.loads(render_json(reports["h200-vllm-pp"]))["tables"]["predicted"]["rows"]
    assert shown[0]["measured"] == 13354.108 / 16881.351


def test_json_follows_the_shipped_schema(reports):
    shipped = json.loads((Path(calib.__file__).parent / "data" / "report-v1.schema.json").read_text())
    assert shipped == report_schema()
    for data in reports.values():
        jsonschema.validate(json.loads(render_json(data)), shipped)


def test_every_figure_has_its_table_and_is_the_same_every_time(reports):
    for data in reports.values():
        first, second = figure_files(data), figure_files(replace(data, drawn={}))
        assert first == second
        assert {f"figures/{f.name}.{kind}" for f in report_figures(data) for kind in ("svg", "png")} == set(first)
        assert all(f.table in data.tables and data.tables[f.table].rows for f in report_figures(data))


def test_the_bars_add_up(reports):
    for data in reports.values():
        shares = loss_shares(data.fit).drop(columns="label")
        np.testing.assert_allclose(shares.sum(axis=1), 100.0, atol=1e-9)
    rows = log_parts(reports["h200-vllm-pp"].model)
    parts = rows.drop(columns=["label", "total"])
    np.testing.assert_allclose(parts.sum(axis=1), rows["total"], atol=1e-9)


def test_the_command_makes_the_same_results_again(reports, calibrated):
    assert command(reports["h200-vllm-pp"]) == "calib run h200-vllm-pp"
    other = calibrated("h200-vllm-pp", Options(matching="matched", form="power", error_floor=0.03)).report_data
    assert command(other) == "calib run h200-vllm-pp --matching matched --form power --error-floor 0.03"


def test_figures_are_the_same_every_time_and_carry_no_date(reports):
    fit = reports["h200-vllm-pp"].fit
    once, again = svg(draw_efficiency(fit, "vllm")), svg(draw_efficiency(fit, "vllm"))
    assert once == again
    assert "<dc:date>" not in once


def test_every_axis_has_its_unit(reports):
    for data in reports.values():
        for backend in {s.key["backend"] for s in data.fit.series}:
            axes = draw_efficiency(data.fit, backend).axes
            assert {a.get_ylabel() for a in axes} - {""} == {"efficiency vs TP=G/PP1 [1]"}
            assert {a.get_xlabel() for a in axes} - {""} == {"pipeline stages pp (log scale)"}


def test_a_concurrency_has_one_colour_in_all_panels(calibrated):
    fit = calibrated("h200-vllm-pp", Options(matching="matched")).fit
    colours: dict[str, set] = {}
    for axes in draw_efficiency(fit, "vllm").axes:
        for container in axes.containers:
            colours.setdefault(container.get_label(), set()).add(tuple(container[0].get_color()))
    assert len(colours) == 7
    assert all(len(c) == 1 for c in colours.values())


HOSTILE = [
    "<img src=x onerror=alert(1)>",
    '"><script>alert(1)</script>',
    "=HYPERLINK(1)",
    "a|b*c_[d](javascript:x)`e`",
    "{{7*7}}",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_names_are_text_wherever_they_are_shown(simulated, name):
    data = calibrate(simulated({name: 0.2})).report_data
    page = Page(render_html(data))
    assert name in "".join(page.text)
    assert not [t for t, a in page.tags if "onerror" in a]
    assert [a for t, a in page.tags if t == "script"] == [{}]
    assert len([t for t, _ in page.tags if t == "img"]) == len(report_figures(data))
    markdown = render_markdown(data)
    assert "<img" not in markdown
    assert "<script" not in markdown
    assert not re.search(r"(?<!\\)\]\(", markdown)  # no link
    for line in markdown.splitlines():
        if line.startswith("| vllm"):
            assert len(re.findall(r"(?<!\\)\|", line)) in (8, 9, 12)


def test_the_figure_is_a_picture(reports):
    page = Page(render_html(reports["h20-trtllm-pp"]))
    source = next(a["src"] for t, a in page.tags if t == "img")
    assert base64.b64decode(source.split(",", 1)[1]).startswith(b"<?xml")


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (0.12345, "ratio", "0.123"), (None, "ratio", ""), (float("nan"), "points", ""), (-0.04, "points", "0.0"),
        (-0.06, "points", "-0.1"), (1e-9, "p", "< 1e-6"), (0.0321, "p", "0.032"), (64, "int", "64"), (0.95, "plain", "0.95"),
        ("x", "text", "x"), (-0.00001, "ratio", "0.000"),
    ],
)  # fmt: skip
def test_numbers_as_text(value, kind, text):
    assert cell_text(value, kind) == text


def test_two_files_side_by_side_in_the_form_of_the_report(cli, tmp_path, calibrated):
    other = tmp_path / "other.json"
    calibrated("h200-vllm-pp", Options(error_floor=0.03)).coefficients.save(other)
    here = tmp_path / "here.json"
    calibrated("h200-vllm-pp").coefficients.save(here)
    done = cli("compare", here, other, "--out", tmp_path / "compared")
    assert done.code == 0
    page = Page((tmp_path / "compared" / "compare.html").read_text())
    assert "What moved" in " ".join(page.text)
    assert "combined standard errors" in " ".join(page.text)
    markdown = (tmp_path / "compared" / "compare.md").read_text()
    assert markdown.startswith("# Coefficients ")
    assert markdown.count("\n") <= 60
    assert cli("compare", here, other, "--out", tmp_path / "compared").code == 0  # the same again is nothing new
    refused = cli("compare", other, here, "--out", tmp_path / "compared")
    assert refused.code == 3
    assert "holds another comparison" in refused.err


def test_two_precisions_of_one_model_are_two_rows_everywhere(vllm_folder):
    points = pd.read_csv(vllm_folder / "points.csv")
    points = points[points["model"] == "Qwen/Qwen3-8B"]
    slower = points["output_tokens_per_s"].where(points["pp"] == 1, 0.8 * points["output_tokens_per_s"])
    both = [points.assign(precision="bf16"), points.assign(precision="fp8", output_tokens_per_s=slower)]
    pd.concat(both).to_csv(vllm_folder / "points.csv", index=False)
    data = calibrate(vllm_folder).report_data
    observed = {r["precision"]: r["pp2"] for r in data.tables["observed"].rows}
    assert observed["fp8"] == pytest.approx(0.8 * observed["bf16"])
    rows = data.tables["predicted"].rows
    assert len(rows) == 6
    assert all(r["error_pp"] == pytest.approx(100 * (r["predicted"] - r["measured"])) for r in rows)
    assert loss_shares(data.fit)["label"].is_unique


def test_a_campaign_that_states_some_concurrencies_and_not_others_has_a_report(vllm_folder):
    points = pd.read_csv(vllm_folder / "points.csv")
    other = points[points["model"] == "Qwen/Qwen3-14B"]
    best = other.loc[other.groupby(["tp", "pp"])["output_tokens_per_s"].idxmax()].assign(concurrency="")
    pd.concat([points[points["model"] == "Qwen/Qwen3-8B"], best]).to_csv(vllm_folder / "points.csv", index=False)
    data = calibrate(vllm_folder).report_data
    assert figure_files(data)
    assert json.loads(render_json(data))["tables"]["observed"]["rows"]
