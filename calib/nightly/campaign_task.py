"""One campaign from what was read of it to coefficients and report: the task that a worker does."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd

from calib.coefficients import FILE_NAME, CoefficientSet
from calib.errors import CalibError
from calib.files import PACKAGE, file_digest, sha256_bytes
from calib.judging import PER_MODEL, POINT
from calib.measure import RULES, Campaign, CampaignConfig, Finding, Runs, read_campaign, read_unit, records, screen
from calib.names import IN_SAMPLE
from calib.nightly.read_cache import decode
from calib.nightly.store.parts import read_cache
from calib.workflow import Options, Result, calibrate_campaign, report

# Whole packages, since a list of files forgets some; `tests/nightly/test_campaign_task.py` holds both against what is imported.
# The modules of calib's root are the part "". Reporting decides no coefficient, so a new figure restarts no baseline.
READING = ("", "measure")
RULING = (
    *READING, "pipeline", "coefficients", "fitting", "judging", "integrations", "nightly/campaign_task.py",
)  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """What a campaign came to; small enough to travel between processes.

    ``series`` and ``points`` are rows of the night's record. ``failure`` says why nothing was read, or why nothing could
    be fitted although something was read.
    """

    name: str = ""
    runs: pd.DataFrame | None = None
    findings: tuple[Finding, ...] = ()
    inputs: Mapping[str, str] = field(default_factory=dict)
    rules: str = ""
    revision: str = ""
    digest: str | None = None
    report: str | None = None
    series: tuple[dict[str, Any], ...] = ()
    points: tuple[dict[str, Any], ...] = ()
    failure: str | None = None


def code_files(parts: tuple[str, ...], package: Path = Path(PACKAGE)) -> list[Path]:
    """The modules of some packages of calib, or single ones, sorted; those of its root for an empty name."""
    files: set[Path] = set()
    for part in parts:
        path = package / part
        files |= {path} if path.suffix else set(path.glob("*.py") if not part else path.rglob("*.py"))
    return sorted(files)


@functools.cache
def code_digest(parts: tuple[str, ...], package: Path = Path(PACKAGE)) -> str:
    """SHA-256 of the source of some modules of calib: what they made before may be another thing now."""
    named = (f.relative_to(package).as_posix().encode() + b"\0" + f.read_bytes() for f in code_files(parts, package))
    return sha256_bytes(b"".join(named))


def rule_fingerprint(config: CampaignConfig, options: Options) -> str:
    """What decides how measurements become coefficients: code and limits of the rules, and the options of the fit."""
    limits = {r.name: (r.verdict, str(config.limits.get(r.name, r.limit))) for r in RULES}
    chosen = [options.matching or config.matching, options.form, options.error_floor, options.balance]
    chosen += [options.reference, options.pooling]
    return sha256_bytes(msgspec.json.encode([code_digest(RULING), limits, chosen], order="sorted"))


def data_revision(campaign: Campaign) -> str:
    """What the measurements are held against: the source and version of the latencies, and how layers are split."""
    balance = campaign.config.balance
    if balance is None or campaign.breakdowns is None:
        return ""
    provider = (
        campaign.breakdowns.provider
    )  # not the file: a campaign of other models has other steps of the same source
    said = [provider.name, provider.version, provider.system, provider.note, balance.partition]
    return sha256_bytes(msgspec.json.encode(said))


def calibrate_folder(
    folder: str, cache: str | None, options: Options, out: str | None, figures: bool = True
) -> Outcome:
    """Put a campaign together, screen and fit it, and write its report below ``out``; runs in a worker process.

    ``cache`` is the store's part with what its results held. Bad data end in `Outcome.failure`, a full disk in an error.

    Raises
    ------
    OutputError
        The report cannot be written.
    """
    units = read_cache(Path(cache)) if cache else {}
    root, digests = Path(folder), dict[str, str]()

    def read(paths: Sequence[Path], base: Path) -> Iterable[Runs]:
        for path in paths:
            found = units.get(path.relative_to(base).as_posix())
            if found is None:
                yield read_unit(path, base)
                continue
            runs, known = decode(found[1])
            digests.update(known)
            yield runs

    def digest(path: Path) -> str:
        return digests.get(path.relative_to(root).as_posix()) or file_digest(path)

    try:
        campaign = screen(read_campaign(root, read=read, digest=digest))
    except CalibError as error:
        return Outcome(failure=str(error))
    known = Outcome(
        name=campaign.name, runs=campaign.runs, findings=campaign.findings,
        inputs={i.path: i.sha256 for i in campaign.inputs}, rules=rule_fingerprint(campaign.config, options),
        revision=data_revision(campaign),
    )  # fmt: skip
    return _fit(campaign, known, options, out, figures)


def _fit(campaign: Campaign, known: Outcome, options: Options, out: str | None, figures: bool) -> Outcome:
    try:
        result = calibrate_campaign(campaign, options)
    except CalibError as error:
        return Outcome(**{**vars(known), "failure": str(error)})
    written = report(result, out, figures=figures) if out else None
    made = {
        "findings": result.findings,
        "digest": result.coefficients.digest,
        "report": written.folder.name if written else None,
        "series": tuple(_series(result)),
        "points": tuple(_points(result)),
    }
    return Outcome(**{**vars(known), **made})


def _series(result: Result) -> Iterable[dict[str, Any]]:
    """Each parameter of each series with its stated error; the estimate's own is scaled by the scatter of a few points."""
    for s in result.fit.series:
        errors = np.sqrt(np.diag(s.curve.stated_covariance))
        for i, parameter in enumerate(s.form.parameters):
            yield {
                **s.key, "parameter": parameter, "value": float(s.curve.values[i]), "stated_stderr": float(errors[i]),
                "chi_square": float(s.curve.chi_square), "dof": s.curve.dof, "n": s.curve.n, "verdict": s.verdict,
            }  # fmt: skip


def _points(result: Result) -> Iterable[dict[str, Any]]:
    """Measured and predicted efficiency [1] of each point, with what another coefficient set needs to predict it."""
    mine = result.accuracy.points
    shown = mine[(mine["approach"] == PER_MODEL) & (mine["scheme"] == IN_SAMPLE)]
    predicted = shown["predicted"].tolist()
    for row, value in zip(records(result.decomposition.table), predicted, strict=True):
        own = {k: _plain(row[k]) for k in POINT}
        yield {
            **own, "measured": _plain(row["efficiency"]), "predicted": _plain(value), "rel_error": _plain(row["rel_error"]),
            "baseline_rel_error": _plain(row["baseline_rel_error"]), "k_model": _plain(row["k_model"]),
            "explained": _plain(row["explained"]),
        }  # fmt: skip


def _plain(value: Any) -> Any:
    if value is None or value is pd.NA or value != value:
        return None
    return value.item() if isinstance(value, np.generic) else value


def load_candidate(out: Path, name: str) -> CoefficientSet:
    """The coefficient file of a report folder."""
    return CoefficientSet.load(out / name / FILE_NAME)
