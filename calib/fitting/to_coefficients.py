"""From a fit to the coefficient file's content."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import msgspec
import pandas as pd

from calib._version import __version__
from calib.coefficients import (
    BalanceFactor,
    BalanceSource,
    Coefficient,
    CoefficientSet,
    ContestRow,
    Created,
    Domain,
    Span,
    VersionRange,
)
from calib.errors import NothingToFitError
from calib.files import now_utc, user_name
from calib.fitting.results import FitResult, SeriesFit
from calib.measure import records
from calib.pipeline import Step, UnknownOpWarning, balance_factor, steady_state_of

DIGITS = 10  # of a published number


def to_coefficient_set(fit: FitResult, contest: Sequence[ContestRow] = ()) -> CoefficientSet:
    """The sealed coefficient set of a fit: estimates, verdicts, domains, balance factors and where they come from.

    ``contest`` is how the forms predict what they have not seen (`calib.judging.contest`), to be published with them.

    Raises
    ------
    NothingToFitError
        The campaign has no breakdowns, so that no residual could be formed.
    CoefficientFileError
        A number is not finite.
    """
    campaign = fit.decomposition.campaign
    if campaign.breakdowns is None or campaign.config.balance is None:
        raise NothingToFitError(f"campaign '{campaign.name}' has no per-op breakdowns", remedy="run `calib breakdown`")
    provider, model = campaign.breakdowns.provider, fit.decomposition.reference == "model"
    content = CoefficientSet(
        format="calib-coefficients",
        format_version=1,
        digest="",
        created=Created(at=now_utc(), by=user_name()),
        calib_version=__version__,
        reference=fit.decomposition.reference,
        quantity="output_tokens_per_s",
        matching=fit.decomposition.matching,
        form=fit.form.name,
        formula=f"balance_factor * {'fill_factor * ' if model else ''}({fit.form.formula})",
        fill_rule="occupancy" if model else "none",
        error_floor=fit.decomposition.error_floor,
        balance_source=BalanceSource(
            name=provider.name,
            version=provider.version,
            system=provider.system,
            note=provider.note,
            step=fit.decomposition.balance,
            partition=campaign.config.balance.partition,
        ),
        balance_factors=_balance_factors(fit),
        coefficients=tuple(_coefficient(s) for s in (*fit.series, *fit.pools)),
        pooling=fit.pooling,
        contest=tuple(contest),
        fallback=("model", "backend", "refuse"),
        inputs=campaign.inputs,
        supersedes=None,
    )
    return rounded(content).sealed()


def rounded(content: CoefficientSet) -> CoefficientSet:
    """The same set with every number at `DIGITS` significant digits.

    The last bits of a least-squares fit depend on the processor and the linear-algebra library; the digest must not.
    """
    return msgspec.convert(_round(msgspec.to_builtins(content)), CoefficientSet)


def _round(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        return {k: _round(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_round(v) for v in value]
    return value


def _balance_factors(fit: FitResult) -> tuple[BalanceFactor, ...]:
    campaign = fit.decomposition.campaign
    assert campaign.breakdowns is not None
    assert campaign.config.balance is not None
    breakdowns, kind = campaign.breakdowns, fit.decomposition.balance
    used = {
        (*(r[k] for k in ("model", "backend", "tp", "pp", "isl", "osl")), None if pd.isna(c := r["concurrency"]) else c)
        for r in records(fit.decomposition.table)
    }
    # A step that holds at any concurrency, or an assumed one, was found under the campaign's own (or no) concurrency.
    loose = {key[:-1] for key in used}
    factors = []
    steps = [s for s in breakdowns.steps if s.kind == "decode"]
    for step in sorted(steps, key=lambda s: (*s.key[:-1], s.concurrency or 0)):
        key = step.key[1:]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnknownOpWarning)  # a finding of the decomposition
            factor = balance_factor(breakdowns, step, campaign.config.balance.partition, kind)
        if factor is None:
            continue
        factors.append(
            BalanceFactor(
                system=breakdowns.provider.system,
                backend=step.backend,
                model=step.model,
                tp=step.tp,
                pp=step.pp,
                isl=step.isl,
                osl=step.osl,
                concurrency=step.concurrency,
                factor=factor,
                fill=_fill(fit, step),
                status=step.status,
                fitted=key in used or (key[:-1] in loose and (step.concurrency is None or (*key[:-1], None) in used)),
            )
        )
    return tuple(factors)


def _fill(fit: FitResult, step: Step) -> float | None:
    """The fill factor of a step, where the reference has one."""
    balance = fit.decomposition.campaign.config.balance
    if fit.decomposition.reference == "baseline" or balance is None:
        return None
    return steady_state_of(step, balance.partition).occupancy


def _coefficient(s: SeriesFit) -> Coefficient:
    key, domain = s.key, _domain(s.points)
    loads = (1.0,) if domain.concurrency is None else (domain.concurrency.low, domain.concurrency.high)
    limits = [s.form.positivity_limit_pp(s.estimate.values, c) for c in loads]
    return Coefficient(
        system=str(key["system"]),
        backend=str(key["backend"]),
        backend_versions=VersionRange(first=str(key["backend_version"]), last=str(key["backend_version"])),
        model=key["model"],
        precision=key["precision"],
        estimate=s.estimate,
        domain=domain,
        positivity_limit_pp=min((x for x in limits if x is not None), default=None),
        form_test=s.form_test,
        detectors=s.detectors,
        deviations=s.deviations,
        verdict=s.verdict,
        reasons=s.reasons,
        warnings=s.warnings,
        models=tuple(sorted({str(m) for m in s.points["model"]})),
    )


def _domain(points: pd.DataFrame) -> Domain:
    concurrency = points["concurrency"]
    seen = pd.concat([concurrency, points["baseline_concurrency"]]).dropna()
    levels = tuple(sorted({int(p) for p in points["pp"]}))
    return Domain(
        gpus=tuple(sorted({int(g) for g in points["gpus"]})),
        tp=tuple(sorted({int(t) for t in points["tp"]})),
        pp=Span(low=1.0, high=float(levels[-1])),
        pp_levels=levels,
        concurrency=None if concurrency.isna().any() else _span(seen),
        isl=_span(points["isl"]),
        osl=_span(points["osl"]),
    )


def _span(values: pd.Series) -> Span:
    return Span(low=float(values.min()), high=float(values.max()))
