"""The roofline against another source of latencies: how far the balance factors are apart, and which op makes it so."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass

from calib.errors import BreakdownError
from calib.pipeline.breakdown import Breakdowns, Step, StepRequest
from calib.pipeline.layout import PipelineLayout, UnknownOpWarning
from calib.pipeline.providers.roofline import RooflineProvider
from calib.pipeline.workload import steady_state_of

TELLING = 0.05  # difference of balance factors [1] from which it is explained


@dataclass(frozen=True)
class RooflineCheck:
    """One configuration: both balance factors [1], roofline minus source, and the reason where it is large."""

    step: Step
    source: float
    roofline: float
    reason: str

    @property
    def difference(self) -> float:
        """Roofline minus source [1]."""
        return self.roofline - self.source


def compare_with_roofline(breakdowns: Breakdowns, steps: Iterable[Step], partition: str) -> list[RooflineCheck]:
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
            a, b = (steady_state_of(s, partition).balance_factor for s in (step, other))
            reason = _reason(step, other) if abs(b - a) > TELLING else ""
        found.append(RooflineCheck(step, a, b, reason))
    return found


def _reason(step: Step, other: Step) -> str:
    """What sets the balance, on both sides: the layers, the head, and the op whose time differs most."""
    names = sorted({*step.ops_ms, *other.ops_ms})
    worst = max(names, key=lambda n: abs(step.ops_ms.get(n, 0.0) - other.ops_ms.get(n, 0.0)))
    ours, theirs = (PipelineLayout.from_ops(s.ops_ms, s.num_layers, s.pp) for s in (step, other))
    return (
        f"source against roofline: the layers take {ours.per_layer_ms * step.num_layers:.2f} and "
        f"{theirs.per_layer_ms * step.num_layers:.2f} ms, the head {ours.last_ms:.2f} and {theirs.last_ms:.2f} ms; most of it is "
        f"{worst} with {step.ops_ms.get(worst, 0.0):.2f} and {other.ops_ms.get(worst, 0.0):.2f} ms"
    )
