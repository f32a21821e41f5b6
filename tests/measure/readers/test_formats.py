"""Dispatch by content, and what every reader must hold to whatever a file says."""

from __future__ import annotations

import copy
import gzip
import json
import math

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings, strategies as st
from support.paths import DATA

from calib.errors import CalibError, CampaignError
from calib.measure.columns import COUNTS, IDENTITY, MEASURES
from calib.measure.readers.formats import READERS, SUFFIXES, Reader, find_reader, read_file
from calib.measure.readers.read_run import ReadRun, UnreadableRun

FOLDER = DATA / "readers"
FILES = {
    "guidellm_0.3.json": "guidellm", "guidellm_0.4.json": "guidellm", "guidellm_0.5_sweep.json": "guidellm",
    "vllm_old.json": "vllm-bench", "vllm_new.json": "vllm-bench", "vllm_append.json": "vllm-bench",
    "vllm_sweep/run=0.json": "vllm-bench", "agg_dsr1_h200.json": "vllm-bench", "sglang_server_info.jsonl": "sglang-bench",
    "trtllm_report.json": "trtllm-bench", "genai_perf_0.0.16.json": "genai-perf", "genai_perf_flat.json": "genai-perf",
    "genai_perf_flat_nan.json": "genai-perf",
}  # fmt: skip
ONE_DOCUMENT = sorted(n for n in FILES if n not in ("vllm_append.json", "sglang_server_info.jsonl"))
FACTS = {
    "cancelled", "incomplete", "load_type", "requested_requests", "measured_isl", "measured_osl", "incomplete_requests",
    "effective_concurrency", "streaming", "inter_chunk_ms", "inter_token_ms", "start_time", "disaggregated",
    "concurrency_is_cap", "unmapped", "gpu", "dp_attention",
}  # fmt: skip


def load(name):
    return json.loads((FOLDER / name).read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", FILES)
def test_each_document_is_known_to_one_reader_in_any_order(name):
    text = (FOLDER / name).read_text(encoding="utf-8")
    document, _ = json.JSONDecoder().raw_decode(text)
    for readers in (READERS, READERS[::-1]):
        reader = find_reader(document, file=name, readers=readers)
        assert reader is not None
        assert reader.tool == FILES[name]


@pytest.mark.parametrize("name", FILES)
def test_a_packed_file_gives_the_same_runs(name, tmp_path):
    plain = read_file(FOLDER / name, root=FOLDER)
    assert plain
    assert all(isinstance(r, ReadRun) for r in plain)
    for pack, suffix in ((gzip.compress, ".gz"), (zstandard.ZstdCompressor().compress, ".zst")):
        path = tmp_path / (name.replace("/", "_") + suffix)
        path.write_bytes(pack((FOLDER / name).read_bytes()))
        assert [(r.stated, r.facts, r.source_row) for r in read_file(path, root=tmp_path)] == [
            (r.stated, r.facts, r.source_row) for r in plain
        ]


def test_the_order_of_the_files_does_not_matter():
    paths = sorted(FOLDER.rglob("*.json*"))
    one = [r for p in paths for r in read_file(p, root=FOLDER)]
    other = [r for p in reversed(paths) for r in read_file(p, root=FOLDER, readers=READERS[::-1])]
    key = lambda r: (r.source_file, r.source_row)  # noqa: E731
    assert sorted(one, key=key) == sorted(other, key=key)
    assert len({key(r) for r in one}) == len(one)


def test_no_file_of_aiperf_is_taken_for_one_of_another_tool(shared):
    root = shared / "samples" / "aiperf"
    paths = [p for p in sorted(root.rglob("*")) if p.is_file() and p.name.endswith(SUFFIXES)]
    assert len(paths) > 100
    others = tuple(r for r in READERS if r.tool != "aiperf")
    assert [p for p in paths if read_file(p, root=root, readers=others)] == []


def test_ambiguous_content_is_an_error_that_names_both_tools(tmp_path):
    path = tmp_path / "r.json"
    path.write_text(json.dumps({**load("vllm_new.json"), "total_output_tokens_retokenized": 1}), encoding="utf-8")
    for readers in (READERS, READERS[::-1]):
        with pytest.raises(
            CampaignError, match=r"r.json: is taken for a result of sglang-bench and of vllm-bench; leave"
        ):
            read_file(path, root=tmp_path, readers=readers)


@pytest.mark.parametrize(
    "text",
    ["{}", "[]", "null", "7", '"text"', '{"benchmarks": 3}', '{"benchmarks": []}', '[{"model_id": "m"}]', "{}\n{}"],
)
def test_what_no_tool_wrote_is_not_a_run(text, tmp_path):
    path = tmp_path / "r.json"
    path.write_text(text, encoding="utf-8")
    assert read_file(path, root=tmp_path) == []


def test_an_empty_result_is_reported_and_an_empty_log_is_not(tmp_path):
    (tmp_path / "r.json").touch()
    (tmp_path / "gpu_telemetry_export.jsonl").touch()
    (found,) = read_file(tmp_path / "r.json", root=tmp_path)
    assert found == UnreadableRun("r.json", 0, "is empty: the tool was stopped before it wrote its result")
    assert read_file(tmp_path / "gpu_telemetry_export.jsonl", root=tmp_path) == []


def test_runs_before_a_line_that_was_cut_off_are_kept(tmp_path):
    path = tmp_path / "r.jsonl"
    path.write_bytes((FOLDER / "sglang_server_info.jsonl").read_bytes()[:-40])
    first, cut = read_file(path, root=tmp_path)
    assert (first.source_row, first.stated["concurrency"]) == (1, 32)
    assert isinstance(cut, UnreadableRun)
    assert cut.source_row == 2
    assert cut.reason.startswith("is not JSON (line 2")


def test_a_stranger_among_runs_is_reported(tmp_path):
    path = tmp_path / "r.json"
    path.write_text((FOLDER / "vllm_append.json").read_text(encoding="utf-8") + '{"a": 1}\n', encoding="utf-8")
    *runs, stranger = read_file(path, root=tmp_path)
    assert len(runs) == 2
    assert stranger == UnreadableRun("r.json", 3, "holds a document that is no run of a known tool (number 3)")


def test_a_long_trace_is_left_early(tmp_path):
    path = tmp_path / "records.jsonl"
    path.write_text('{"a": 1}\n' * 1000 + '{"a": ', encoding="utf-8")
    assert read_file(path, root=tmp_path) == []  # what comes after the first thousand is not looked at


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.ZstdCompressor().compress])
def test_a_bomb_is_a_run_that_cannot_be_read(pack, tmp_path):
    path = tmp_path / "r.json.gz"
    path.write_bytes(pack(b'{"a": "' + b"x" * 2**24 + b'"}'))
    (found,) = read_file(path, root=tmp_path, limit=2**20)
    assert found == UnreadableRun("r.json.gz", 0, "expands to more than 1 MiB")


