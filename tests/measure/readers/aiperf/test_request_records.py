"""The per-request file: streaming, damage, and steady throughput against counts and simulations with a known truth."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from calib.errors import CalibError, CampaignError
from calib.measure.readers.aiperf import stream as aiperf_stream
from calib.measure.readers.aiperf.request_records import RecordSummary, iter_records, read_records
from calib.measure.readers.aiperf.steady import emitted, steady_span, steady_throughput
from calib.measure.readers.aiperf.stream import BadLineError

T0 = 1_796_062_356_095_550_699  # does not fit a double


def line(start=0, end=65_000_000, *, osl=10, ttft=20.0, **metadata):
    values = {"time_to_first_token": (ttft, "ms"), "output_sequence_length": (osl, "tokens"),
              "inter_chunk_latency": ([1.0, 2.0], "ms")}  # fmt: skip
    return {
        "metadata": {
            "request_start_ns": T0 + start,
            "request_end_ns": T0 + end,
            "benchmark_phase": "profiling",
            **metadata,
        },
        "metrics": {name: {"value": value, "unit": unit} for name, (value, unit) in values.items()},
    }


def write(tmp_path, *lines, end="\n"):
    path = tmp_path / "profile_export.jsonl"
    path.write_text("\n".join(text if isinstance(text, str) else json.dumps(text) for text in lines) + end)
    return path


def test_times_are_whole_nanoseconds(tmp_path):
    records = read_records(write(tmp_path, line()))
    assert records.start_ns.tolist() == [T0]
    assert records.start_ns.dtype == np.int64
    assert [r.metadata.request_start_ns for r in iter_records(tmp_path / "profile_export.jsonl")] == [T0]


@pytest.mark.parametrize("block", [1, 7, 300, 2**18])
def test_lines_may_be_split_over_blocks_anywhere(tmp_path, monkeypatch, block):
    path = write(tmp_path, *(line(i, 100 + i, osl=i + 1) for i in range(20)))
    monkeypatch.setattr(aiperf_stream, "BLOCK", block)
    records = read_records(path)
    assert records.osl.tolist() == list(range(1, 21))
    assert records.total_osl == 210
    assert len(list(iter_records(path))) == 20


def test_failed_cancelled_and_warmup_requests_are_in_no_latency(tmp_path):
    failed = line(5, 5) | {"error": {"code": 500, "type": "x", "message": "m"}, "metrics": {}}
    cancelled = line(was_cancelled=True, cancellation_time_ns=3) | {"error": {"code": 499, "type": "Cancellation"}}
    warmup = line(benchmark_phase="warmup", osl=999)
    old = line(osl=7) | {"error": None}  # 0.3 writes null, and no phase
    del old["metadata"]["benchmark_phase"]
    records = read_records(write(tmp_path, failed, cancelled, warmup, old))
    assert (records.completed, records.failed, records.cancelled, records.warmup) == (1, 2, 1, 1)
    assert records.osl.tolist() == [7.0]
    assert records.ttft_ms.tolist() == [20.0]
    assert records.errors == {"500": 1, "499": 1}


def test_what_a_request_does_not_state_is_unknown(tmp_path):
    records = read_records(write(tmp_path, {"metadata": {}}, line(), {"metadata": {}, "metrics": None}))
    assert np.isnan(records.osl).tolist() == [True, False, True]
    assert records.total_osl is None
    assert records.duration_s is None
    assert records.timed is False


@pytest.mark.parametrize("cut", [1, 30, 100])
def test_a_cut_last_line_is_left_out_and_reported(tmp_path, cut):
    path = write(tmp_path, line(), json.dumps(line())[:-cut], end="")
    records = read_records(path)
    assert (records.completed, records.cut_last_line) == (1, True)
    assert len(list(iter_records(path))) == 1


def test_a_last_line_without_its_end_may_be_whole(tmp_path):
    records = read_records(write(tmp_path, line(), line(), end=""))
    assert (records.completed, records.cut_last_line) == (2, False)


@pytest.mark.parametrize(
    "bad",
    [
        "{", "x", "[]", "3", '{"metadata": 3}', "\x00\x00", '{"metrics": {}}',
        json.dumps(line(ttft=-1.7e12)),  # an epoch minus nothing
        json.dumps(line()).replace('"ms"', '"s"', 1), json.dumps(line(request_start_ns=10**30)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("block", [50, 2**18])
def test_a_bad_line_in_the_middle_is_an_error_with_its_number(tmp_path, monkeypatch, bad, block):
    monkeypatch.setattr(aiperf_stream, "BLOCK", block)
    path = write(tmp_path, *[line()] * 3, "", bad, line())
    with pytest.raises(BadLineError, match="is not a per-request record") as caught:
        read_records(path)
    assert (caught.value.line, caught.value.field, caught.value.file) == (5, "line 5", str(path))


def test_lines_of_old_versions(tmp_path):
    nan = json.dumps(line()).replace("20.0", "NaN")
    rounded = json.dumps(line()).replace(str(T0), "1.79606235609555e18")
    records = read_records(write(tmp_path, nan, rounded))
    assert np.isnan(records.ttft_ms).tolist() == [True, False]
    assert records.start_ns.tolist() == [T0, int(1.79606235609555e18)]  # to 256 ns, as that version rounded it


def test_an_empty_file_and_one_that_is_not_there(tmp_path):
    path = tmp_path / "profile_export.jsonl"
    path.touch()
    assert read_records(path).completed == 0
    with pytest.raises(CampaignError, match="cannot be read"):
        read_records(tmp_path / "none")


def test_a_line_without_end_is_not_read_into_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(aiperf_stream, "LINE_LIMIT", 1000)
    monkeypatch.setattr(aiperf_stream, "BLOCK", 100)
    with pytest.raises(BadLineError, match="line 2"):
        read_records(write(tmp_path, line() | {"metrics": {}}, "x" * 5000))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=150)
@given(data=st.data())
def test_any_line_is_read_or_an_error_of_calib(tmp_path, data):
    values = st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3), st.just([]), st.just({})
    )
    metadata = st.dictionaries(st.sampled_from([*line()["metadata"], "credit_issued_ns", "new"]), values)
    block = st.one_of(values, st.fixed_dictionaries({}, optional={"value": values, "unit": st.just("ms")}))
    metrics = st.dictionaries(st.sampled_from([*line()["metrics"], "new"]), block)
    lines = [
        {"metadata": data.draw(st.one_of(metadata, values)), "metrics": data.draw(st.one_of(metrics, values))}
        for _ in range(data.draw(st.integers(1, 3)))
    ]
    try:
        records = read_records(write(tmp_path, line(), *lines))
    except CalibError:
        return
    assert records.completed + records.failed + records.cancelled + records.warmup >= 1  # the good line at least
    assert steady_throughput(records, 1, np.random.default_rng(0)) is not None


# Steady state


def requests(starts, ends, osl, ttft_s) -> RecordSummary:
    """A run of these times [s]."""
    start, end = (T0 + np.round(np.asarray(t) * 1e9).astype(np.int64) for t in (starts, ends))
    none, unknown = np.array([], dtype=np.int64), np.full(len(start), np.nan)
    return RecordSummary(
        sha256="0", completed=len(start), failed=0, cancelled=0, warmup=0, usage_count=0, errors={}, cut_last_line=False,
        start_ns=start, end_ns=end, failed_start_ns=none, failed_end_ns=none,
        ttft_ms=np.broadcast_to(np.asarray(ttft_s) * 1e3, start.shape).astype(float), itl_ms=unknown,
        client_delay_ms=unknown, osl=np.broadcast_to(np.asarray(osl, dtype=float), start.shape),
    )  # fmt: skip


def closed_loop(rng, concurrency, count, *, spread=0.1, osl=100, delay=0.0):
    """Each of ``concurrency`` clients sends its next request when the last one is done; requests take about 1 s."""
    free = np.zeros(concurrency)
    starts, ends = np.empty(count), np.empty(count)
    for i in range(count):
        slot = int(free.argmin())
        starts[i] = free[slot]
        ends[i] = free[slot] + rng.gamma(1 / spread**2, spread**2)
        free[slot] = ends[i] + delay
    return requests(starts, ends, osl, 0.05)


def test_ramp_and_drain_are_left_out():
    # Two slots, 1 s a request of 101 tokens, a third slot that joins for the last wave only
    starts = [*range(20), *np.arange(20) + 0.5]
    run = requests(starts, [s + 1 for s in starts], 101, 0.0)
    steady = steady_throughput(run, 2, np.random.default_rng(0))
    assert steady.output_tokens_per_s == pytest.approx(202.0, rel=0.01)
    whole = run.total_osl / run.duration_s
    assert whole < 200  # the whole run is half empty at its ends
    assert steady.note is None


def test_requests_that_an_interrupt_threw_away_end_the_window():
    starts = np.array([*range(20), *np.arange(20) + 0.5])
    complete = requests(starts, starts + 1, 101, 0.0)
    kept = starts + 1 <= 15.2  # what is in flight at 15.2 s is in no file
    cut = requests(starts[kept], starts[kept] + 1, 101, 0.0)
    rates = [steady_throughput(r, 2, np.random.default_rng(0)).output_tokens_per_s for r in (complete, cut)]
    assert rates[1] == pytest.approx(rates[0], rel=0.01)


def test_the_window_is_where_the_concurrency_was_reached():
    starts, ends = np.array([0.0, 1.0, 3.0, 9.0]), np.array([3.0, 5.0, 6.0, 10.0])
    assert steady_span(starts, ends, 2) == (1.0, 3.0)  # at 3.0 one request takes another's place
    assert steady_span(starts, ends, 3) is None


def test_many_slots_are_never_all_full_and_yet_steady():
    # 500 slots that wait 20 ms between requests of 1 s: about 10 are empty at any time
    steady = steady_throughput(
        closed_loop(np.random.default_rng(0), 500, 10_000, spread=0.3, delay=0.02), 500, np.random.default_rng(0)
    )
    assert steady.output_tokens_per_s == pytest.approx(500 * 100 / 1.02, rel=0.02)


def test_a_concurrency_that_was_never_reached_has_no_steady_state():
    steady = steady_throughput(closed_loop(np.random.default_rng(0), 4, 100), 5, np.random.default_rng(0))
    assert (steady.output_tokens_per_s, steady.rel_error) == (None, None)
    assert "5 requests were never in flight" in steady.note


@settings(deadline=None)
@given(seed=st.integers(0, 10**6), count=st.integers(1, 40))
def test_emitted_tokens_agree_with_a_sum_over_requests(seed, count):
    rng = np.random.default_rng(seed)
    first = rng.uniform(0, 10, count)
    end = first + rng.uniform(0, 3, count)
    osl = rng.integers(0, 50, count).astype(float)
    at = np.sort(rng.uniform(-1, 15, 25))
    share = np.clip((at[:, None] - first) / np.maximum(end - first, 1e-9), 0, 1)
    expected = np.where((at[:, None] >= first) & (osl > 0), 1 + (osl - 1) * share, 0).sum(axis=1)
    np.testing.assert_allclose(emitted(at, first, end, osl), expected, atol=1e-6)


def test_the_error_depends_on_the_seed_alone():
    run = closed_loop(np.random.default_rng(1), 8, 200)
    one, two = (steady_throughput(run, 8, np.random.default_rng(5)) for _ in range(2))
    assert one == two
    assert steady_throughput(run, 8, np.random.default_rng(6)).rel_error != one.rel_error


@pytest.mark.parametrize(("concurrency", "count"), [(1, 60), (4, 240), (16, 640)])
def test_the_error_is_the_spread_over_repetitions(concurrency, count):
    """Of many simulated runs the bootstrap error agrees with the real spread within a factor of 1.6."""
    found = [
        steady_throughput(closed_loop(np.random.default_rng(s), concurrency, count, spread=0.3), concurrency,
                     np.random.default_rng(s))
        for s in range(60)
    ]  # fmt: skip
    rates = np.array([f.output_tokens_per_s for f in found])
    claimed = float(np.mean([f.rel_error for f in found]))
    real = float(rates.std(ddof=1) / rates.mean())
    assert 1 / 1.6 < claimed / real < 1.6
