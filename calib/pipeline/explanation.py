"""The stage picture of one configuration: where the time of a step goes, and what that does to throughput and latency."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from calib.errors import BreakdownError
from calib.pipeline.breakdown import BreakdownProvider, Breakdowns, Provider, Step, StepRequest, StepStatus
from calib.pipeline.gpu import NEVER_MEASURED
from calib.pipeline.providers.roofline import RooflineProvider
from calib.pipeline.steady_state import PipelineSteadyState
from calib.pipeline.workload import balance_factor, steady_state_of


@dataclass(frozen=True)
class Explanation:
    """One configuration at work.

    Attributes
    ----------
    step, source
        The decode step and where its latencies come from.
    state
        The pipe of that step at the concurrency asked for.
    mixed_balance
        Balance factor [1] of the workload's mixed steps; None where the source has none.
    """

    step: Step
    source: Provider
    state: PipelineSteadyState
    mixed_balance: float | None
    partition: str

    def describe(self) -> str:
        """The picture as text."""
        s, source = self.step, self.source
        label = {"assumed": ", concurrency assumed", "derived": ", derived", NEVER_MEASURED: f", {NEVER_MEASURED}"}
        lines = [
            f"{s.model} on {s.backend} / {source.system}, TP{s.tp}/PP{s.pp}, C={self.state.concurrency}, microbatch "
            f"{s.microbatch or 'not stated'}, ISL {s.isl}, OSL {s.osl}",
            f"decode step from {source.name} {source.version} ({source.note}){label.get(s.status, '')}; layers by the rule "
            f"'{self.partition}'",
            "",
            self.state.describe(),
        ]
        if self.mixed_balance is not None:
            lines.append(f"balance of the workload's mixed prefill and decode steps {self.mixed_balance:.4f}")
        return "\n".join(lines)


def explain_stages(
    model: str,
    *,
    system: str,
    backend: str,
    tp: int,
    pp: int,
    concurrency: int,
    isl: int,
    osl: int,
    partition: str = "even",
    sources: Iterable[Breakdowns] = (),
    provider: BreakdownProvider | None = None,
    config: str | Path | None = None,
) -> Explanation:
    """Explain one configuration from the first of ``sources`` that has it, else from ``provider``, else by the roofline.

    Parameters
    ----------
    model, system, backend
        Names as in the breakdowns.
    tp, pp, concurrency, isl, osl
        Degrees, requests and tokens.
    config
        Folder with the model's Hugging Face ``config.json``, where the roofline needs one.

    Raises
    ------
    BreakdownError
        Nothing knows the configuration.
    """
    for degree, value in (("tp", tp), ("pp", pp), ("concurrency", concurrency), ("isl", isl), ("osl", osl)):
        if value < 1:
            raise BreakdownError("must be at least 1", field=degree, value=value)
    for found in sources:
        if found.provider.system == system:
            step = found.find(model, backend, tp=tp, pp=pp, isl=isl, osl=osl, concurrency=concurrency)
            if step is not None:
                return _explanation(found, step, partition, concurrency)
    provider = provider or RooflineProvider(system)
    made = _ask(provider, model, system, backend, (tp, pp, concurrency, isl, osl), config)
    return _explanation(made, made.steps[0], partition, concurrency)


def _ask(
    provider: BreakdownProvider,
    model: str,
    system: str,
    backend: str,
    numbers: tuple[int, int, int, int, int],
    config: str | Path | None,
) -> Breakdowns:
    tp, pp, concurrency, isl, osl = numbers
    status: StepStatus = "computed"
    steps = [
        provider.step(
            StepRequest(
                model=model, backend=backend, system=system, tp=tp, pp=pp, concurrency=concurrency, isl=isl, osl=osl,
                status=status, config=None if config is None else str(config), kind=kind,
            )
        )
        for kind in ("decode", "mixed")
    ]  # fmt: skip
    return Breakdowns(format="calib-breakdowns", format_version=1, provider=provider.provider, steps=tuple(steps))


def _explanation(breakdowns: Breakdowns, step: Step, partition: str, concurrency: int) -> Explanation:
    mixed = balance_factor(breakdowns, step, partition, "mixed") if step.concurrency else None
    return Explanation(step, breakdowns.provider, steady_state_of(step, partition, concurrency), mixed, partition)
