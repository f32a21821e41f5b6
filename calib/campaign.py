"""A campaign folder: ``campaign.toml`` says what result files do not know, and the two are compared.

Whatever a file states and ``campaign.toml`` states too must agree; what neither states is an error for everything that
identifies a run. An unknown pp is never taken for 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from calib.campaign_config import CONFIG_NAME, CampaignConfig, parse_config
from calib.campaign_files import (
    ReadUnits,
    companions,
    inside,
    published_files,
    read_all,
    read_published,
    read_units,
    uncovered,
)
from calib.coefficients import InputFile
from calib.display import campaign_html
from calib.errors import BreakdownError, CampaignError, ContradictionError
from calib.provenance import read_bytes, sha256_bytes
from calib.readers import ReadRun, UnreadableRun
from calib.schema import run_table
from calib.stages import Breakdowns
from calib.topology import place, where_is

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


@dataclass(frozen=True, repr=False)
class Campaign:
    """A campaign as read: its runs, its breakdowns, and everything that was noticed.

    Attributes
    ----------
    runs : DataFrame
        The run table (`calib.schema`), one row a run; ``verdict`` and ``rules`` come from screening.
    facts : mapping
        ``(source_file, source_row)`` -> what the file says beside the run table, for the screening rules.
    learnt : mapping
        ``(source_file, source_row)`` -> for each identifying field, where it was learnt.
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
    learnt: Mapping[tuple[str, int], Mapping[str, str]] = field(default_factory=dict)
    published: Mapping[str, tuple[Mapping[str, str], ...]] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()

    def __repr__(self) -> str:
        counts = ", ".join(f"{n} {v}" for v, n in self.runs["verdict"].value_counts().items())
        return f"<Campaign {self.name}: {len(self.runs)} runs ({counts}), {len(self.set_aside())} set aside>"

    def _repr_html_(self) -> str:
        return campaign_html(self)

    @property
    def name(self) -> str:
        """The campaign's name."""
        return self.config.name

    def set_aside(self) -> tuple[Finding, ...]:
        """The findings that took something out of the calibration."""
        return tuple(f for f in self.findings if f.verdict == "REJECT")


def file_digest(path: Path) -> str:
    """Hex SHA-256 of a file."""
    return sha256_bytes(read_bytes(path))


def read_campaign(
    folder: str | Path,
    *,
    breakdowns: bool = True,
    read: ReadUnits = read_units,
    digest: Callable[[Path], str] = file_digest,
) -> Campaign:
    """Read a campaign folder, without screening it; without its breakdown file where ``breakdowns`` is False.

    ``read`` and ``digest`` read results and their digests: a store answers both for files it has seen.

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
    found = read_all(folder, config, read)
    good = [(r, s, label) for r, s, label in found if isinstance(r, ReadRun)]
    placed = [place(r, stated, label, config, path) for r, stated, label in good]
    # Everything that was read, good or not: a file that turned bad must not leave the digest as it was.
    names = [CONFIG_NAME, *(t.file for t in config.tables), *(r.source_file for r, _, _ in found)]
    names += [name for name in published_files(config).values() if name]
    names += [name for r, _, _ in good for name in companions(r)]
    steps = None
    if config.balance and breakdowns:
        steps = Breakdowns.load(inside(folder, config.balance.file, path, "balance.file"))
        names.append(config.balance.file)
    unreadable = [
        Finding("unreadable", "REJECT", where_is(r), r.reason, r.source_file, r.source_row)
        for r, _, _ in found
        if isinstance(r, UnreadableRun)
    ]
    missed = [Finding("not_covered", "REJECT", name, reason, name) for name, reason in uncovered(folder, config)]
    campaign = Campaign(
        folder=folder,
        config=config,
        runs=run_table([p.row for p in placed]),
        breakdowns=steps,
        inputs=tuple(
            InputFile(campaign=config.name, path=name, sha256=digest(folder / name))
            for name in sorted(set(names))
            if (folder / name).is_file()
        ),
        facts={(r.source_file, r.source_row): r.facts for r, _, _ in good},
        learnt={(r.source_file, r.source_row): p.learnt for (r, _, _), p in zip(good, placed, strict=True)},
        published=read_published(folder, config, path),
        findings=(*unreadable, *missed),
    )
    _check_sweep(campaign, path)
    return _check_system(campaign, folder / config.balance.file if config.balance else folder)


def _check_sweep(campaign: Campaign, toml: Path) -> None:
    """The range of concurrencies that the campaign claims, against its runs."""
    seen = campaign.runs["concurrency"].dropna()
    if campaign.config.sweep and len(seen) and (int(seen.min()), int(seen.max())) != campaign.config.sweep:
        raise ContradictionError(
            f"is not that of the runs, {int(seen.min())} to {int(seen.max())}", file=toml, field="sweep",
            value=list(campaign.config.sweep), remedy="correct it, or add the runs that are missing",
        )  # fmt: skip


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


def describe_run(row: Mapping[str, Any]) -> str:
    """One run in words, for findings and messages."""
    c = row.get("concurrency")
    at = "" if c is None or pd.isna(c) else f" C={int(c)}"
    return f"{row['model']} {row['backend']} TP{int(row['tp'])}/PP{int(row['pp'])}{at}"
