"""Notebooks run from top to bottom, define no functions and are stored without outputs."""

from __future__ import annotations

import ast
import asyncio
import json
import sys
import warnings
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))


def code_cells(path):
    return [c for c in json.loads(path.read_text())["cells"] if c["cell_type"] == "code"]


def test_there_are_notebooks():
    assert NOTEBOOKS


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
    text = json.dumps(notebook.cells)
    assert "10208.526" in text
    assert "Traceback" not in text
    assert "not monotone" in text
