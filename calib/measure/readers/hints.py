"""Hints: what a file says about the served deployment, where it says so, and how strictly it is to be taken."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

HintKind = Literal["equal", "at_least"]
MOST = 500  # hints, or remarks, of one file; a hostile one could hold millions


@dataclass(frozen=True)
class Hint:
    """One thing a file says about the deployment.

    Attributes
    ----------
    field : str
        Column of the run table. ``gpus`` and the degrees are those of one replica.
    value : object
        What it should be.
    file, key : str
        Path relative to the campaign's folder, and where in the file.
    kind : {'equal', 'at_least'}
        ``at_least``: the machine had ``value`` of them, used or not, and only a *larger* stated number contradicts it.
    """

    field: str
    value: object
    file: str
    key: str
    kind: HintKind = "equal"


@dataclass
class Found:
    """Hints and facts of one file, or of a run, while they are gathered."""

    file: str = ""
    hints: dict[Hint, None] = field(default_factory=dict)
    facts: dict[str, object] = field(default_factory=dict)
    odd: list[str] = field(default_factory=list)
    gpu_names: set[str] = field(default_factory=set)

    def add(self, column: str, value: object, key: str, kind: HintKind = "equal") -> None:
        """A hint, once."""
        if len(self.hints) < MOST:
            self.hints[Hint(column, value, self.file, key, kind)] = None

    def strange(self, key: str, problem: str) -> None:
        """A remark on something that gives no hint."""
        if len(self.odd) < MOST:
            self.odd.append(f"{self.file}: {f'{key} ' if key else ''}{problem}")

    def count(self, column: str, value: object, key: str) -> None:
        """A positive whole number, also one written as text; ``"4.0"``, ``""`` and ``"auto"`` are strange."""
        if (number := whole(value)) is not None:
            self.add(column, number, key)
        elif value is not None:
            self.strange(key, f"= {shown(value)} is not a positive whole number")

    def word(self, column: str, value: object, key: str) -> None:
        """A name that is one line of text."""
        if (name := hint_text(value)) is not None:
            self.add(column, name, key)
        elif value is not None:
            self.strange(key, f"= {shown(value)} is not a name")

    def gpu(self, name: str, key: str) -> None:
        """A GPU's name, and the system it stands for where it is a known one."""
        self.gpu_names.add(name)
        if system := gpu_system(name):
            self.add("system", system, key)

    def take(self, other: Found) -> None:
        """What another file said."""
        self.hints |= other.hints
        self.facts |= other.facts
        self.odd += other.odd
        self.gpu_names |= other.gpu_names


def gpu_system(name: str) -> str | None:
    """The system a GPU's name stands for, or None: PCIe and NVL cards, slices of a GPU and unknown GPUs are none."""
    parts = set(re.findall(r"[A-Z0-9]+", name.upper()))
    if parts & {"PCIE", "NVL", "MIG"}:
        return None
    rules = {
        "h200_sxm": "H200" in parts,
        "h20e_sxm": "H20E" in parts or {"H20", "3E"} <= parts,
        "h20_sxm": "H20" in parts,
        "h100_sxm": "H100" in parts and ("HBM3" in parts or any(p.startswith("SXM") for p in parts)),
    }
    return next((system for system, holds in rules.items() if holds), None)


def whole(value: object) -> int | None:
    """A whole number from 1 to 10**9 - 1, also one written as text."""
    if isinstance(value, str):
        return int(value) if re.fullmatch(r"0*[1-9][0-9]{0,8}", value, re.ASCII) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and 1 <= value < 10**9 else None


def hint_text(value: object) -> str | None:
    """One line of printable text."""
    return value.strip() or None if isinstance(value, str) and len(value) <= MOST and value.isprintable() else None


def shown(value: object) -> str:
    """What a remark shows of a value: a large one is never formatted."""
    if isinstance(value, str | bool | float):
        return repr(value[:40] if isinstance(value, str) else value)
    return str(value) if whole(value) or value == 0 else f"of type {type(value).__name__}"
