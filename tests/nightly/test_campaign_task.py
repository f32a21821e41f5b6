"""The fingerprint of the code that decides what a night reads and fits: every module that does, and none that only draws."""

from __future__ import annotations

import shutil

import pytest
from support.code import PACKAGE, closure, edges, modules

from calib.nightly.campaign_task import READING, RULING, code_digest, code_files

GRAPH = edges(modules())


def named(parts):
    """The dotted names of the modules behind some parts of a fingerprint."""
    found = set()
    for path in code_files(parts):
        names = path.relative_to(PACKAGE.parent).with_suffix("").parts
        found.add(".".join(names[:-1] if names[-1] == "__init__" else names))
    return found


def test_whatever_reads_a_result_is_in_the_fingerprint_of_reading():
    start = {"calib.measure.campaign.reading", "calib.measure.readers.formats", "calib.measure.screening.screen"}
    reads = {m for m in closure(GRAPH, start) if not m.startswith(("calib.coefficients", "calib.pipeline"))}
    assert reads <= named(READING)


def test_whatever_decides_a_coefficient_is_in_the_fingerprint_of_rules():
    """From the main job and the task of the night, without the report: its pages and figures decide nothing."""
    graph = {n: {m for m in to if not m.startswith("calib.reporting")} for n, to in GRAPH.items()}
    decides = closure(graph, {"calib.workflow", "calib.measure.shipped"}) | {"calib.nightly.campaign_task"}
    assert decides <= named(RULING)
    for module in ("fitting.quantiles", "judging.contest", "units", "measure.run_table", "measure.campaign.config",
                   "coefficients.file", "coefficients.forms"):  # fmt: skip
        assert f"calib.{module}" in named(RULING)
    assert not [m for m in named(RULING) if m.startswith(("calib.reporting", "calib.cli", "calib.emulator"))]


@pytest.mark.parametrize("parts", [READING, RULING])
def test_one_changed_line_in_any_of_them_changes_the_digest(tmp_path, parts):
    copy = shutil.copytree(PACKAGE, tmp_path / "calib", ignore=shutil.ignore_patterns("__pycache__", "data"))
    before, files = code_digest.__wrapped__(parts, copy), code_files(parts, copy)
    assert before == code_digest(parts)
    assert len(files) > 20
    for path in files:
        text = path.read_bytes()
        path.write_bytes(text + b"# a line more\n")
        assert code_digest.__wrapped__(parts, copy) != before, path
        path.write_bytes(text)


def test_a_new_figure_restarts_no_baseline(tmp_path):
    copy = shutil.copytree(PACKAGE, tmp_path / "calib", ignore=shutil.ignore_patterns("__pycache__", "data"))
    (copy / "reporting" / "page.py").write_text("", encoding="utf-8")
    assert code_digest.__wrapped__(RULING, copy) == code_digest(RULING)
