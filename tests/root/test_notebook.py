"""How objects show themselves in a notebook: as text whatever they are called, in bounded size, with units."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
import time
from html.parser import HTMLParser

import msgspec
import pandas as pd
import pytest

import calib
from calib.notebook import LONGEST, ROWS, csv_cell
from calib.workflow import calibrate

HOSTILE = "<img src=x onerror=alert(1)>"
TAGS = {"div", "p", "strong", "br", "table", "thead", "tbody", "tr", "th", "td", "code"}


class Page(HTMLParser):
    """What a browser would make of it: tags, attributes and the texts of the cells."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.cells, self.headings, self.open = set(), set(), [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag != "br":
            self.open.append(tag)
        if tag in ("td", "th"):
            (self.cells if tag == "td" else self.headings).append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1:] == ["td"]:
            self.cells[-1] += data
        elif self.open[-1:] == ["th"]:
            self.headings[-1] += data


def shown(result):
    """Everything that shows itself, by what it is."""
    return {
        "campaign": result.campaign, "decomposition": result.decomposition, "fit": result.fit,
        "coefficients": result.coefficients, "accuracy": result.accuracy,
    }  # fmt: skip


@pytest.fixture(scope="module")
def vllm(calibrated):
    return calibrated("h200-vllm-pp")


HEADINGS = {
    "campaign": {"C [requests]", "highest throughput [tok/s]"},
    "decomposition": {"efficiency [1]", "total penalty [pp]", "balance [pp]", "scheduling [pp]"},
    "fit": {"estimate ± stderr [1]", "95 % interval [1]", "verdict", "why"},
    "coefficients": {"estimate ± stderr [1]", "95 % interval [1]", "holds for"},
    "accuracy": {"mean |error| [pp]", "worst |error| [pp]", "worst point"},
}


@pytest.mark.parametrize("name", HEADINGS)
def test_every_quantity_has_its_unit(vllm, name):
    page = Page(shown(vllm)[name]._repr_html_())
    assert set(page.headings) >= HEADINGS[name]
    assert page.tags <= TAGS
    assert page.attributes <= {"style", "scope"}


def test_the_numbers_are_those_of_the_objects(vllm):
    page = Page(vllm.fit._repr_html_())
    at = page.cells.index("Qwen/Qwen3-8B")
    row = vllm.fit.table().set_index(["kind", "model"]).loc["model", "Qwen/Qwen3-8B"]
    assert page.cells[at + 2] == f"s = {row['s']:.4f} ± {row['stderr']:.4f}"
    assert page.cells[at + 3] == f"{row['low95']:.4f} to {row['high95']:.4f}"
    assert "any other model" in page.cells
    assert "104 runs (104 WARN), 0 set aside" in vllm.campaign._repr_html_()
    assert "PP 2, 4, 8; TP 1, 2, 4; C 64 requests; ISL 4000, OSL 1000 tokens" in vllm.coefficients._repr_html_()


def test_a_model_reference_shows_its_factors(vllm):
    table = calib.decompose(vllm.campaign, matching="matched", reference="model")
    assert {"K [1]", "balance [1]", "fill [1]", "residual [1]"} <= set(Page(table._repr_html_()).headings)


def test_ratios_unknown_concurrency_and_free_values_are_shown():
    ratios = Page(calib.load_campaign("h200-sglang-trtllm-pp")._repr_html_())
    assert "highest efficiency [1]" in ratios.headings
    assert "not stated" in ratios.cells
    free = Page(calib.fit(calib.decompose(calib.load_campaign("h20-trtllm-pp")), form="free")._repr_html_())
    assert any(re.fullmatch(r"\w+ = 0\.\d+ ± 0\.\d+(, \w+ = 0\.\d+ ± 0\.\d+){2}", cell) for cell in free.cells)


def test_names_are_text(simulated):
    result = calibrate(simulated({HOSTILE: 0.2, "=HYPERLINK(1)": 0.2, "a\x1b[2J&amp;": 0.2}))
    for name, thing in shown(result).items():
        page = Page(thing._repr_html_())
        assert page.tags <= TAGS, name
        assert page.attributes <= {"style", "scope"}, name
        assert any(HOSTILE in cell for cell in page.cells), name
        assert "\x1b" not in thing._repr_html_()


def test_a_title_is_text(simulated, edit):
    folder = simulated({"m": 0.2})
    edit(folder / "campaign.toml", 'title = "simulated"', f'title = "{HOSTILE}"')
    assert "<img" not in calib.load_campaign(folder)._repr_html_()


def test_500_models_take_no_more_room_and_no_time(vllm):
    names = [f"model-{i}" + "x" * 300 for i in range(500)]
    runs = pd.concat([vllm.campaign.runs.head(2).assign(model=name) for name in names])
    campaign = dataclasses.replace(vllm.campaign, runs=runs)
    table = pd.concat([vllm.decomposition.table.head(2).assign(model=name) for name in names])
    decomposition = dataclasses.replace(vllm.decomposition, table=table)
    series, first = (
        vllm.fit.series[0],
        vllm.coefficients.coefficients[0],
    )  # fitting 500 would take a while, and show the same
    many = tuple(dataclasses.replace(series, key=series.key | {"model": name}) for name in names)
    fit = dataclasses.replace(vllm.fit, series=many)
    published = tuple(msgspec.structs.replace(first, model=name) for name in names)
    coefficients = msgspec.structs.replace(vllm.coefficients, coefficients=published)
    for thing in (campaign, decomposition, fit, coefficients):
        start = time.perf_counter()
        text = thing._repr_html_()
        assert time.perf_counter() - start < 1.0
        assert text.count("<tr>") == ROWS + 1
        assert len(text) < 40_000
        assert max(map(len, Page(text).cells)) <= LONGEST
        assert "more rows in <code>" in text


def test_nothing_to_show_is_said(vllm_folder):
    campaign = calib.load_campaign(vllm_folder)
    nothing = type(campaign)(campaign.folder, campaign.config, campaign.runs.iloc[:0], None, ())
    text = nothing._repr_html_()
    assert "There is nothing to show." in text
    assert "no balance factors yet" in text


def test_a_coefficient_file_is_shown_without_pandas(vllm, tmp_path):
    path = tmp_path / "c.json"
    vllm.coefficients.save(path)
    code = (
        "import sys, calib; text = calib.CoefficientSet.load(sys.argv[1])._repr_html_(); "
        "print('<table>' in text, sorted({'pandas', 'scipy', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout == "True []\n"


def test_refusals_say_why(calibrated):
    refused = calibrated("h20-trtllm-pp").fit._repr_html_()
    assert "REFUSED" in refused
    assert "1 models: 1 REFUSED" in refused
    assert "not monotone" in refused or "misses the points" in refused


@pytest.mark.parametrize(
    ("cell", "shown"),
    [
        ('=HYPERLINK("http://x.invalid")', "'=HYPERLINK(\"http://x.invalid\")"), ("@SUM(A1)", "'@SUM(A1)"), ("-2+3", "'-2+3"),
        ("-1.5", "-1.5"), ("+1e3", "+1e3"), (-1.5, -1.5), ("Qwen/Qwen3-8B", "Qwen/Qwen3-8B"), ("", ""), (None, None),
    ],
)  # fmt: skip
def test_a_spreadsheet_shows_a_name_as_text(cell, shown):
    assert csv_cell(cell) == shown
