"""Balance of workloads that mix prefill and decode steps."""

from __future__ import annotations

import pytest

from calib.errors import UsageError
from calib.pipeline.breakdown import Breakdowns, Provider, Step
from calib.pipeline.workload import balance_factor, step_shares


def step(kind, ops, concurrency=8) -> Step:
    return Step(
        model="m", backend="vllm", tp=1, pp=2, concurrency=concurrency, microbatch=4, isl=100, osl=10, num_layers=4,
        status="computed", ops_ms=ops, kind=kind,
    )  # fmt: skip


def document(*steps) -> Breakdowns:
    provider = Provider(name="p", version="1", system="h200_sxm")
    return Breakdowns(format="calib-breakdowns", format_version=1, provider=provider, steps=steps)


DECODE = step("decode", {"generation_attention": 4.0, "generation_logits_gemm": 2.0})  # stages 2 and 4 ms
MIXED = step("mixed", {"context_attention": 40.0, "context_logits_gemm": 2.0})  # stages 20 and 22 ms


@pytest.mark.parametrize(
    ("isl", "osl", "concurrency", "pp", "mixed"),
    [
        (4000, 1000, 64, 1, 64),  # one prefill step a request
        (4000, 1000, 64, 8, 8),
        (20000, 1000, 64, 8, 24),  # three chunks of 8192 tokens a request
        (4000, 10, 64, 1, 10),  # never more than there are steps
        (4000, 1000, 1, 8, 1),
    ],
)
def test_steps_of_each_kind(isl, osl, concurrency, pp, mixed):
    shares = step_shares(isl=isl, osl=osl, concurrency=concurrency, pp=pp)
    assert (shares.mixed, shares.decode) == (mixed, osl - mixed)


def test_the_mixture_is_the_ideal_over_the_realised_time_of_all_steps():
    found = document(DECODE, MIXED)
    # 10 steps, 4 of them mixed. Ideal cycles 3 and 21 ms, realised 4 and 22 ms.
    assert balance_factor(found, DECODE, "even", "mixed") == pytest.approx((6 * 3 + 4 * 21) / (6 * 4 + 4 * 22))
    assert balance_factor(found, DECODE, "even") == 0.75
    assert balance_factor(found, DECODE, "even", "none") == 1.0


def test_without_a_mixed_step_or_a_concurrency_the_mixture_is_unknown():
    assert balance_factor(document(DECODE), DECODE, "even", "mixed") is None
    anywhere = step("decode", DECODE.ops_ms, concurrency=None)
    other = step("mixed", MIXED.ops_ms, concurrency=None)
    assert balance_factor(document(anywhere, other), anywhere, "even", "mixed") is None


def test_an_unknown_balance_and_impossible_workloads_are_errors():
    with pytest.raises(UsageError, match="use decode, mixed, none"):
        balance_factor(document(DECODE), DECODE, "even", "best")
    good = {"isl": 1, "osl": 1, "concurrency": 1, "pp": 1, "chunk_tokens": 1}
    for name in good:
        for bad in (0, -1, 1.5, float("nan")):
            with pytest.raises(UsageError, match=f"'{name}' = "):
                step_shares(**(good | {name: bad}))
