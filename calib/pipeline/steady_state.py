"""How a pipeline runs once it is full: the cycle sets throughput, the traversal sets latency.

Formulas (all times in ms; a hop is one stage-to-stage transfer)::

    cycle          = max_i(t_i + hop_i)               hop_i = hop, except 0 on the last stage, which sends nothing on
    traversal      = sum_i t_i + (pp - 1)*hop         what one microbatch waits
    step_total     = sum_i t_i + total link time      what an ideal model divides by pp
    balance_factor = min(1, (step_total/pp) / cycle)
    fill_factor    = min(1, M/pp)                     M = min(pp, C) microbatches in flight
    occupancy      = min(1, M*cycle / traversal)      asymptotic bound of a closed network

Every factor is exactly 1.0 at pp = 1. The published figures for Qwen3-32B on H20 (docs/PIPELINE_PARALLEL_MODELING.md of
ai-dynamo/aiconfigurator pull request 1459) are reproduced in the tests.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calib.errors import UsageError
from calib.pipeline.layout import PipelineLayout


def microbatch_size(concurrency: int, pp: int) -> int:
    """Requests in one microbatch at concurrency C: ``max(1, ceil(C/pp))``."""
    return max(1, -(-concurrency // pp))


@dataclass(frozen=True)
class PipelineSteadyState:
    """A layout at work with ``concurrency`` C requests in flight.

    ``overlap`` says that transfers hide behind compute: then no hop is charged to the cycle.
    """

    layout: PipelineLayout
    concurrency: int | None = None
    overlap: bool = False

    def __post_init__(self) -> None:
        if self.concurrency is not None and self.concurrency < 1:
            raise UsageError("must be at least 1", field="concurrency", value=self.concurrency)

    @property
    def pp(self) -> int:
        """Number of stages."""
        return self.layout.pp

    @property
    def busy_ms(self) -> NDArray[np.float64]:
        """Time each stage is taken by one microbatch, its own transfer included [ms], shape (pp,)."""
        busy = self.layout.stage_times_ms
        if not self.overlap:
            busy[:-1] += self.layout.hop_ms
        return busy

    @property
    def cycle_ms(self) -> float:
        """Time between two microbatches leaving a full pipe [ms]."""
        return float(self.busy_ms.max())

    @property
    def traversal_ms(self) -> float:
        """Time one microbatch takes through the pipe [ms]."""
        return float(self.layout.stage_times_ms.sum()) + (self.pp - 1) * self.layout.hop_ms

    @property
    def step_total_ms(self) -> float:
        """Time of all the work of one step [ms]."""
        return float(self.layout.stage_times_ms.sum()) + self.layout.link_ms

    @property
    def ideal_cycle_ms(self) -> float:
        """The cycle an ideal model assumes: the step's work in ``pp`` equal parts [ms]."""
        return self.step_total_ms / self.pp

    @property
    def critical_stage(self) -> int:
        """Index of the stage that sets the cycle."""
        return int(self.busy_ms.argmax())

    @property
    def balance_factor(self) -> float:
        """Ideal over realised cycle [1], in (0, 1]."""
        return min(1.0, self.ideal_cycle_ms / self.cycle_ms)

    @property
    def microbatches(self) -> int:
        """Microbatches in flight: ``min(pp, C)``; ``pp`` where no concurrency is stated."""
        return self.pp if self.concurrency is None else min(self.pp, self.concurrency)

    @property
    def fill_factor(self) -> float:
        """Share of the pipe that is filled, the published linear form [1]."""
        return min(1.0, self.microbatches / self.pp)

    @property
    def occupancy(self) -> float:
        """Upper bound on the share of the realised cycle rate that M microbatches can sustain [1]."""
        return min(1.0, self.microbatches * self.cycle_ms / self.traversal_ms)

    def efficiency(self, fill: str = "occupancy") -> float:
        """Throughput over that of the ideal model [1]: balance times ``occupancy``, ``linear`` fill or ``none``.

        Raises
        ------
        UsageError
            Another fill rule.
        """
        rules = {"occupancy": self.occupancy, "linear": self.fill_factor, "none": 1.0}
        if fill not in rules:
            raise UsageError("is not a known fill rule", field="fill", value=fill, remedy=f"use {', '.join(rules)}")
        return self.balance_factor * rules[fill]

    def describe(self) -> str:
        """The stages as a table an analyst can read."""
        times, busy = self.layout.stage_times_ms, self.busy_ms
        lines = ["stage  layers  compute [ms]  with hop [ms]  of cycle"]
        for i, layers in enumerate(self.layout.layers):
            mark = "  <- critical" if i == self.critical_stage else ""
            lines.append(
                f"{i:5d}  {layers:6d}  {times[i]:12.4f}  {busy[i]:13.4f}  {busy[i] / self.cycle_ms:7.1%}{mark}"
            )
        lines += [
            f"cycle {self.cycle_ms:.4f} ms (ideal {self.ideal_cycle_ms:.4f} ms), traversal {self.traversal_ms:.4f} ms",
            f"balance {self.balance_factor:.4f}: {self.pp * self.balance_factor:.2f}x of {self.pp}",
            f"{self.microbatches} microbatches in flight: linear fill {self.fill_factor:.4f}, "
            f"occupancy {self.occupancy:.4f}",
        ]
        return "\n".join(lines)
