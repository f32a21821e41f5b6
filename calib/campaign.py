"""A campaign folder: ``campaign.toml`` says what result files do not know, and the two are compared.

Whatever a file states and ``campaign.toml`` states too must agree; what neither states is an error for everything that
identifies a run. An unknown pp is never taken for 1.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Literal

import pandas as pd

from calib.campaign_config import CONFIG_NAME, CampaignConfig, Stated, parse_config
from calib.coefficients import InputFile
from calib.errors import BreakdownError, CampaignError, ContradictionError, UnknownTopologyError
from calib.provenance import read_bytes, sha256_bytes
from calib.readers import ReadRun, UnreadableRun
from calib.readers.discover import read_path
from calib.readers.table import NUMBER, read_table
from calib.schema import COUNTS, LARGEST_COUNT, run_table
from calib.stages import Breakdowns

REQUIRED = ("model", "backend", "backend_version", "system", "gpus", "tp", "pp", "isl", "osl")
BACKENDS = ("vllm", "sglang", "trtllm")


FindingVerdict = Literal["INFO", "WARN", "CORRECTED", "REJECT"]


@dataclass(frozen=True)
class Finding:
    """One thing that was noticed about a run or a series: nothing is dropped without one of these."""

    rule: str
    verdict: FindingVerdict
    subject: str
    reason: str
    source_file: str = ""
    source_row: int = 0
    seen: float | None = None
    limit: float | None = None


@dataclass(frozen=True)
class Campaign:
    """A campaign as read: its runs, its breakdowns, and everything that was noticed.

    Attributes
    ----------
    runs : DataFrame
        The run table (`calib.schema`), one row a run; ``verdict`` and ``rules`` come from screening.
    facts : mapping
        ``(source_file, source_row)`` -> what the file says beside the run table, for the screening rules.
    published : mapping
        Name of a published table -> its rows, for comparison only.
    findings : tuple of Finding
        What was set aside (REJECT) or warned about (WARN), and why.
    """

    folder: Path
    config: CampaignConfig
    runs: pd.DataFrame
    breakdowns: Breakdowns | None
    inputs: tuple[InputFile, ...]
    facts: Mapping[tuple[str, int], Mapping[str, object]] = field(default_factory=dict)
    published: Mapping[str, tuple[Mapping[str, str], ...]] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()

    @property
    def name(self) -> str:
        """The campaign's name."""
        return self.config.name

    def set_aside(self) -> tuple[Finding, ...]:
        """The findings that took something out of the calibration."""
        return tuple(f for f in self.findings if f.verdict == "REJECT")


def read_campaign(folder: str | Path, *, breakdowns: bool = True) -> Campaign:
    """Read a campaign folder, without screening it; without its breakdown file where ``breakdowns`` is False.

    Raises
    ------
    CampaignError
        ``campaign.toml`` or a file it names is missing or unusable.
    ContradictionError
        Two sources state different values for a field of one run.
    UnknownTopologyError
        A field that identifies a run is stated nowhere.
    BreakdownError
        The breakdown file is unusable.
    """
    folder = Path(folder)
    path = folder / CONFIG_NAME
    if not folder.is_dir():
        raise CampaignError("is not a folder", file=folder, remedy=f"give a folder that holds a {CONFIG_NAME}")
    if not path.is_file():
        raise CampaignError("is missing", file=path, remedy=f"write a {CONFIG_NAME}; the README shows one")
    data = read_bytes(path)
    config = parse_config(data, file=path)
    read = [(run, stated, label) for run, stated, label in _read_all(folder, config)]
    good = [(r, s, label) for r, s, label in read if isinstance(r, ReadRun)]
    rows = [_merge(r, s, config.defaults, config.aliases, label, config.name, path) for r, s, label in good]
    # Everything that was read, good or not: a file that turned bad must not leave the digest as it was.
    names = [CONFIG_NAME, *(t.file for t in config.tables), *(r.source_file for r, _, _ in read)]
    names += [name for name in _published_files(config).values() if name]
    names += [name for r, _, _ in good for name in _companions(r)]
    steps = None
    if config.balance and breakdowns:
        steps = Breakdowns.load(_inside(folder, config.balance.file, path, "balance.file"))
        names.append(config.balance.file)
    unreadable = [
        Finding("unreadable", "REJECT", _where(r), r.reason, r.source_file, r.source_row)
        for r, _, _ in read
        if isinstance(r, UnreadableRun)
    ]
    campaign = Campaign(
        folder=folder,
        config=config,
        runs=run_table(rows),
        breakdowns=steps,
        inputs=tuple(
            InputFile(campaign=config.name, path=name, sha256=sha256_bytes(read_bytes(folder / name)))
            for name in sorted(set(names))
            if (folder / name).is_file()
        ),
        facts={(r.source_file, r.source_row): r.facts for r, _, _ in good},
        published=_read_published(folder, config, path),
        findings=tuple(unreadable),
    )
    return _check_system(campaign, folder / config.balance.file if config.balance else folder)


