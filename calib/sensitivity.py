"""How much ``s`` hangs on choices that the data do not make: the same campaign fitted under each of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from calib.campaign import Campaign
from calib.coefficients import BalanceKind, Matching, Reference
from calib.efficiency import decompose
from calib.errors import CalibError
from calib.fitting import fit


@dataclass(frozen=True)
class Choice:
    """One way to fit, in words and in options; the first of `CHOICES` is the published one."""

    label: str
    balance: BalanceKind = "decode"
    matching: Matching | None = None
    error_floor: float = 0.02
    reference: Reference = "baseline"
    end_effect: bool = False


CHOICES = (
    Choice("as published"),
    Choice("balance of mixed prefill and decode steps", balance="mixed"),
    Choice("balance 1", balance="none"),
    Choice("peak matching", matching="peak"),
    Choice("matched concurrency", matching="matched"),
    Choice("end effect corrected (Little's law)", end_effect=True),
    Choice("reference model", reference="model"),
    Choice("error floor 1 %", error_floor=0.01),
    Choice("error floor 3 %", error_floor=0.03),
)


def sensitivity(campaign: Campaign, *, form: str = "log2") -> list[dict[str, Any]]:
    """One row a choice and series: ``s``, its standard error [1] and the verdict; or the reason why it cannot be made."""
    rows: list[dict[str, Any]] = []
    for choice in CHOICES:
        if choice.matching == campaign.config.matching:
            continue  # that is how it is published
        try:
            decomposition = decompose(
                campaign, matching=choice.matching, balance=choice.balance, error_floor=choice.error_floor,
                reference=choice.reference, end_effect=choice.end_effect,
            )  # fmt: skip
            series = fit(decomposition, form=form).series
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
                    "s": e.values[0],
                    "stderr": e.stderr[0] if e.stderr else None,
                    "verdict": s.verdict,
                    "note": s.reasons[0] if s.reasons else "",
                }
            )
    return rows
