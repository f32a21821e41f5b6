"""Balance of a workload that mixes prefill and decode steps.

In a closed loop a microbatch of b requests generates ``osl`` tokens each in ``osl`` steps, and every request that finishes is
replaced by one whose ``isl`` tokens are prefilled in ``ceil(isl/chunk)`` steps, one request at a time. So of ``osl`` steps

    mixed = min(osl, b * ceil(isl/chunk))        the others are pure decode

and the balance of the mixture is the ideal over the realised time of all of them:

    balance = sum_k n_k * step_total_k / pp  /  sum_k n_k * cycle_k

A pure decode step is the default everywhere: it is what was published, and it predicts best so far. The mixture is a
sensitivity, since it takes microbatches of different kinds to follow each other without disturbing the pipe.
"""

from __future__ import annotations

from dataclasses import dataclass

from calib.errors import UsageError
from calib.names import BalanceKind
from calib.pipeline.breakdown import CHUNK_TOKENS, Breakdowns, Step
from calib.pipeline.layout import PipelineLayout
from calib.pipeline.steady_state import PipelineSteadyState, microbatch_size

BALANCES: tuple[BalanceKind, ...] = ("decode", "mixed", "none")


@dataclass(frozen=True)
class StepShares:
    """Steps of each kind while a microbatch generates ``osl`` tokens a request."""

    decode: float
    mixed: float


def step_shares(*, isl: int, osl: int, concurrency: int, pp: int, chunk_tokens: int = CHUNK_TOKENS) -> StepShares:
    """How many steps of each kind a workload has; tokens, requests, stages.

    Raises
    ------
    UsageError
        A number below 1.
    """
    given = {"isl": isl, "osl": osl, "concurrency": concurrency, "pp": pp, "chunk_tokens": chunk_tokens}
    for name, value in given.items():
        if not isinstance(value, int) or value < 1:
            raise UsageError("must be a whole number of at least 1", field=name, value=value)
    mixed = min(osl, microbatch_size(concurrency, pp) * -(-isl // chunk_tokens))
    return StepShares(decode=float(osl - mixed), mixed=float(mixed))


def ideal_throughput(
    breakdowns: Breakdowns, model: str, backend: str, *, tp: int, pp: int, isl: int, osl: int, concurrency: int
) -> float | None:
    """What an ideal pipe would deliver [tok/s], one replica; None where the file lacks a decode or a mixed step.

    Every one of the requests in flight gets a token each time a step's whole work is done, since an ideal pipe works on pp
    microbatches of ``ceil(C/pp)`` at once and is never starved::

        X = max(C, pp) * osl / sum_k n_k * step_total_k        n_k as above

    What a pipe that C < pp requests cannot fill loses is the fill factor's part. At pp = 1 this is the closed loop itself.
    """
    where = {"tp": tp, "pp": pp, "isl": isl, "osl": osl, "concurrency": concurrency}
    decode = breakdowns.find(model, backend, kind="decode", **where)
    mixed = breakdowns.find(model, backend, kind="mixed", **where)
    if decode is None or mixed is None:
        return None
    shares = step_shares(isl=isl, osl=osl, concurrency=concurrency, pp=pp)
    total_ms = shares.decode * sum(decode.ops_ms.values()) + shares.mixed * sum(mixed.ops_ms.values())
    return 1000.0 * max(concurrency, pp) * osl / total_ms


def steady_state_of(step: Step, partition: str, concurrency: int | None = None) -> PipelineSteadyState:
    """The pipe of one step."""
    layout = PipelineLayout.from_ops(step.ops_ms, step.num_layers, step.pp, partition)
    return PipelineSteadyState(layout, concurrency if concurrency is not None else step.concurrency)


def balance_factor(breakdowns: Breakdowns, step: Step, partition: str, balance: BalanceKind = "decode") -> float | None:
    """The balance factor [1] of a decode step's configuration: ``decode``, ``mixed``, or 1 for ``none``.

    None where ``mixed`` is asked for and the file has no mixed step of the configuration, or no concurrency.

    Raises
    ------
    UsageError
        Another kind of balance.
    """
    if balance not in BALANCES:
        raise UsageError("is not a known balance", field="balance", value=balance, remedy=f"use {', '.join(BALANCES)}")
    if balance == "none" or step.pp == 1:
        return 1.0
    decode = steady_state_of(step, partition)
    if balance == "decode":
        return decode.balance_factor
    other = breakdowns.find(
        step.model,
        step.backend,
        tp=step.tp,
        pp=step.pp,
        isl=step.isl,
        osl=step.osl,
        concurrency=step.concurrency,
        kind="mixed",
    )
    if other is None or step.concurrency is None:
        return None
    shares = step_shares(isl=step.isl, osl=step.osl, concurrency=step.concurrency, pp=step.pp)
    mixed = steady_state_of(other, partition)
    ideal = shares.decode * decode.ideal_cycle_ms + shares.mixed * mixed.ideal_cycle_ms
    return min(1.0, ideal / (shares.decode * decode.cycle_ms + shares.mixed * mixed.cycle_ms))
