"""Many configurations at once: the formulas of `calib.pipeline.steady_state` on arrays.

>>> placed = PlacedSteps.of(breakdowns)                      # doctest: +SKIP
>>> found = sweep(placed, index, concurrency)                # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calib.arrays import Array
from calib.errors import BreakdownError
from calib.pipeline.breakdown import Breakdowns, Step, StepKind
from calib.pipeline.layout import PARTITION_RULES, PipelineLayout

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class PlacedSteps:
    """The steps of a breakdown file with their ops placed, one entry a step, all arrays of shape (steps,), times in ms."""

    steps: tuple[Step, ...]
    layers: Ints
    pp: Ints
    per_layer_ms: Array
    first_ms: Array
    last_ms: Array
    link_ms: Array

    @classmethod
    def of(cls, breakdowns: Breakdowns, kind: StepKind = "decode") -> PlacedSteps:
        """Place the ops of every step of one kind."""
        steps = tuple(s for s in breakdowns.steps if s.kind == kind)
        layouts = [PipelineLayout.from_ops(s.ops_ms, s.num_layers, s.pp) for s in steps]
        columns = ("per_layer_ms", "first_ms", "last_ms", "link_ms")
        return cls(
            steps,
            np.array([s.num_layers for s in steps], dtype=np.int64),
            np.array([s.pp for s in steps], dtype=np.int64),
            *(np.array([getattr(x, c) for x in layouts], dtype=np.float64) for c in columns),
        )


@dataclass(frozen=True)
class Sweep:
    """Results of shape (n,): times in ms, factors in (0, 1]."""

    cycle_ms: Array
    ideal_cycle_ms: Array
    traversal_ms: Array
    balance_factor: Array
    fill_factor: Array
    occupancy: Array


def sweep(
    placed: PlacedSteps, index: ArrayLike, concurrency: ArrayLike, *, partition: str = "even", overlap: bool = False
) -> Sweep:
    """The steady state of ``n`` points, each a step (by its ``index``) and a concurrency [requests].

    Raises
    ------
    BreakdownError
        An unknown partition rule, an index without a step, a concurrency below 1.
    """
    if not isinstance(partition, str) or partition not in PARTITION_RULES:
        raise BreakdownError("is not a known partition rule", field="partition", value=partition)
    at, c = np.asarray(index), np.asarray(concurrency)
    if at.ndim != 1 or at.shape != c.shape or (at.size and not (at.dtype.kind in "iu" and c.dtype.kind in "iu")):
        raise BreakdownError("index and concurrency must be whole numbers, one of each a point", field="index")
    at, c = at.astype(np.int64), c.astype(np.int64)
    if at.size and (at.min() < 0 or at.max() >= len(placed.steps) or c.min() < 1):
        raise BreakdownError("an index without a step, or a concurrency below 1", field="index")
    pp, link = placed.pp[at], placed.link_ms[at]
    base, rest = np.divmod(placed.layers[at], pp)
    stage = np.arange(int(pp.max()) if at.size else 1)
    column = pp[:, None]
    layers = base[:, None] + PARTITION_RULES[partition].one_more(stage, rest[:, None], column)
    busy = np.where(stage < column, placed.per_layer_ms[at][:, None] * layers, 0.0)
    busy[:, 0] += placed.first_ms[at]
    busy[np.arange(len(at)), pp - 1] += placed.last_ms[at]
    work = busy.sum(axis=1)
    hop = np.where(pp > 1, link / np.maximum(pp - 1, 1), 0.0)
    if not overlap:
        busy += np.where(stage < column - 1, hop[:, None], 0.0)
    cycle = busy.max(axis=1)
    traversal = work + (pp - 1) * hop
    ideal = (work + link) / pp
    m = np.minimum(pp, c)
    return Sweep(
        cycle_ms=cycle,
        ideal_cycle_ms=ideal,
        traversal_ms=traversal,
        balance_factor=np.minimum(1.0, ideal / cycle),
        fill_factor=np.minimum(1.0, m / pp),
        occupancy=np.minimum(1.0, m * cycle / traversal),
    )


def step_index(placed: PlacedSteps, keys: Sequence[tuple[object, ...]]) -> Ints:
    """The index of each step key (see `Step.key`).

    Raises
    ------
    BreakdownError
        A key has no step.
    """
    known = {s.key: i for i, s in enumerate(placed.steps)}
    try:
        return np.array([known[k] for k in keys], dtype=np.int64)  # type: ignore[index]
    except KeyError as error:
        raise BreakdownError(f"no step for {error}", remedy="compute it with `calib breakdown`") from None
