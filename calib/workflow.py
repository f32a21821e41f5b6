"""The main job, step by step: the only module that composes the others."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from calib.campaign import Campaign, Finding, read_campaign
from calib.coefficients import FILE_NAME, CoefficientSet
from calib.contest import contest
from calib.drift import compare
from calib.efficiency import ERROR_FLOOR, Decomposition, decompose
from calib.errors import CalibError, CampaignError, NothingToFitError, OutputError, SetAsideError
from calib.fitting import FitResult, Pooling, fit
from calib.integrations.baseline import qualify_baseline
from calib.names import BalanceKind, Matching, Reference
from calib.provenance import PACKAGE, SHORT
from calib.publish import coefficient_set
from calib.quality import screen
from calib.registry import SHIPPED, Registry
from calib.reporting import ReportData, figure_files, render_html, render_json, render_markdown
from calib.sensitivity import physics, sensitivity
from calib.stages.breakdown import Breakdowns
from calib.step_requests import compute_breakdowns
from calib.validation import Accuracy, accuracy
from calib.views import at_every_concurrency, by_the_model

DEFAULT_CAMPAIGN = "h200-vllm-pp"
REPORT_FILES = ("report.html", "report.md", "report.json")


@dataclass(frozen=True)
class Options:
    """What a run can be asked to do differently."""

    matching: Matching | None = None
    form: str = "log2"
    error_floor: float = ERROR_FLOOR
    balance: BalanceKind = "decode"
    strict: bool = False
    reference: Reference = "baseline"
    pooling: Pooling = "none"


@dataclass(frozen=True, repr=False)
class Result:
    """Everything the main job found, before anything is written."""

    campaign: Campaign
    decomposition: Decomposition
    fit: FitResult
    coefficients: CoefficientSet
    accuracy: Accuracy

    def __repr__(self) -> str:
        found = ", ".join(f"{s.key['model']} {s.verdict}" for s in self.fit.series)
        return f"<Result of {self.campaign.name}: {found}; coefficients {self.coefficients.digest[:SHORT]}>"

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Everything that was set aside or warned about, in the order of the job."""
        return self.campaign.findings + self.decomposition.findings

    @functools.cached_property
    def report_data(self) -> ReportData:
        """What the report shows."""
        return ReportData(
            campaign=self.campaign,
            decomposition=self.decomposition,
            fit=self.fit,
            coefficients=self.coefficients,
            accuracy=self.accuracy,
            findings=self.findings,
            sensitivity=tuple(sensitivity(self.campaign, form=self.fit.form.name)),
            physics=tuple(physics(self.campaign)),
            everywhere=at_every_concurrency(self.decomposition) if self.decomposition.matching == "peak" else None,
            changes=_since_release(self.coefficients),
            model=self.fit if self.decomposition.reference == "model" else by_the_model(self.decomposition),
        )


def _since_release(coefficients: CoefficientSet) -> str:
    """Against the newest released set of the same campaign, reference and matching, in one sentence; empty without one."""
    registry, campaigns = Registry.open(SHIPPED), {i.campaign for i in coefficients.inputs}
    for entry in registry.current:
        old = registry.load(entry)
        same = (old.reference, old.matching) == (coefficients.reference, coefficients.matching)
        if same and campaigns & {i.campaign for i in old.inputs}:
            if old.digest == coefficients.digest:
                return f"these are the released coefficients, {old.digest[:SHORT]}."
            return f"{compare(old, coefficients).describe()}."
    return ""


@dataclass(frozen=True)
class Written:
    """Where the results are. ``new`` is False where the same results were there already."""

    folder: Path
    files: tuple[Path, ...]
    new: bool


def shipped_campaigns() -> dict[str, Path]:
    """The campaigns that come with calib, by name: from the wheel, or from the repository it is installed from."""
    package = Path(PACKAGE)
    for root in (package / "_measurements", package.parent / "measurements"):
        if root.is_dir():
            return {p.name: p for p in sorted(root.iterdir()) if (p / "campaign.toml").is_file()}
    return {}


def find_campaign(name_or_folder: str | Path) -> Path:
    """A folder that exists, else the shipped campaign of that name.

    Raises
    ------
    CampaignError
        Neither is there.
    """
    name, shipped = str(name_or_folder), shipped_campaigns()
    with contextlib.suppress(OSError, ValueError):  # a name too long, or with a NUL, is no folder
        if name and Path(name).is_dir():
            return Path(name)
    if name in shipped:
        return shipped[name]
    raise CampaignError(
        "is neither a folder nor a shipped campaign",
        file=name or "''",
        remedy=f"give a folder, or one of {', '.join(shipped)}",
    )


