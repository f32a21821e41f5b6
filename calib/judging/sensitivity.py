"""How much ``s`` hangs on choices that the data do not make: the same campaign fitted under each of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from calib.coefficients import LOG2_CONCURRENCY
from calib.errors import CalibError
from calib.fitting import decompose, fit
from calib.judging.left_out import ONE_CONFIGURATION, ONE_MODEL, Data, Way, left_out, mape, thinned
from calib.measure import Campaign
from calib.names import BACKEND_KEY, IN_SAMPLE, BalanceKind, Matching, Reference


@dataclass(frozen=True)
class Variant:
    """One way to fit, in words and in options; the first of `CHOICES` is the published one."""

    label: str
    balance: BalanceKind = "decode"
    matching: Matching | None = None
    error_floor: float = 0.02
    reference: Reference = "baseline"
    end_effect: bool = False


CHOICES = (
    Variant("as published"),
    Variant("balance of mixed prefill and decode steps", balance="mixed"),
    Variant("balance 1", balance="none"),
    Variant("peak matching", matching="peak"),
    Variant("matched concurrency", matching="matched"),
    Variant("end effect corrected (Little's law)", end_effect=True),
    Variant("reference model", reference="model"),
    Variant("error floor 1 %", error_floor=0.01),
    Variant("error floor 3 %", error_floor=0.03),
)


def vary_choices(campaign: Campaign, *, form: str = "log2") -> list[dict[str, Any]]:
    """One row a choice and series: ``s``, its standard error [1] and the verdict; or the reason why it cannot be made."""
    rows: list[dict[str, Any]] = []
    campaign = _thinned(campaign)
    for choice in CHOICES:
        if choice.matching == campaign.config.matching:
            continue  # that is how it is published
        try:
            decomposition = decompose(
                campaign, matching=choice.matching, balance=choice.balance, error_floor=choice.error_floor,
                reference=choice.reference, end_effect=choice.end_effect,
            )  # fmt: skip
            series = fit(decomposition, form=form, drift=False).series
        except CalibError as error:
            rows.append({"choice": choice.label, "backend": "", "model": "", "verdict": "", "note": error.problem})
            continue
        for s in series:
            e = s.estimate
            rows.append(
                {
                    "choice": choice.label,
                    "backend": s.key["backend"],
                    "model": s.key["model"],
                    "points": e.n,
                    "parameter": e.parameters[0],
                    "s": e.values[0],
                    "stderr": e.stderr[0] if e.stderr else None,
                    "verdict": s.verdict,
                    "note": s.reasons[0] if s.reasons else "",
                }
            )
    return rows


# Views of the physics whose left-out error is worth knowing; each is what `decompose` can be asked for.
PHYSICS = (
    Variant("balance of decode steps"),
    Variant("balance of mixed prefill and decode steps", balance="mixed"),
    Variant("balance 1", balance="none"),
    Variant("end effect corrected (Little's law), decode steps", end_effect=True),
    Variant("end effect corrected (Little's law), balance 1", end_effect=True, balance="none"),
    Variant("the model's own K and fill, decode steps", reference="model"),
)


def vary_physics(campaign: Campaign) -> list[dict[str, Any]]:
    """Left-out error [%] at matched concurrency under each view, by a form fixed beforehand; empty where C is not stated."""
    rows: list[dict[str, Any]] = []
    campaign = _thinned(campaign)
    for choice in PHYSICS:
        try:
            table = decompose(
                campaign, matching="matched", balance=choice.balance, reference=choice.reference,
                end_effect=choice.end_effect,
            ).table  # fmt: skip
        except CalibError:
            continue
        if table.empty or table["concurrency"].isna().any():
            continue
        for key, group in table.groupby(list(BACKEND_KEY), dropna=False, sort=False):
            if group.groupby("model")["concurrency"].nunique().min() < 3 or group["model"].nunique() < 3:
                continue
            data, way = Data.of(group), Way(LOG2_CONCURRENCY.name, "partial", choice.balance)
            found = {name: left_out(way.predict, data, scheme) for name, scheme in _SHOWN}
            errors = {n: mape(predicted=p, measured=data.eta) for n, p in found.items()}
            off = np.abs(found["model"] / data.eta - 1)
            i = int(np.argmax(off))
            worst = f"{data.label[i]}: {100 * (found['model'][i] / data.eta[i] - 1):+.0f} %"
            rows.append({"choice": choice.label, "backend": key[1], "points": len(group), **errors, "worst": worst})
    return rows


_SHOWN = (("in_sample", IN_SAMPLE), ("configuration", ONE_CONFIGURATION), ("model", ONE_MODEL))


def _thinned(campaign: Campaign) -> Campaign:
    """The campaign with as many models a backend as a contest takes; the table is about choices, not about models."""
    kept = thinned(campaign.runs)
    return campaign if len(kept) == len(campaign.runs) else replace(campaign, runs=kept)
