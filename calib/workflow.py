"""The main job, step by step: the only module that composes the others."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from calib.coefficients import FILE_NAME, SHIPPED, CoefficientSet, Registry, compare
from calib.errors import CalibError, NothingToFitError, SetAsideError
from calib.files import SHORT
from calib.fitting import ERROR_FLOOR, Decomposition, FitResult, Pooling, decompose, fit, to_coefficient_set
from calib.integrations import qualify_baseline
from calib.judging import (
    Accuracy,
    contest_forms,
    judge_accuracy,
)
from calib.measure import DEFAULT_CAMPAIGN, Campaign, Finding, load_campaign
from calib.names import BalanceKind, Matching, Reference
from calib.reporting import (
    ReportData,
    figure_files,
    render_html,
    render_json,
    render_markdown,
    require_room,
    taken,
    write_folder,
)

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
            changes=_since_release(self.coefficients),
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
    coefficients = coefficient_set(result)
    return Result(campaign, decomposition, result, coefficients, judge_accuracy(result, coefficients))


def coefficient_set(result: FitResult) -> CoefficientSet:
    """The coefficient file of a fit with the contest of all forms, as `calib run` writes it and a release needs it."""
    return to_coefficient_set(result, contest_forms(result.decomposition))


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


def report(result: Result, out: str | Path = "reports", *, figures: bool = True) -> Written:
    """Write coefficient file and report into ``out/<date>-<digest>/``, whole or not at all; without figures in half the time.

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
    require_room(folder)
    data = result.report_data if figures else replace(result.report_data, figures=False)
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
    raise taken(folder)


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
