"""What a request waits in a pipe: TTFT and TPOT from the traversal. Structure only; no coefficient is fitted on latency.

A microbatch goes through every stage and link in ``traversal``, whatever the cycle is. A request's prompt takes
``ceil(isl/chunk)`` mixed steps, and its tokens the decode and mixed steps of `calib.pipeline.workload.step_shares`::

    ttft = ceil(isl/chunk) * traversal(mixed step)
    tpot = (n_decode * traversal(decode step) + n_mixed * traversal(mixed step)) / osl

Both are of a pipe in which nothing queues: what a request waits for its turn at the slowest stage comes on top.
"""

from __future__ import annotations

from dataclasses import dataclass

from calib.pipeline.breakdown import CHUNK_TOKENS, Step
from calib.pipeline.workload import steady_state_of, step_shares

NOT_CALIBRATED = "not calibrated"


@dataclass(frozen=True)
class Latency:
    """TTFT and TPOT [ms] of one request."""

    ttft_ms: float
    tpot_ms: float


def traversal_latency(
    decode: Step, mixed: Step, partition: str, concurrency: int, chunk_tokens: int = CHUNK_TOKENS
) -> Latency:
    """TTFT and TPOT [ms] at ``concurrency`` requests in flight, from the decode and the mixed step of one configuration."""
    shares = step_shares(
        isl=decode.isl, osl=decode.osl, concurrency=concurrency, pp=decode.pp, chunk_tokens=chunk_tokens
    )
    slow = steady_state_of(mixed, partition, concurrency).traversal_ms
    fast = steady_state_of(decode, partition, concurrency).traversal_ms
    return Latency(
        ttft_ms=-(-decode.isl // chunk_tokens) * slow,
        tpot_ms=(shares.decode * fast + shares.mixed * slow) / decode.osl,
    )