def load_campaign(
    name_or_folder: str | Path = DEFAULT_CAMPAIGN, *, breakdowns: bool = True, strict: bool = False
) -> Campaign:
    """Read and screen a campaign: a folder with a ``campaign.toml``, or the name of a shipped one.

    Without its breakdown file where ``breakdowns`` is False, as long as there is none. ``strict`` turns warnings into
    rejections.

    Raises
    ------
    CampaignError, ContradictionError, UnknownTopologyError, BreakdownError
        See `calib.campaign.read_campaign`.
    """
    return screen(read_campaign(find_campaign(name_or_folder), breakdowns=breakdowns), strict=strict)


def calibrate(name_or_folder: str | Path = DEFAULT_CAMPAIGN, options: Options | None = None) -> Result:
    """Campaign to coefficients and their accuracy, in memory.

    Raises
    ------
    CalibError
        See the steps; `SetAsideError` under ``strict`` where anything is set aside, `NothingToFitError` where nothing
        usable remains.
    """
    options = options or Options()
    return calibrate_campaign(load_campaign(name_or_folder, strict=options.strict), options)


def calibrate_campaign(campaign: Campaign, options: Options) -> Result:
    """`calibrate` for a campaign that is read and screened already.

    Raises
    ------
    CalibError
        As `calibrate`.
    """
    decomposition = decompose(
        campaign, matching=options.matching, error_floor=options.error_floor, balance=options.balance,
        reference=options.reference,
    )  # fmt: skip
    set_aside = [f for f in (*campaign.findings, *decomposition.findings) if f.verdict == "REJECT"]
    check_strict(set_aside, options.strict)
    try:
        result = fit(
            decomposition, form=options.form, pooling=options.pooling,
            extra_warnings=_baseline_warnings(campaign, options.reference),
        )  # fmt: skip
    except NothingToFitError as error:
        raise _with_first_reason(error, set_aside) from None
    coefficients = publish_fit(result)
    return Result(campaign, decomposition, result, coefficients, accuracy(result, coefficients))


def publish_fit(result: FitResult) -> CoefficientSet:
    """The coefficient file of a fit with the contest of all forms, as `calib run` writes it and a release needs it."""
    return coefficient_set(result, contest(result.decomposition))


def _baseline_warnings(campaign: Campaign, reference: Reference) -> dict[tuple[str, str], str]:
    """What is wrong with the model's own pp = 1 prediction, on which ``reference = "model"`` rests."""
    if reference == "baseline":
        return {}
    try:
        return qualify_baseline(campaign).warnings()
    except NothingToFitError:  # no pp = 1 throughput: the decomposition has said so of every point
        return {}


def check_strict(set_aside: Iterable[Finding], strict: bool) -> None:
    """Raise for the first thing that was set aside, where ``strict`` is asked for.

    Raises
    ------
    SetAsideError
        Something was set aside.
    """
    rejected = [f for f in set_aside if f.verdict == "REJECT"]
    if strict and rejected:
        first = rejected[0]
        more = f" (and {len(rejected) - 1} more)" if len(rejected) > 1 else ""
        raise SetAsideError(
            f"{first.subject} would be set aside by rule '{first.rule}': {first.reason}{more}",
            file=first.source_file or None,
            remedy="correct or remove it, or run without --strict",
        )


def run(
    name_or_folder: str | Path = DEFAULT_CAMPAIGN,
    *,
    out: str | Path = "reports",
    options: Options | None = None,
) -> tuple[Result, Written]:
    """The main job: calibrate a campaign and write coefficients and report below ``out``.

    Raises
    ------
    CalibError
        As `calibrate` and `report`.
    """
    result = calibrate(name_or_folder, options)
    return result, report(result, out)


def report(result: Result, out: str | Path = "reports") -> Written:
    """Write coefficient file and report into ``out/<date>-<digest>/``, whole or not at all.

    Results of the same digest that are there already are left as they are, and nothing is written.

    Raises
    ------
    OutputError
        ``out`` cannot be written; nothing that existed was changed.
    """
    out, coefficients = Path(out), result.coefficients
    if found := _already_there(out, coefficients):
        return found
    folder = out / f"{coefficients.created.at[:10]}-{coefficients.digest[:SHORT]}"
    _require_room(folder)
    data = result.report_data
    contents = {
        FILE_NAME: coefficients.to_json(),
        "report.html": render_html(data).encode("utf-8", "backslashreplace"),
        "report.md": render_markdown(data).encode("utf-8", "backslashreplace"),
        "report.json": render_json(data),
        **figure_files(data),
    }
    if write_folder(folder, contents):
        return Written(folder, tuple(folder / n for n in contents), new=True)
    if found := _already_there(out, coefficients):  # another job was faster, with the same results
        return found
    raise _taken(folder)


