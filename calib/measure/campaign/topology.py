"""One row of the run table from everything that says something about the run, with what was learnt from where.

Sources, in the order they are told: the result file, its entry under ``[[runs]]`` (and the numbers in the folder name),
``[defaults]``, side-cars inside the run. Where two of them state a field, they must agree. Server metrics, telemetry and
folder names only check; a name that disagrees is a warning, since names lie.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calib.errors import CampaignError, ContradictionError, UnknownTopologyError
from calib.measure.campaign.config import CampaignConfig
from calib.measure.readers.hints import Hint
from calib.measure.readers.read_run import ReadRun, UnreadableRun
from calib.names import BACKENDS

REQUIRED = ("model", "backend", "backend_version", "system", "gpus", "tp", "pp", "isl", "osl")


@dataclass(frozen=True)
class Identified:
    """A row of the run table, and for each identifying field where it was learnt."""

    row: dict[str, object]
    learnt: dict[str, str]


def identify(run: ReadRun, entry: Mapping[str, object], label: str, config: CampaignConfig, toml: Path) -> Identified:
    """The row of one run.

    Parameters
    ----------
    run
        As read; ``facts["hints"]`` holds what the files beside it say about the deployment.
    entry, label
        What its ``[[runs]]`` entry states, and the entry's name for messages.

    Raises
    ------
    ContradictionError
        Two sources state different values.
    UnknownTopologyError
        A field that identifies a run is stated nowhere.
    CampaignError
        The backend is not a known engine.
    """
    where = where_is(run)
    row: dict[str, object] = {"campaign": config.name, "verdict": "OK", "rules": "", **run.stated}
    learnt = dict.fromkeys(run.stated, where)
    if isinstance(model := row.get("model"), str):
        row["model"] = config.aliases.get(model, model)
    for section, stated in ((label, entry), ("defaults", config.defaults.given())):
        for name, value in stated.items():
            if row.setdefault(name, value) != value:
                raise ContradictionError(
                    f"is {value!r} there and {row[name]!r} in {learnt[name]}",
                    file=toml, field=f"{section}.{name}", remedy="correct the one that is wrong",
                )  # fmt: skip
            learnt.setdefault(name, f"{toml.name} {section}")
    hints = [h for h in _hints(run) if h.kind == "equal"]
    for hint in hints:
        if is_side_car(hint, run) and row.get(hint.field) is None:
            row[hint.field] = config.aliases.get(str(hint.value), hint.value) if hint.field == "model" else hint.value
            learnt[hint.field] = f"{hint.file} {hint.key}"
    _require(row, where, toml)
    _count_gpus(row, where, toml)
    for hint in _hints(run):
        _agree(hint, row, learnt, config, toml)
    row |= {"source_file": run.source_file, "source_row": run.source_row, "source_sha256": run.source_sha256}
    return Identified(
        row, {name: learnt[name] for name in (*REQUIRED, "dp", "replicas", "concurrency") if name in learnt}
    )


def where_is(run: ReadRun | UnreadableRun) -> str:
    """A run's place in words."""
    return f"{run.source_file} line {run.source_row}" if run.source_row else run.source_file


def _hints(run: ReadRun) -> tuple[Hint, ...]:
    hints = run.facts.get("hints", ())
    return hints if isinstance(hints, tuple) else ()


def is_side_car(hint: Hint, run: ReadRun) -> bool:
    """Written by the user to state the deployment; what a server or a GPU reports only checks."""
    return hint.file != run.source_file and not any(s in hint.file for s in ("server_metrics", "gpu_telemetry"))


def _require(row: Mapping[str, object], where: str, toml: Path) -> None:
    if missing := [name for name in REQUIRED if row.get(name) is None]:
        also = f" (and neither are {', '.join(missing[1:])})" if len(missing) > 1 else ""
        raise UnknownTopologyError(
            f"of {where} is stated neither there nor in {toml.name}{also}", file=toml, field=missing[0],
            remedy="state it in that file, in its [[runs]] entry, or under [defaults] where it holds for every run",
        )  # fmt: skip
    if row["backend"] not in BACKENDS:
        raise CampaignError(
            f"of {where} is not a known engine", file=toml, field="backend", value=row["backend"],
            remedy=f"use one of {', '.join(BACKENDS)}",
        )  # fmt: skip


def _count_gpus(row: dict[str, Any], where: str, toml: Path) -> None:
    """``gpus = tp*pp*dp`` of one replica; dp follows where it is not stated."""
    row.setdefault("replicas", 1)
    gpus, used = int(row["gpus"]), int(row["tp"]) * int(row["pp"]) * int(row.get("dp", 1))
    if "dp" not in row and gpus % used == 0:
        row["dp"] = gpus // used
    elif gpus != used:
        raise ContradictionError(
            f"of {where} is not tp*pp*dp = {used}", file=toml, field="gpus", value=gpus,
            remedy="correct gpus (of one replica), tp, pp or dp",
        )  # fmt: skip


def _agree(hint: Hint, row: Mapping[str, Any], learnt: Mapping[str, str], config: CampaignConfig, toml: Path) -> None:
    """Hold what a file beside the run says against the row."""
    value, said = row.get(hint.field), hint.value
    if value is None:
        return
    if hint.kind == "at_least":  # telemetry lists every GPU of a node, so only fewer contradict
        needed = int(value) * int(row["replicas"])
        if isinstance(said, int) and needed > said:
            raise ContradictionError(
                f"says there were {said} GPUs, and {toml.name} or the run needs {needed}", file=hint.file, field=hint.key,
                remedy="correct gpus or replicas",
            )  # fmt: skip
        return
    if hint.field == "model":
        said = config.aliases.get(str(said), said)
    if plain_name(said, hint.field) != plain_name(value, hint.field):
        raise ContradictionError(
            f"says {hint.field} = {hint.value!r}, and {learnt.get(hint.field, toml.name)} says {value!r}",
            file=hint.file, field=hint.key, remedy="correct the one that is wrong",
        )  # fmt: skip


def plain_name(value: object, field: str) -> object:
    """What two spellings of one name have in common: no case, and of a model no organisation."""
    if not isinstance(value, str):
        return value
    return value.casefold().rstrip("/").rsplit("/", 1)[-1] if field == "model" else value.casefold()
