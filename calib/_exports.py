"""The face of a package: names that are imported when they are first used, so that a command loads only what it needs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def face(package: str, exports: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of a package (PEP 562).

    ``exports`` maps a module below the package to the names others may use, in one string; ``here=there`` gives a name of the
    module another name in the package. No name may be that of a module of the package: importing the module would replace it.
    """
    homes: dict[str, tuple[str, str]] = {}
    for module, names in exports.items():
        for name in names.split():
            here, _, there = name.partition("=")
            homes[here] = (module, there or here)

    def __getattr__(name: str) -> Any:  # noqa: N807
        if name not in homes:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        module, there = homes[name]
        value = getattr(import_module(f"{package}.{module}"), there)
        setattr(sys.modules[package], name, value)
        return value

    def __dir__() -> list[str]:  # noqa: N807
        return sorted(homes)

    return __getattr__, __dir__
