"""What must not change by accident: public names, layers, what importing costs."""

from __future__ import annotations

import ast
import importlib
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from support.code import circle, edges, imported, modules, room
from support.paths import TESTS

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
ROOT = Path(calib.__file__).parent


def test_the_public_names_are_frozen_and_each_can_be_had():
    assert sorted(calib.__all__) == PUBLIC
    assert dir(calib) == calib.__all__
    for name in PUBLIC:
        assert getattr(calib, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'fits'"):
        calib.fits  # noqa: B018


def test_a_public_function_stays_one_after_every_module_is_imported():
    names = [n for n in modules() if not n.startswith(("calib.emulator.server", "calib.__main__"))]
    code = f"import importlib, calib\nfor n in {names}: importlib.import_module(n)\n"
    code += "print(callable(calib.fit), callable(calib.report))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True True\n"


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


def third_party(package: str) -> set[str]:
    here = sorted((ROOT / package).rglob("*.py"))
    return {name for path in here for name in imports(path)} - set(sys.stdlib_module_names) - {"calib"}


def test_the_consumer_imports_only_numpy_and_msgspec():
    # packaging orders engine versions where a coefficient covers a range of them; the import stands in that one place.
    assert third_party("coefficients") == {"numpy", "msgspec", "packaging"}
    uses = [p.name for p in sorted((ROOT / "coefficients").rglob("*.py")) if "packaging" in imports(p)]
    assert uses == ["records.py"]


def test_the_consumer_is_one_package_above_the_root_alone():
    rooms = {room(m) for name, to in GRAPH.items() if room(name) == "coefficients" for m in to}
    assert rooms <= {"coefficients", *ROOT_MODULES}
    light = {name for module in BASE_MODULES for name in imports(ROOT / f"{module}.py")} - set(sys.stdlib_module_names)
    assert light - {"calib"} <= {"numpy", "msgspec"}


def test_the_consumer_works_alone_with_numpy_and_msgspec(tmp_path):
    """A folder with those two libraries, the consumer's package and the modules of the root, and nothing else of calib."""
    site, library = tmp_path / "service", Path(np.__file__).parents[1]
    site.mkdir()
    for name in ("numpy", "numpy.libs", "msgspec"):
        if (library / name).exists():
            (site / name).symlink_to(library / name)
    (site / "calib" / "data").mkdir(parents=True)
    for module in BASE_MODULES:
        shutil.copy(ROOT / f"{module}.py", site / "calib")
    shutil.copy(ROOT / "__init__.py", site / "calib")
    shutil.copytree(ROOT / "coefficients", site / "calib" / "coefficients")
    shutil.copytree(ROOT / "data" / "released", site / "calib" / "data" / "released")
    code = (
        f"import sys; sys.path.insert(0, {str(site)!r})\n"
        "import calib; assert calib.__file__.startswith(sys.path[0])\n"
        "from calib import Predictor\n"
        "point = dict(model='Qwen/Qwen3-8B', system='h200_sxm', backend='vllm', backend_version='0.19.1', tp=4, pp=2, isl=4000,"
        " osl=1000)\n"
        "made = Predictor.load(points=point).factor(point)\n"
        "print(repr(float(made.value[0])), made.flags[0], sorted(m for m in sys.modules if 'site-packages' in"
        " str(getattr(sys.modules[m], '__file__', ''))))"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    point = {"model": "Qwen/Qwen3-8B", "system": "h200_sxm", "backend": "vllm", "backend_version": "0.19.1"}
    here = calib.Predictor.load(points=(point := point | {"tp": 4, "pp": 2, "isl": 4000, "osl": 1000})).factor(point)
    assert done.stdout == f"{float(here.value[0])!r} exact []\n"


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


# ---------------------------------------------------------------------------------------------------------------- the house
KNOWN = modules()
GRAPH = edges(KNOWN)
PACKAGES = {p.parent.name for p in ROOT.glob("*/__init__.py")}
ROOT_MODULES = {p.stem for p in ROOT.glob("*.py")} - {"__init__", "__main__"}
ABOVE = {"workflow", "predict"}  # of the root's modules, those that are not for everyone: the main job, and an address
BASE_MODULES = ROOT_MODULES - ABOVE
# A module or function that is longer than it should be, and why.
LONG_MODULES: dict[str, str] = {}
LONG_FUNCTIONS = {
    "calib.cli.predict_command.predict": "22 options, each of them two lines",
}


def test_there_are_at_most_ten_rooms_and_little_in_the_root():
    assert {
        "cli", "coefficients", "emulator", "fitting", "integrations", "judging", "measure", "nightly", "pipeline", "reporting",
    } == PACKAGES  # fmt: skip
    assert ABOVE | {"_exports", "_version", "arrays", "errors", "files", "names", "notebook", "units"} == ROOT_MODULES


def test_the_contract_has_at_most_nine_floors_and_no_exception():
    contract = tomllib.loads((ROOT.parent / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    layers = next(c for c in contract["contracts"] if c["type"] == "layers")
    assert len(layers["layers"]) <= 9
    assert layers["exhaustive"]
    assert not any("ignore_imports" in c for c in contract["contracts"])
    assert not contract.get("exclude_type_checking_imports", False)


def test_there_is_no_circle_between_rooms_and_none_between_modules():
    rooms: dict[str, set[str]] = {}
    for name, to in GRAPH.items():
        if name not in ("calib", "calib.__main__"):
            rooms.setdefault(room(name), set()).update(room(m) for m in to if room(m) != room(name))
    assert circle(rooms) == []
    assert circle({n: to - {"calib"} for n, to in GRAPH.items()}) == []
    assert not [n for n, to in GRAPH.items() if "calib" in to and n != "calib"], "nothing inside imports the outside"


def test_other_rooms_are_entered_by_the_door():
    """What a room gives to others is what its ``__init__`` exports; what is not there is nobody else's business."""
    through_the_wall = [
        f"{name}: from {module} import {what}"
        for name, tree in KNOWN.items()
        for module, what in imported(tree, KNOWN)
        if room(module) in PACKAGES and room(module) != room(name) and module != f"calib.{room(module)}"
    ]
    assert through_the_wall == []
    own_door = [
        n for n, to in GRAPH.items() if room(n) in PACKAGES and n != f"calib.{room(n)}" and f"calib.{room(n)}" in to
    ]
    assert own_door == [], "a module that enters its own package by the door makes a circle"


@pytest.mark.parametrize("package", sorted(PACKAGES - {"cli"}))
def test_each_door_says_what_lies_behind_and_gives_what_it_says(package):
    module = importlib.import_module(f"calib.{package}")
    said = {what: m for m, what in imported(KNOWN[f"calib.{package}"], KNOWN) if room(m) == package}
    assert dir(module) == sorted(said), "the names for type checkers and those at run time are the same"
    below = {p.stem for p in (ROOT / package).iterdir()}
    assert not below & set(said), "importing a module would replace the name"
    for name, home in said.items():
        assert getattr(module, name) is getattr(importlib.import_module(home), name)
    with pytest.raises(AttributeError, match="has no attribute"):
        module.nothing_of_that_name  # noqa: B018


@pytest.mark.parametrize("package", sorted(PACKAGES))
def test_each_room_introduces_itself(package):
    text = ast.get_docstring(KNOWN[f"calib.{package}"])
    assert len(text.splitlines()) <= 10
    assert "Read first: " in text
    assert "mport" in text, "what it may import"
    for name in re.findall(r"`([\w.]+)`", text.split("Read first: ")[1]):
        assert f"calib.{package}.{name}" in KNOWN, name


def test_a_benchmark_file_can_be_walked_to_a_prediction():
    walk = ast.get_docstring(KNOWN["calib"])
    steps = re.findall(r"^ *\d+\. (\S+) `(\w+)`", walk, re.M)
    assert len(steps) == 10
    for path, name in steps:
        tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
        assert name in {n.name for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.ClassDef))}, (path, name)


def test_modules_and_functions_are_of_a_size_to_read():
    modules_, functions = {}, {}
    for name, tree in KNOWN.items():
        path = ROOT.parent / Path(*name.split("."))
        file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        modules_[name] = file.read_text(encoding="utf-8").count("\n")
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                functions[f"{name}.{node.name}"] = node.end_lineno - node.lineno + 1
    assert {n for n, k in modules_.items() if k > 350} == set(LONG_MODULES)
    assert {n for n, k in functions.items() if k > 60} == set(LONG_FUNCTIONS)
    assert len(LONG_MODULES) + len(LONG_FUNCTIONS) <= 5


def test_one_name_has_one_meaning():
    """No public class or function, and no name that a door gives, stands in two modules."""
    homes: dict[str, list[str]] = {}
    for name, tree in KNOWN.items():
        for node in tree.body:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and not node.name.startswith(
                "_"
            ):
                homes.setdefault(node.name, []).append(name)
    assert {n: h for n, h in homes.items() if len(h) > 1 and n != "main"} == {}, (
        "`main` is what a program is started by"
    )
    doors: dict[str, set[str]] = {}
    for package in PACKAGES:
        for module, what in imported(KNOWN[f"calib.{package}"], KNOWN):
            if what:
                doors.setdefault(what, set()).add(module)
    assert {n: h for n, h in doors.items() if len(h) > 1} == {}
    stems: dict[str, list[str]] = {}
    for name in KNOWN:
        if name not in ("calib", *(f"calib.{p}" for p in PACKAGES)):
            stems.setdefault(name.rsplit(".", 1)[1], []).append(name)
    assert {n: h for n, h in stems.items() if len(h) > 1} == {}


def test_tests_stand_where_the_code_stands():
    """``tests/<package>/test_<module>.py``, with ``_<aspect>`` behind the module's name where one is not enough."""
    assert {p.name for p in TESTS.iterdir() if p.suffix == ".py"} == {
        "conftest.py", "test_architecture.py", "test_packaging.py", "test_hostile_folders.py", "test_notebooks.py",
    }  # fmt: skip
    assert {p.name for p in TESTS.iterdir() if p.is_dir() and p.name != "__pycache__"} == {
        *PACKAGES, "benchmarks", "data", "root", "support",
    }  # fmt: skip
    strays = []
    for path in sorted(TESTS.rglob("test_*.py")):
        folder = path.parent.relative_to(TESTS)
        if folder.parts and folder.parts[0] not in ("benchmarks", "data"):
            home = ROOT if folder.parts == ("root",) else ROOT / folder
            there = {p.stem for p in home.glob("*.py")} | {p.parent.name for p in home.glob("*/__init__.py")}
            words = path.stem.removeprefix("test_").split("_")
            if not any("_".join(words[:i]) in there for i in range(1, len(words) + 1)):
                strays.append(str(path.relative_to(TESTS)))
    assert strays == []