def _require_room(folder: Path) -> None:
    """Say at once, and not after seconds of drawing, where ``folder`` cannot be made."""
    try:
        if folder.exists():
            raise _taken(folder)
        parent = next(p for p in folder.absolute().parents if p.exists())
    except OSError as error:
        raise _unwritable(folder, error) from None
    if not parent.is_dir():
        raise _unwritable(folder, NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)))
    if not os.access(parent, os.W_OK):
        raise _unwritable(folder, PermissionError(errno.EACCES, os.strerror(errno.EACCES)))


def _taken(folder: Path) -> OutputError:
    return OutputError(
        "holds other or incomplete results and is not overwritten",
        file=folder,
        remedy="move it away, or choose another folder with --out",
    )


def _unwritable(folder: Path, error: OSError) -> OutputError:
    return OutputError(
        f"cannot be written ({error.strerror or error}), and nothing was changed",
        file=folder,
        remedy="choose a writable folder with --out, or free some space",
    )


def _already_there(out: Path, coefficients: CoefficientSet) -> Written | None:
    """The folder below ``out`` that holds these very results, whole."""
    names = (FILE_NAME, *REPORT_FILES)
    try:
        folders = sorted(out.glob(f"????-??-??-{coefficients.digest[:SHORT]}"))
    except OSError:  # a name too long, say: writing will say so
        return None
    for folder in folders:
        whole = all((folder / n).is_file() and (folder / n).stat().st_size for n in names)
        if whole and _same(folder / FILE_NAME, coefficients):
            return Written(folder, tuple(folder / n for n in names), new=False)
    return None


def _same(path: Path, coefficients: CoefficientSet) -> bool:
    try:
        return CoefficientSet.load(path).digest == coefficients.digest
    except CalibError:  # altered: it is not what was written
        return False


def shipped_breakdowns() -> list[Breakdowns]:
    """The breakdowns of the shipped campaigns, for configurations that need no computing."""
    loaded = (read_campaign(folder).breakdowns for folder in shipped_campaigns().values())
    return [b for b in loaded if b is not None]


def write_folder(folder: Path, contents: Mapping[str, bytes]) -> bool:
    """Create ``folder`` with ``contents`` in one step; False where the name is taken, with nothing changed."""
    temporary: Path | None = None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        temporary.chmod(0o755)
        for name, data in contents.items():
            (temporary / name).parent.mkdir(exist_ok=True)
            (temporary / name).write_bytes(data)
        if folder.exists():
            return False
        try:
            temporary.rename(folder)
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):  # another job was faster
                return False
            raise
    except OSError as error:
        raise _unwritable(folder, error) from None
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)
    return True


def remove_torn(parent: Path) -> None:
    """Delete what a `write_folder` that was killed has left in ``parent``; only where nobody else writes there."""
    with contextlib.suppress(OSError):
        for left in parent.iterdir():
            if _TORN.fullmatch(left.name):
                shutil.rmtree(left, ignore_errors=True)


_TORN = re.compile(r"\.\d{4,}-.*-[0-9a-f]{12}\.[a-z0-9_]{8}")

_REMEDIES = {
    "no_balance_factor": "compute the steps with `calib breakdown CAMPAIGN --out CAMPAIGN/breakdowns.json` and name that file "
    "under [balance] in campaign.toml",
    "no_baseline": "add the TP=G/PP=1 run of the series; `calib decompose` lists every reason",
}


def _with_first_reason(error: NothingToFitError, set_aside: list[Finding]) -> CalibError:
    if not set_aside:
        return error
    first = set_aside[0]
    return NothingToFitError(
        f"{error.problem}: {len(set_aside)} set aside, the first is {first.subject} by rule '{first.rule}' "
        f"({first.reason})",
        file=first.source_file or None,
        remedy=_REMEDIES.get(first.rule, "correct the data; `calib decompose` lists every reason"),
    )


__all__ = [
    "Options", "Result", "Written", "calibrate", "calibrate_campaign", "compute_breakdowns", "find_campaign", "load_campaign",
    "report", "run", "shipped_campaigns", "write_folder",
]  # fmt: skip