def _check_system(campaign: Campaign, file: str | Path) -> Campaign:
    """Breakdowns of another GPU system would give balance factors of another machine."""
    systems = set(campaign.runs["system"])
    if campaign.breakdowns and systems and systems != {campaign.breakdowns.provider.system}:
        raise BreakdownError(
            f"is not the campaign's ({', '.join(sorted(systems))})",
            file=file,
            field="provider.system",
            value=campaign.breakdowns.provider.system,
            remedy="give breakdowns of the system that was measured",
        )
    return campaign


# What a published table must have: text columns, and columns of numbers (an empty cell is an unpublished figure).
_PUBLISHED = {
    "decomposition": (
        ("model", "backend"),
        ("pp", "total_penalty_pct", "balance_share_pp", "scheduling_residual_pp"),
    ),
    "coefficients": (("model",), ("vllm_s", "sglang_s", "trtllm_s")),
    "accuracy": (("backend", "approach", "mean_abs_error_pp", "max_abs_error_pp"), ()),
}


def _published_files(config: CampaignConfig) -> dict[str, str | None]:
    return {name: getattr(config.published, name) for name in _PUBLISHED} if config.published else {}


def _read_published(folder: Path, config: CampaignConfig, toml: Path) -> dict[str, tuple[Mapping[str, str], ...]]:
    tables: dict[str, tuple[Mapping[str, str], ...]] = {}
    for name, file in _published_files(config).items():
        if file is None:
            continue
        path = _inside(folder, file, toml, f"published.{name}")
        try:
            rows = tuple(csv.DictReader(read_bytes(path).decode("utf-8-sig").splitlines(), restval=""))
        except (csv.Error, UnicodeDecodeError) as error:
            raise CampaignError(f"is not a CSV table ({error})", file=path, remedy="save it as UTF-8 CSV") from None
        _check_published(rows, *_PUBLISHED[name], path)
        tables[name] = rows
    return tables


def _check_published(
    rows: tuple[Mapping[str, str], ...], texts: tuple[str, ...], numbers: tuple[str, ...], path: Path
) -> None:
    for row in rows:
        for name in (*texts, *numbers):
            if name not in row:
                raise CampaignError("is missing", file=path, field=name, remedy="add the column")
        for name in numbers:
            if row[name] and not NUMBER.fullmatch(row[name]):
                raise CampaignError("is not a number", file=path, field=name, value=row[name], remedy="correct it")
        if not row.get("pp", "1").isdecimal():
            raise CampaignError("is not a whole number", file=path, field="pp", value=row["pp"], remedy="correct it")


def _companions(run: ReadRun) -> list[str]:
    """Files beside the run's own that its figures come from: per-request records, and the other trials of a cell."""
    records, trials = run.facts.get("records_file"), run.facts.get("trial_files")
    names = [records] if isinstance(records, str) else []
    if isinstance(trials, tuple):
        names += [str(name) for name, *_ in trials]
    return names


def _read_all(folder: Path, config: CampaignConfig) -> list[tuple[ReadRun | UnreadableRun, Mapping[str, object], str]]:
    """Every run, what its entry in campaign.toml and its folder name state, and where the entry is."""
    toml = folder / CONFIG_NAME
    found: list[tuple[ReadRun | UnreadableRun, Mapping[str, object], str]] = []
    for i, table in enumerate(config.tables):
        path = _inside(folder, table.file, toml, f"tables[{i}].file")
        runs = read_table(path, file=table.file, columns=table.columns, ignore=table.ignore)
        found += [(run, {}, "") for run in runs]
    for i, entry in enumerate(config.runs):
        label = f"runs[{i}]"
        matches = _folders(folder, entry.folder, toml, label)
        for path, numbers in matches:
            stated = entry.given()
            for name, value in numbers.items():
                if stated.setdefault(name, value) != value:
                    raise ContradictionError(
                        f"says {name} = {stated[name]} and the folder name {path.name} says {value}",
                        file=toml, field=label, remedy="correct the one that is wrong",
                    )  # fmt: skip
            found += [(run, stated, label) for run in read_path(path, root=folder)]
    return found


