"""The code of calib as a graph: what imports what, wherever the import stands."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

from support.paths import ROOT

PACKAGE = ROOT / "calib"


def modules(package: Path = PACKAGE) -> dict[str, ast.Module]:
    """Every module by its dotted name; a package is its ``__init__``."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = ast.parse(path.read_text(encoding="utf-8"))
    return found


def imported(tree: ast.Module, known: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """``(module, name)`` of each import of calib in a module, at any depth, type-checking ones too; '' for a whole module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((a.name, "") for a in node.names if a.name.split(".")[0] == "calib")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "calib":
            module = node.module or ""
            for alias in node.names:
                below = f"{module}.{alias.name}"
                yield (below, "") if below in known else (module, alias.name)


def edges(known: Mapping[str, ast.Module]) -> dict[str, set[str]]:
    """Module -> the modules it imports."""
    return {name: {m for m, _ in imported(tree, known)} - {name} for name, tree in known.items()}


def room(module: str) -> str:
    """The package directly below calib that a module is in, or the module of calib's root that it is."""
    return module.split(".")[1] if "." in module else ""


def circle(graph: Mapping[str, set[str]]) -> list[str]:
    """One circle of a graph, or nothing."""
    done: set[str] = set()

    def walk(node: str, way: list[str]) -> list[str]:
        if node in way:
            return [*way[way.index(node) :], node]
        if node in done:
            return []
        for nxt in sorted(graph.get(node, ())):
            if found := walk(nxt, [*way, node]):
                return found
        done.add(node)
        return []

    return next((found for node in sorted(graph) if (found := walk(node, []))), [])


def closure(graph: Mapping[str, set[str]], start: set[str]) -> set[str]:
    """Everything that is imported from ``start`` on, with the packages that a module lies in."""
    found: set[str] = set()
    todo = set(start)
    while todo:
        name = todo.pop()
        found.add(name)
        parents = {name.rsplit(".", i)[0] for i in range(1, name.count(".") + 1)} - {"calib"}
        todo |= (graph.get(name, set()) | parents) - found
    return found
