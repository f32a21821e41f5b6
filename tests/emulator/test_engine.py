"""The emulated pipeline against calib's closed forms, and against itself in its two forms."""

from __future__ import annotations

import itertools
import math

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from support.recursion import step_ends_ms, steps_per_ms

from calib.emulator.closed_loop import Load, output_tokens_per_s, serve
from calib.emulator.engine import Engine
from calib.emulator.law import FromLoad, HyperbolicLaw, Levels, Log2Law, PowerLaw, checked_residual
from calib.emulator.physics import EmulatedModel, EngineSpec, StageTimes, breakdown_step, ops_ms, steady_state
from calib.errors import UsageError
from calib.pipeline.workload import steady_state_of as state_of_step

PLAIN = EmulatedModel(knee=math.inf, prefill=0.0)  # the time of a step does not depend on what is in it


def spec(pp: int, **changed: object) -> EngineSpec:
    given: dict[str, object] = {"model": PLAIN, "law": Log2Law(0.0), "gpus": 8, "tp": 8 // pp, "pp": pp, **changed}
    return EngineSpec(**given)  # type: ignore[arg-type]


def throughput(engine: EngineSpec, concurrency: int, *, waves: int = 10, osl: int = 32) -> float:
    _, served = serve(engine, Load(concurrency, waves * concurrency, osl=osl, warmup=concurrency))
    return output_tokens_per_s(served)


models = st.builds(
    EmulatedModel,
    layers=st.integers(8, 100),
    layer_ms=st.floats(0.05, 2.0),
    embedding_ms=st.floats(0.0, 1.0),
    head_ms=st.floats(0.0, 5.0),
    hop_ms=st.floats(0.0, 0.5),
    knee=st.just(math.inf),
    prefill=st.just(0.0),
)


@settings(max_examples=25, deadline=None)
@given(
    model=models,
    pp=st.sampled_from((2, 4, 8)),
    per_stage=st.integers(1, 4),
    partition=st.sampled_from(("even", "vllm")),
)
def test_a_full_pipe_without_overhead_has_the_balance_factor_as_its_efficiency(model, pp, per_stage, partition):
    engine, alone = (spec(p, model=model, partition=partition) for p in (pp, 1))
    concurrency = per_stage * pp
    eta = throughput(engine, concurrency) / throughput(alone, concurrency)
    links = steady_state(engine, per_stage).step_total_ms / steady_state(alone, concurrency).step_total_ms
    assert eta * links == pytest.approx(steady_state(engine, per_stage).balance_factor, rel=0.01)


@settings(max_examples=25, deadline=None)
@given(model=models, pp=st.sampled_from((2, 4, 8)), missing=st.integers(1, 7))
def test_a_starved_pipe_reaches_the_bottleneck_bound(model, pp, missing):
    """C < pp: one request a microbatch, ``balance * occupancy`` of the ideal pipe's rate."""
    concurrency = max(1, pp - missing)
    engine = spec(pp, model=model)
    state = steady_state(engine, 1, concurrency)
    ideal = 1000.0 / state.ideal_cycle_ms
    assert throughput(engine, concurrency) / ideal == pytest.approx(state.balance_factor * state.occupancy, rel=0.01)


@pytest.mark.parametrize("concurrency", [9, 12, 13, 21])
def test_microbatches_are_as_even_as_the_concurrency_allows(concurrency):
    """None holds more than ``ceil(C/pp)``, and pp are in flight, whatever the remainder."""
    engine = Engine(spec(8))
    for number in range(concurrency):
        engine.submit(number, prompt_tokens=1, output_tokens=4, now=0.0)
    sizes = [len(slot.members) for slot in engine._slots]
    assert (max(sizes), sum(sizes), min(sizes)) == (-(-concurrency // 8), concurrency, concurrency // 8)


LAWS = {
    "log2": (Log2Law(0.2), {2: 0.8, 4: 0.6, 8: 0.4}),
    "log2 with load": (Log2Law(0.08, 0.03), {pp: 1 - (0.08 + 0.03 * 4) * math.log2(pp) for pp in (2, 4, 8)}),
    "hyperbolic": (HyperbolicLaw(0.25), {2: 0.8, 4: 1 / 1.75, 8: 1 / 2.75}),
    "power": (PowerLaw(0.4), {2: 2**-0.4, 4: 4**-0.4, 8: 8**-0.4}),
    "levels": (Levels({2: 0.8, 4: 0.3, 8: 0.42}), {2: 0.8, 4: 0.3, 8: 0.42}),
    "from load": (FromLoad(16, Log2Law(0.2), Levels({2: 0.5, 4: 0.7, 8: 0.4})), {2: 0.5, 4: 0.7, 8: 0.4}),
}


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("pp", [2, 4, 8])
def test_each_law_is_the_residual_against_the_baseline(name, pp):
    """What calib fits: efficiency against TP=G/PP=1 over the balance factor, with links and all."""
    law, residual = LAWS[name]
    eta = throughput(spec(pp, law=law), 16) / throughput(spec(1), 16)
    assert eta / steady_state(spec(pp), 16 // pp).balance_factor == pytest.approx(residual[pp], rel=0.005)


def test_without_overhead_the_residual_is_what_the_links_leave():
    engine = spec(8)
    eta = throughput(engine, 16) / throughput(spec(1), 16)
    links = 7 * 0.02 / (PLAIN_STEP_MS + 7 * 0.02)
    assert eta / steady_state(engine, 2).balance_factor == pytest.approx(1 - links, rel=0.005)


def test_a_constant_cost_of_a_stage_visit_is_the_hyperbolic_form():
    """k of a TP=G step per visit: at even stages the cycle is the step over pp, so the cost is k*pp of it."""
    model = EmulatedModel(
        layers=64, layer_ms=0.25, embedding_ms=0.0, head_ms=0.0, hop_ms=0.0, knee=math.inf, prefill=0.0
    )
    cost = 0.02 * 16.0
    for pp in (2, 4, 8):
        busy = np.array(StageTimes(spec(pp, model=model)).busy_ms(1, 0, 8)) + cost
        alone = np.array(StageTimes(spec(1, model=model)).busy_ms(1, 0, 8)) + cost
        eta = steps_per_ms(busy[None, :], pp)[0] / steps_per_ms(alone[None, :], 1)[0] / pp
        k = 0.02 / 1.02
        assert eta == pytest.approx(1 / (1 + k * (pp - 1)), rel=1e-9)


def test_a_law_can_be_read():
    assert {name: law.words for name, (law, _) in LAWS.items()} == {
        "log2": "1 - 0.2*log2(pp)",
        "log2 with load": "1 - (0.08 + 0.03*log2(C))*log2(pp)",
        "hyperbolic": "1/(1 + 0.25*(pp-1))",
        "power": "pp**-0.4",
        "levels": "0.8 at PP=2, 0.3 at PP=4, 0.42 at PP=8",
        "from load": "1 - 0.2*log2(pp) below 16 requests, 0.5 at PP=2, 0.7 at PP=4, 0.4 at PP=8 from there on",
    }


@pytest.mark.parametrize("name", LAWS)
def test_an_engine_survives_the_way_to_its_server(name):
    engine = spec(4, law=LAWS[name][0], model=EmulatedModel(), jitter=0.01, early_end=0.5, seed=3)
    assert msgspec.json.decode(msgspec.json.encode(engine), type=EngineSpec) == engine


def test_below_its_load_a_law_is_the_other_one():
    law = FromLoad(16, Log2Law(0.2), Levels({2: 0.5, 4: 0.7, 8: 0.4}))
    assert law.residual(2, 15) == pytest.approx(0.8)
    eta = throughput(spec(2, law=law), 8) / throughput(spec(1), 8)
    assert eta / steady_state(spec(2), 4).balance_factor == pytest.approx(0.8, rel=0.005)


@pytest.mark.parametrize("law", [Log2Law(0.4), Log2Law(-0.1), Levels({2: 0.8}), PowerLaw(-1.0)])
def test_a_law_no_engine_can_follow_is_refused(law):
    with pytest.raises(UsageError):
        checked_residual(law, 8, 1)
    assert checked_residual(law, 1, 1) == 1.0


@pytest.mark.parametrize("pp", [1, 2, 4, 8])
def test_changing_the_tp_degree_costs_nothing(pp):
    """pp microbatches of C/pp requests take as long as one of C at TP=G, whatever the load."""
    model = EmulatedModel(hop_ms=0.0)
    for concurrency in (8, 16, 64):
        own = steady_state(spec(pp, model=model), concurrency // pp).step_total_ms
        assert own == pytest.approx(steady_state(spec(1, model=model), concurrency).step_total_ms, rel=1e-12)


def test_throughput_is_largest_at_the_knee():
    model = EmulatedModel(knee=16.0)
    found = {c: throughput(spec(1, model=model), c) for c in (8, 12, 16, 20, 32)}
    assert max(found, key=lambda c: found[c]) == 16


@pytest.mark.parametrize("pp", [1, 2, 4, 8])
@pytest.mark.parametrize("in_flight", [1, 3, 8])
def test_the_array_recursion_is_the_event_driven_engine(pp, in_flight):
    """Every step's end, to the last bit but rounding, for a starved and a full pipe with overhead."""
    engine_spec, m = spec(pp, law=Log2Law(0.2), model=EmulatedModel(prefill=0.0)), min(pp, in_flight)
    engine = Engine(engine_spec)
    for number in range(m):
        engine.submit(number, prompt_tokens=1, output_tokens=20, now=0.0)
    seen = {number: [] for number in range(m)}
    while engine.next_time is not None:
        now, tokens = engine.advance()
        for token in tokens:
            seen[token.request].append(now)
    busy = np.array([StageTimes(engine_spec).busy_ms(1, 0, m)] * 3)
    ends = step_ends_ms(busy, m, 20)
    whole = 20 - 1  # when the first output ends the load drops, and with it the cost of a step that starts later
    for number in range(m):
        np.testing.assert_allclose(seen[number][:whole], ends[:whole, number, 1], rtol=1e-12)


def test_a_long_prompt_is_prefilled_in_chunks():
    """10 tokens in chunks of 4 are three steps, and the third gives the first token."""
    engine = Engine(spec(1, chunk_tokens=4))
    engine.submit(0, prompt_tokens=10, output_tokens=2, now=0.0)
    times = []
    while engine.next_time is not None:
        now, tokens = engine.advance()
        times += [(round(now / PLAIN_STEP_MS), t.index, t.last) for t in tokens]
    assert times == [(3, 0, False), (4, 1, True)]


PLAIN_STEP_MS = 36 * 0.25 + 0.05 + 0.5


def test_prompts_of_one_microbatch_share_the_budget_of_a_step_in_their_order():
    engine = Engine(spec(1, chunk_tokens=6))
    for number in range(3):
        engine.submit(number, prompt_tokens=4, output_tokens=1, now=0.0)
    first = {}
    while engine.next_time is not None:
        now, tokens = engine.advance()
        first |= {t.request: round(now / PLAIN_STEP_MS) for t in tokens}
    assert first == {0: 1, 1: 2, 2: 2}  # 4 + 2 tokens, then 2 + 4


def test_prefill_takes_time():
    model = EmulatedModel(knee=math.inf, prefill=0.01)
    slow, fast = (throughput(spec(1, model=m), 1, osl=10) for m in (model, PLAIN))
    layers = 36 * 0.25 + 0.05
    assert slow / fast == pytest.approx(10 * PLAIN_STEP_MS / (10 * PLAIN_STEP_MS + 0.64 * layers), rel=1e-6)
    assert (
        ops_ms(spec(1, model=model), 1, 64)["generation_logits_gemm"] == 0.5
    )  # only the last token of a prompt needs it


def test_no_more_than_max_num_seqs_run_at_once():
    engine = Engine(spec(2, max_num_seqs=3))
    for number in range(5):
        engine.submit(number, prompt_tokens=1, output_tokens=2, now=0.0)
    assert (engine.running, engine.waiting) == (3, 2)
    seen = set()
    while engine.next_time is not None:
        _, tokens = engine.advance()
        seen |= {t.request for t in tokens if t.last}
        assert engine.running <= 3
    assert (seen, engine.running, engine.waiting) == ({0, 1, 2, 3, 4}, 0, 0)


def test_an_output_that_ends_early_is_shorter_and_its_tokens_are_counted():
    _, served = serve(spec(1, early_end=1.0), Load(4, 400))
    lengths = [s.tokens for s in served]
    assert (min(lengths), max(lengths)) == (1, 32)
    assert np.mean(lengths) == pytest.approx(16.5, abs=3 * 32 / math.sqrt(12 * 400))


def test_a_client_that_goes_away_leaves_the_engine():
    engine = Engine(spec(2, max_num_seqs=2))
    for number in range(3):
        engine.submit(number, prompt_tokens=1, output_tokens=50, now=0.0)
    engine.advance()
    engine.cancel(2, 0.0)  # waiting
    engine.cancel(0, 0.0)  # in flight
    engine.cancel(7, 0.0)  # unknown
    seen = set()
    while engine.next_time is not None:
        seen |= {t.request for t in engine.advance()[1]}
    assert (seen, engine.running) == ({1}, 0)


def test_jitter_and_the_pace_of_a_run_come_from_the_seed():
    def rate(seed: int, **noise: float) -> float:
        return throughput(spec(4, seed=seed, **noise), 8, waves=4)

    exact = rate(0)
    for noise in ({"jitter": 0.02}, {"run_noise": 0.02}):
        assert rate(1, **noise) == rate(1, **noise)
        assert len({exact, rate(1, **noise), rate(2, **noise)}) == 3
    paces = [rate(seed, run_noise=0.02) / exact for seed in range(100)]
    assert np.std(paces) == pytest.approx(0.02, rel=0.3)


def test_the_breakdown_calib_is_told_is_the_engines_own():
    for pp, kind in itertools.product((1, 8), ("decode", "mixed", "prefill")):
        engine = spec(pp, model=EmulatedModel())
        step = breakdown_step(engine, concurrency=16, isl=64, osl=32, kind=kind)
        state = state_of_step(step, engine.partition)
        tokens = {"decode": 0, "mixed": 64, "prefill": 8192}[kind]
        np.testing.assert_allclose(state.busy_ms, StageTimes(engine).busy_ms(16 // pp, tokens, 16), rtol=1e-12)


@pytest.mark.parametrize(
    "wrong",
    [{"tp": 4}, {"backend": "tgi"}, {"chunk_tokens": 0}, {"jitter": -0.1}, {"early_end": 1.5}, {"max_num_seqs": 0}],
)
def test_an_impossible_engine_is_refused(wrong):
    with pytest.raises(UsageError):
        EngineSpec(**wrong)


def test_a_request_that_asks_for_nothing_or_stands_twice_is_refused():
    engine = Engine(spec(1))
    engine.submit(1, prompt_tokens=1, output_tokens=1, now=0.0)
    for number, prompt, output in ((1, 1, 1), (2, 0, 1), (3, 1, 0)):
        with pytest.raises(UsageError):
            engine.submit(number, prompt_tokens=prompt, output_tokens=output, now=0.0)


def test_clients_that_think_send_in_the_order_of_time():
    """All served alone: ten clients of one token each, whose pause is far longer than a step."""
    _, served = serve(spec(1), Load(10, 30, isl=1, osl=1, think_ms=1000.0))
    assert [s.start_ms for s in served] == sorted(s.start_ms for s in served)
    assert max(s.end_ms - s.start_ms for s in served) < 100.0
