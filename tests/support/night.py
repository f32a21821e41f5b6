"""The folder of a nightly job, and everything its store holds that does not say when or by whom it was made."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calib.nightly.night import Night, run_night
from calib.nightly.setup import Asked
from calib.nightly.store.database import TABLES
from calib.nightly.store.reader import open_store
from support.paths import DATA

AIPERF = DATA / "qwen3-8b-aiperf"
TRUTH = {"A": 0.20, "B": 0.22}


def dump(store: Path) -> dict[str, Any]:
    """Everything in a store that does not say when or by whom it was made, or how a file system stamps its files."""
    with open_store(store) as opened:
        tables = {name: opened.table(name) for name in (*TABLES, "runs")}
    for columns in (["made_at", "record_sha256", "folder", "digest"], ["mtime_ns"], ["fingerprint", "cache"], ["file"]):
        tables = {n: t.drop(columns=[c for c in columns if c in t]) if n != "x" else t for n, t in tables.items()}
    with open_store(store) as opened:
        sets = opened.sql("SELECT night, campaign, digest FROM coefficient_sets ORDER BY ALL")
    return {n: t.astype(str).values.tolist() for n, t in tables.items()} | {"sets": sets.values.tolist()}


@dataclass
class Job:
    """The folder of a nightly job."""

    folder: Path
    make: Callable[..., Path]

    @property
    def config(self) -> Path:
        return self.folder / "nightly.toml"

    def campaign(self, name: str, s: dict[str, float] | None = None, **options: Any) -> Path:
        """A simulated campaign arrives."""
        made = self.make(s or TRUTH, name=name, **{"noise": 0.002, "seed": sum(map(ord, name)), **options})
        return Path(shutil.move(made, self.folder / "results" / name))

    def night(self, **asked: Any) -> Night:
        return run_night(self.config, Asked(**asked))

    def dump(self) -> dict[str, Any]:
        return dump(self.folder / "store")