@pytest.mark.parametrize("content", [b"\x00\x01\x02", b'{"a": 1, "a": 2}', b"[" * 100_000, b"\xff\xfe{", b"{'a': 1}"])
def test_a_broken_file_is_a_run_that_cannot_be_read(content, tmp_path):
    path = tmp_path / "r.json"
    path.write_bytes(content)
    (found,) = read_file(path, root=tmp_path)
    assert isinstance(found, UnreadableRun)


def test_a_new_tool_is_one_line(tmp_path):
    path = tmp_path / "r.json"
    path.write_text('{"mine": 5}', encoding="utf-8")
    mine = Reader(
        "mine",
        lambda document: isinstance(document, dict) and "mine" in document,
        lambda document, *, file, digest: [ReadRun(file, 0, digest, {"tp": document["mine"]})],
    )
    (run,) = read_file(path, root=tmp_path, readers=(*READERS, mine))
    assert run.stated == {"tp": 5}


def paths_of(document, path=()):
    """Every place in a document that can be taken out or replaced."""
    items = document.items() if isinstance(document, dict) else enumerate(document)
    for key, value in items:
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from paths_of(value, (*path, key))


ODD = st.sampled_from(
    [
        None,
        True,
        False,
        0,
        -1,
        1.5,
        -1.7e12,
        math.nan,
        math.inf,
        10**400,
        "",
        "auto",
        "4.0",
        "inf",
        "\ud800",
        [],
        [[]],
        {},
    ]
) | st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)


def check(found):
    """What holds for every run, whatever the file said."""
    for run in found:
        assert isinstance(run, ReadRun | UnreadableRun)
        if isinstance(run, UnreadableRun):
            assert run.reason
            assert run.reason.isprintable()
            continue
        assert set(run.stated) <= {*IDENTITY, *MEASURES, "tool", "tool_version"}
        assert set(run.facts) <= FACTS
        assert None not in run.stated.values()
        assert None not in run.facts.values()
        for name, value in run.stated.items():
            if name in COUNTS:
                assert type(value) is int
                assert value >= 1
            elif name in MEASURES:
                assert not isinstance(value, bool)
                assert math.isfinite(value)
            else:
                assert isinstance(value, str)
                value.encode("utf-8")


@pytest.mark.parametrize("name", ONE_DOCUMENT)
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_any_change_of_a_document_gives_runs_or_an_error_in_words(name, data):
    document = load(name)
    reader = find_reader(document, file=name)
    for _ in range(data.draw(st.integers(1, 4))):
        places = list(paths_of(document))
        if not places:
            break
        *way, last = data.draw(st.sampled_from(places))
        holder = document
        for step in way:
            holder = holder[step]
        kind = data.draw(st.sampled_from(["remove", "replace", "add"]))
        if kind == "remove":
            del holder[last]
        elif kind == "replace":
            holder[last] = copy.deepcopy(data.draw(ODD))  # or the next change would be made to the strategy
        elif isinstance(holder, dict):
            holder["unheard of"] = copy.deepcopy(data.draw(ODD))
    before = copy.deepcopy(document)
    for each in READERS:
        assert each.recognise(document) in (True, False)
    found, message = [], f"{name} was read"
    try:
        found = reader.parse(document, file=name, digest="d")
    except CalibError as error:
        message = str(error)
    assert name in message
    assert "\n" not in message
    check(found)
    assert repr(document) == repr(before)  # a reader is pure


@pytest.mark.parametrize("reader", READERS, ids=lambda r: r.tool)
@settings(max_examples=100, deadline=None)
@given(document=st.dictionaries(st.text(max_size=8), ODD, max_size=4) | ODD)
def test_any_document_is_recognised_or_not_without_a_crash(reader, document):
    assert reader.recognise(document) in (True, False)


@settings(max_examples=200, deadline=None)
@given(content=st.binary(max_size=60) | st.text(max_size=60).map(lambda t: t.encode("utf-8", "replace")))
def test_any_bytes_give_a_list(content, tmp_path_factory):
    path = tmp_path_factory.getbasetemp() / "any.json"
    path.write_bytes(content)
    check(read_file(path, root=path.parent))