def _folders(folder: Path, pattern: str, toml: Path, label: str) -> list[tuple[Path, dict[str, int]]]:
    """What lies below the campaign folder at a path that matches ``pattern``, with the numbers its placeholders stand for."""
    parts = re.split(r"\{(\w*)\}", pattern)
    if len(set(parts[1::2])) < len(parts[1::2]):
        raise CampaignError(
            "has a placeholder twice", file=toml, field=f"{label}.folder", value=pattern, remedy="use each one once"
        )
    expression = re.escape(parts[0])
    for name, text in zip(parts[1::2], parts[2::2], strict=True):
        if name not in COUNTS:
            raise CampaignError(
                "is not a placeholder", file=toml, field=f"{label}.folder", value="{" + name + "}",
                remedy=f"use one of {', '.join('{' + c + '}' for c in COUNTS)}",
            )  # fmt: skip
        expression += rf"(?P<{name}>[0-9]+)" + re.escape(text)
    candidates = sorted(p for p in folder.rglob("*") if not p.is_symlink())
    hits = [(p, m) for p in candidates if (m := re.fullmatch(expression, p.relative_to(folder).as_posix()))]
    if not hits:
        raise CampaignError(
            "matches no folder or file",
            file=toml,
            field=f"{label}.folder",
            value=pattern,
            remedy="correct the pattern",
        )
    found = [(p, {k: int(v) for k, v in m.groupdict().items()}) for p, m in hits]
    for path, numbers in found:
        for name, value in numbers.items():
            if not 1 <= value <= LARGEST_COUNT:
                raise UnknownTopologyError(
                    f"is {value} in the folder name {path.name}", file=toml, field=f"{label}.{name}",
                    remedy="rename the folder, or state the degree in the entry",
                )  # fmt: skip
    return found


def _merge(
    run: ReadRun,
    entry: Mapping[str, object],
    defaults: Stated,
    aliases: Mapping[str, str],
    label: str,
    campaign: str,
    toml: Path,
) -> dict[str, object]:
    """One row of the run table; what several sources state must agree."""
    where = _where(run)
    row: dict[str, object] = {"campaign": campaign, "verdict": "OK", "rules": "", **run.stated}
    if isinstance(model := row.get("model"), str):
        row["model"] = aliases.get(model, model)
    for section, stated in ((label, entry), ("defaults", defaults.given())):
        for name, value in stated.items():
            if row.setdefault(name, value) != value:
                raise ContradictionError(
                    f"is {value!r} there and {row[name]!r} in {where if name in run.stated else label}",
                    file=toml,
                    field=f"{section}.{name}",
                    remedy="correct the one that is wrong",
                )
    for name in REQUIRED:
        if row.get(name) is None:
            raise UnknownTopologyError(
                f"of {where} is stated neither there nor in {toml.name}",
                file=toml,
                field=name,
                remedy=f"state {name} under [defaults], in the [[runs]] entry, or as a column of the table",
            )
    if row["backend"] not in BACKENDS:
        raise CampaignError(
            f"of {where} is not a known engine", file=toml, field="backend", value=row["backend"],
            remedy=f"use one of {', '.join(BACKENDS)}",
        )  # fmt: skip
    row.setdefault("replicas", 1)
    gpus, used = _int(row["gpus"]), _int(row["tp"]) * _int(row["pp"]) * _int(row.get("dp", 1))
    if "dp" not in row and gpus % used == 0:
        row["dp"] = gpus // used
    elif gpus != used:
        raise ContradictionError(
            f"of {where} is not tp*pp*dp = {used}", file=toml, field="gpus", value=gpus,
            remedy="correct gpus (of one replica), tp, pp or dp",
        )  # fmt: skip
    row |= {"source_file": run.source_file, "source_row": run.source_row, "source_sha256": run.source_sha256}
    return row


def _int(value: Any) -> int:
    return int(value)


def _where(run: ReadRun | UnreadableRun) -> str:
    return f"{run.source_file} line {run.source_row}" if run.source_row else run.source_file


def _inside(folder: Path, name: str, toml: Path, field: str) -> Path:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        raise CampaignError(
            "leaves the campaign folder",
            file=toml,
            field=field,
            value=name,
            remedy="copy the file into the folder",
        )
    try:
        found = (folder / path).is_file()
    except (OSError, ValueError):  # a name too long, or with a NUL
        found = False
    if not found:
        raise CampaignError(
            "is not a file in the campaign folder", file=toml, field=field, value=name, remedy="correct the name"
        )
    return folder / path


def describe_run(row: Mapping[str, Any]) -> str:
    """One run in words, for findings and messages."""
    c = row.get("concurrency")
    at = "" if c is None or pd.isna(c) else f" C={int(c)}"
    return f"{row['model']} {row['backend']} TP{int(row['tp'])}/PP{int(row['pp'])}{at}"
