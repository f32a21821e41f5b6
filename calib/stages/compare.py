"""The roofline against another source of latencies: how far the balance factors are apart, and which op makes it so."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass

from calib.errors import BreakdownError
from calib.stages.breakdown import Breakdowns, Step, StepRequest
from calib.stages.layout import UnknownOpWarning
from calib.stages.mix import steady_state
from calib.stages.roofline import RooflineProvider

TELLING = 0.05  # difference of balance factors [1] from which it is explained


@dataclass(frozen=True)
class Comparison:
    """One configuration: both balance factors [1], roofline minus source, and the reason where it is large."""

    step: Step
    source: float
    roofline: float
    reason: str

    @property
    def difference(self) -> float:
        """Roofline minus source [1]."""
        return self.roofline - self.source


def compare_with_roofline(breakdowns: Breakdowns, steps: Iterable[Step], partition: str) -> list[Comparison]:
    """The comparison of every step the roofline knows; none where it has no description of the GPU."""
    try:
        provider = RooflineProvider(breakdowns.provider.system)
    except BreakdownError:
        return []
    found = []
    for step in steps:
        request = StepRequest(
            model=step.model,
            backend=step.backend,
            system=breakdowns.provider.system,
            tp=step.tp,
            pp=step.pp,
            concurrency=step.concurrency or step.pp,
            isl=step.isl,
            osl=step.osl,
            status=step.status,
        )
        try:
            other = provider.step(request)
        except BreakdownError:
            continue  # a model whose configuration does not ship with calib
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnknownOpWarning)  # a finding of the decomposition
            ours, theirs = steady_state(step, partition), steady_state(other, partition)
        a, b = ours.balance_factor, theirs.balance_factor
        found.append(Comparison(step, a, b, _reason(step, other) if abs(b - a) > TELLING else ""))
    return found


def _reason(step: Step, other: Step) -> str:
    """The op whose share of the step differs most, since shares alone set the balance."""
    total, theirs = sum(step.ops_ms.values()), sum(other.ops_ms.values())
    names = sorted({*step.ops_ms, *other.ops_ms})
    gaps = {n: step.ops_ms.get(n, 0.0) / total - other.ops_ms.get(n, 0.0) / theirs for n in names}
    worst = max(names, key=lambda n: abs(gaps[n]))
    return (
        f"{worst} is {step.ops_ms.get(worst, 0.0):.2f} of {total:.1f} ms in the source and "
        f"{other.ops_ms.get(worst, 0.0):.2f} of {theirs:.1f} ms by the roofline"
    )
