"""A campaign folder: ``campaign.toml`` says what result files do not know, and the two are compared.

Whatever a file states and ``campaign.toml`` states too must agree; what neither states is an error for everything that
identifies a run. An unknown pp is never taken for 1.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from calib.coefficients import InputFile
from calib.errors import BreakdownError, CampaignError, ContradictionError
from calib.files import file_digest, read_bytes
from calib.measure.campaign.config import CONFIG_NAME, CampaignConfig, parse_config
from calib.measure.campaign.folder import inside, read_all, uncovered
from calib.measure.campaign.published import published_files, read_published
from calib.measure.campaign.reading import ReadUnits, companions, read_units
from calib.measure.campaign.topology import identify, where_is
from calib.measure.findings import Finding
from calib.measure.readers.read_run import ReadRun, UnreadableRun
from calib.measure.run_table import make_run_table
from calib.notebook import LEFT, RIGHT, ROWS, decimal_text, html_block, html_table, range_text
from calib.pipeline import Breakdowns


@dataclass(frozen=True, repr=False)
class Campaign:
    """A campaign as read: its runs, its breakdowns, and everything that was noticed.

    Attributes
    ----------
    runs : DataFrame
        The run table (`calib.measure.run_table`), one row a run; ``verdict`` and ``rules`` come from screening.
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
        runs = self.runs
        counts = ", ".join(f"{n} {v}" for v, n in runs["verdict"].value_counts().items())
        aside = len(self.set_aside())
        steps = "with per-op latencies" if self.breakdowns else "without per-op latencies: no balance factors yet"
        groups = runs.groupby(["backend", "backend_version", "model"], sort=False)
        rows = []
        for (backend, version, model), group in itertools.islice(groups, ROWS):
            pairs = sorted(
                {(int(t), int(p)) for t, p in zip(group["tp"], group["pp"], strict=True)}, key=lambda x: (x[1], x[0])
            )
            best, ratio = group["output_tokens_per_s"].max(), group["efficiency"].max()
            rejected = int((group["verdict"] == "REJECT").sum())
            rows.append(
                (model, f"{backend} {version}", ", ".join(f"TP{t}/PP{p}" for t, p in pairs), range_text(group["concurrency"]),
                 len(group), rejected, decimal_text(best, 0) or decimal_text(ratio, 3))
            )  # fmt: skip
        rated = bool(runs["output_tokens_per_s"].notna().any())
        columns = {
            "model": LEFT, "backend": LEFT, "configurations": LEFT, "C [requests]": LEFT, "runs": RIGHT, "set aside": RIGHT,
            "highest throughput [tok/s]" if rated else "highest efficiency [1]": RIGHT,
        }  # fmt: skip
        rules = Counter(f"{f.rule} ({f.verdict})" for f in self.findings)
        said = ", ".join(f"{n} × {rule}" for rule, n in rules.most_common(6))
        return html_block(
            f"Campaign {self.name}", f"{self.config.title}. {len(runs)} runs ({counts}), {aside} set aside, {steps}.",
            html_table(columns, rows, groups.ngroups, "campaign.runs"), f"Findings: {said}." if said else "No findings.",
        )  # fmt: skip

    @property
    def name(self) -> str:
        """The campaign's name."""
        return self.config.name

    def set_aside(self) -> tuple[Finding, ...]:
        """The findings that took something out of the calibration."""
        return tuple(f for f in self.findings if f.verdict == "REJECT")


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
    placed = [identify(r, stated, label, config, path) for r, stated, label in good]
    steps = None
    if config.balance and breakdowns:
        steps = Breakdowns.load(inside(folder, config.balance.file, path, "balance.file"))
    names = _input_names(config, [r for r, _, _ in found], breakdowns)
    campaign = Campaign(
        folder=folder,
        config=config,
        runs=make_run_table([p.row for p in placed]),
        breakdowns=steps,
        inputs=tuple(
            InputFile(campaign=config.name, path=name, sha256=digest(folder / name))
            for name in names
            if (folder / name).is_file()
        ),
        facts={(r.source_file, r.source_row): r.facts for r, _, _ in good},
        learnt={(r.source_file, r.source_row): p.learnt for (r, _, _), p in zip(good, placed, strict=True)},
        published=read_published(folder, config, path),
        findings=_unread(folder, config, [r for r, _, _ in found]),
    )
    _check_sweep(campaign, path)
    return _check_system(campaign, folder / config.balance.file if config.balance else folder)


def _input_names(config: CampaignConfig, found: Iterable[ReadRun | UnreadableRun], breakdowns: bool) -> list[str]:
    """Everything that was read, good or not, sorted: a file that turned bad must not leave the digest as it was."""
    names = {CONFIG_NAME, *(t.file for t in config.tables)}
    names |= {name for name in published_files(config).values() if name}
    if config.balance and breakdowns:
        names.add(config.balance.file)
    for r in found:
        names |= {r.source_file, *(companions(r) if isinstance(r, ReadRun) else ())}
    return sorted(names)


def _unread(folder: Path, config: CampaignConfig, found: Iterable[ReadRun | UnreadableRun]) -> tuple[Finding, ...]:
    """What is in the folder and could not be read, or is covered by no entry."""
    unreadable = [
        Finding("unreadable", "REJECT", where_is(r), r.reason, r.source_file, r.source_row)
        for r in found
        if isinstance(r, UnreadableRun)
    ]
    missed = [Finding("not_covered", "REJECT", name, reason, name) for name, reason in uncovered(folder, config)]
    return (*unreadable, *missed)


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
