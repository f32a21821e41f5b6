"""What must not change by accident: public names, layers, what importing costs."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import calib

PUBLIC = [
    "Accuracy",
    "CalibError",
    "Campaign",
    "CoefficientSet",
    "Decomposition",
    "Draft",
    "FitResult",
    "Options",
    "PipelineLayout",
    "PipelineSteadyState",
    "Prediction",
    "Predictor",
    "__version__",
    "accuracy",
    "coefficient_set",
    "contest_forms",
    "decompose",
    "draft_campaign",
    "explain_stages",
    "fit",
    "init_campaign",
    "load_campaign",
    "open_store",
    "plan_runs",
    "plot_efficiency",
    "plot_stages",
    "rank_decisions",
    "report",
    "run",
    "shipped_campaigns",
]
LIGHT = (
    "predict", "lookup", "domain", "operating_points", "registry", "residual", "coefficients", "provenance", "units", "errors",
)  # fmt: skip
ROOT = Path(calib.__file__).parent


def test_the_public_names_are_frozen_and_each_can_be_had():
    assert sorted(calib.__all__) == PUBLIC
    assert dir(calib) == calib.__all__
    for name in PUBLIC:
        assert getattr(calib, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'fits'"):
        calib.fits  # noqa: B018


def test_a_public_function_stays_one_after_its_module_is_imported():
    import calib.fitting
    import calib.reporting
    import calib.workflow

    assert callable(calib.fit)
    assert callable(calib.report)


def test_no_public_name_is_that_of_a_module():
    modules = {p.stem for p in ROOT.glob("*.py")} | {p.parent.name for p in ROOT.glob("*/__init__.py")}
    assert not modules & set(PUBLIC)


def test_importing_calib_imports_nothing_heavy():
    code = "import sys, calib; print(sorted({'numpy', 'pandas', 'msgspec', 'scipy'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {a.name.split(".")[0] for a in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.split(".")[0])
    return found


@pytest.mark.parametrize("module", LIGHT)
def test_the_prediction_path_imports_only_numpy_and_msgspec(module):
    third_party = imports(ROOT / f"{module}.py") - set(sys.stdlib_module_names) - {"calib"}
    assert third_party <= {"numpy", "msgspec", "packaging"}


def test_the_layers_hold():
    pytest.importorskip("importlinter", reason="import-linter comes with the extra dev; .ci/run runs it")
    done = subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()"],
        cwd=ROOT.parent, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "2 kept, 0 broken" in done.stdout, done.stdout + done.stderr


def test_no_public_function_is_without_a_docstring():
    missing = []
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            public = isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_")
            if public and ast.get_docstring(node) is None and "cli" not in path.parts:
                missing.append(f"{path.name}:{node.name}")
    assert missing == []
