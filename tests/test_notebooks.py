"""Notebooks run from top to bottom, define no functions and are stored without outputs."""

from __future__ import annotations

import ast
import asyncio
import json
import sys
import warnings

import pytest
from support.paths import ROOT

import calib

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
# What each notebook must come to, whatever else it shows.
SHOWN = {
    "1_from_aiperf_to_coefficients": ("s = 0.198", "FIT", "predicted [tok/s]", "measured [tok/s]", "<svg", "12 runs"),
    "2_why_the_form_was_refused": (
        "REFUSED",
        "not monotone",
        "level break",
        "is refused (1 - s*log2(pp) misses",
        "predicted [tok/s]",
        "pp4 = ",
    ),
    "3_what_limits_pp": ("critical", "residual [log-%]", "occupancy [1]", "TP1/PP8", "regret [%]", "<svg"),
    "4_bring_your_own_campaign": (
        "STATE THIS",
        "backend_version -",
        "coefficients-v1.json",
        "GPU-hours [h]",
        "s = 0.198",
    ),
}


def code_cells(path):
    return [c for c in json.loads(path.read_text())["cells"] if c["cell_type"] == "code"]


def test_there_is_one_notebook_a_question():
    assert {p.stem for p in NOTEBOOKS} == set(SHOWN)
    assert len(code_cells(NOTEBOOKS[0])) == 10


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_only_the_public_api_is_used(path):
    for cell in code_cells(path):
        for node in ast.walk(ast.parse("".join(cell["source"]))):
            if isinstance(node, ast.Import):
                assert not [a.name for a in node.names if a.name.startswith("calib.")]
            if isinstance(node, ast.ImportFrom):
                assert not (node.module or "").startswith("calib")
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "calib":
                assert node.attr in {*calib.__all__, "__file__"}, node.attr


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_nothing_of_one_machine_is_stored(path):
    text = path.read_text(encoding="utf-8")
    assert not [w for w in ("/tmp/", "/home/", "/work/", "/root/") if w in text]
    assert max(len(line.rstrip()) for cell in code_cells(path) for line in cell["source"]) <= 110


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_stored_without_outputs_and_without_functions(path):
    for cell in code_cells(path):
        assert cell["outputs"] == []
        assert cell["execution_count"] is None
        tree = ast.parse("".join(cell["source"]))
        assert not [n for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.Lambda, ast.ClassDef))]


@pytest.mark.filterwarnings("default")  # of the notebook machinery, not of calib
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_runs(path, tmp_path):
    import nbformat
    from nbclient import NotebookClient

    if sys.platform == "win32":
        asyncio.set_event_loop_policy(asyncio.WindowsSelectorEventLoopPolicy())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        notebook = nbformat.read(path, as_version=4)
        NotebookClient(
            notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
        ).execute()
    outputs = [o for c in notebook.cells if c["cell_type"] == "code" for o in c["outputs"]]
    assert not [o for o in outputs if o["output_type"] == "error" or o.get("name") == "stderr"]
    text = " ".join(json.dumps(o) for o in outputs)
    for words in SHOWN[path.stem]:
        assert words in text, words
    assert not list(tmp_path.iterdir()), "a notebook leaves nothing where it was started"
