"""Result files opened: what is packed, cut off, exploding, binary or no JSON ends in one sentence."""

from __future__ import annotations

import gzip
import json
import os
import tracemalloc

import pytest
import zstandard

from calib.errors import CampaignError
from calib.measure.readers.content import BrokenFileError, expand, parse_documents, read_content

DOCUMENT = {"a": [1, 2.5, None, "é"], "b": {"c": True}}
TEXT = json.dumps(DOCUMENT).encode()


def zst(data):
    return zstandard.ZstdCompressor().compress(data)


def documents(content):
    return list(parse_documents(content, file="r.json"))


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zst])
def test_a_packed_file_is_known_by_its_first_bytes_and_not_by_its_name(tmp_path, pack):
    path = tmp_path / "r.json"
    path.write_bytes(pack(TEXT))
    content, digest = read_content(path)
    assert documents(content) == [DOCUMENT]
    assert len(digest) == 64


@pytest.mark.parametrize("pack", [gzip.compress, zst])
def test_packed_parts_one_after_another_are_one_file(pack):
    assert documents(expand(pack(TEXT) + pack(b"\n") + pack(TEXT), file="r")) == [DOCUMENT, DOCUMENT]


@pytest.mark.parametrize("pack", [gzip.compress, zst])
def test_a_bomb_is_refused_before_it_fills_the_memory(pack):
    bomb = pack(bytes(256 * 2**20))
    assert len(bomb) < 2**20
    tracemalloc.start()
    try:
        with pytest.raises(CampaignError, match=r"^r: expands to more than 16 MiB; name a result file"):
            expand(bomb, file="r", limit=16 * 2**20)
        assert tracemalloc.get_traced_memory()[1] < 64 * 2**20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("pack", [gzip.compress, zst])
def test_a_file_of_countless_empty_parts_is_refused_in_time(pack):
    with pytest.raises(BrokenFileError, match="it has more than 100000 parts"):
        expand(pack(b"") * 200_000, file="r")


def test_a_frame_that_asks_for_gigabytes_is_refused():
    wide = zstandard.ZstdCompressor(compression_params=zstandard.ZstdCompressionParameters(window_log=30))
    stream = wide.compressobj()  # of unknown size, so that the frame demands its whole window
    with pytest.raises(BrokenFileError, match="damaged"):
        expand(stream.compress(TEXT) + stream.flush(), file="r")


def test_a_key_twice_among_a_million_is_found_in_time():
    many = ",".join(f'"{i}": 0' for i in range(300_000))
    with pytest.raises(BrokenFileError, match="has the key '299999' twice"):
        documents(f'{{{many}, "299999": 1}}'.encode())


def test_the_limit_holds_for_a_plain_file_too(tmp_path):
    path = tmp_path / "r.json"
    path.write_bytes(b"[" + b" " * 2000 + b"]")
    with pytest.raises(BrokenFileError, match="over"):
        read_content(path, limit=1000)
    assert documents(read_content(path, limit=2002)[0]) == [[]]


@pytest.mark.parametrize(("name", "pack"), [("gzip", gzip.compress), ("zstd", zst)])
@pytest.mark.parametrize("keep", [4, 9, 0.5, -1])
def test_a_packed_file_that_was_cut_off_is_not_taken_for_a_whole_one(name, pack, keep):
    data = pack(TEXT * 50)
    cut = data[: int(len(data) * keep)] if isinstance(keep, float) else data[:keep]
    with pytest.raises(BrokenFileError, match=f"is a damaged or incomplete {name} file"):
        expand(cut, file="r")


def test_a_packed_file_with_other_bytes_behind_is_damaged():
    for data in (gzip.compress(TEXT), zst(TEXT)):
        with pytest.raises(BrokenFileError, match="damaged"):
            expand(data + b"trailing bytes", file="r")


@pytest.mark.parametrize("between", ["\n", "", " \r\n\t", "\n\n\n"])
def test_documents_one_a_line_or_simply_concatenated(between):
    assert documents(between.join(['{"a": 1}', "[2]", '{"b": 3}']).encode()) == [{"a": 1}, [2], {"b": 3}]


def test_a_byte_order_mark_is_no_part_of_the_document():
    assert documents(b"\xef\xbb\xbf" + TEXT) == [DOCUMENT]


def test_literals_that_are_no_json_are_read_as_numbers():
    (document,) = documents(b'{"rate": Infinity, "low": -Infinity, "none": NaN}')
    assert document["rate"] == float("inf")
    assert document["low"] == float("-inf")
    assert document["none"] != document["none"]


@pytest.mark.parametrize("content", [b"", b" \n\t ", b"\xef\xbb\xbf"])
def test_nothing_is_no_document(content):
    assert documents(content) == []


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b'{"a": 1', "is not JSON (line 1, column 8: Expecting ',' delimiter)"),
        (b"ttft,itl\n1,2\n", "is not JSON (line 1, column 1: Expecting value)"),
        (b"[" * 200_000, "is nested too deep for a result file"),
        (b'{"a":' * 200_000, "is nested too deep for a result file"),
        (b'{"a": ' + b"9" * 5000 + b"}", "holds a number of thousands of digits"),
        (b'{"tp": 4, "pp": 2, "tp": 8}', "has the key 'tp' twice in one object"),
        ('{"a": 1}'.encode("utf-16"), "is UTF-16 text"),
        (b"\x80\x81\x82", "is not UTF-8 text (byte 0)"),
        (b"PK\x03\x04\x00\x00", "is a binary file"),
    ],
)
def test_what_is_no_json_is_named_in_one_sentence(content, problem):
    with pytest.raises(BrokenFileError) as caught:
        documents(content)
    assert caught.value.problem == problem
    assert "\n" not in str(caught.value)


def test_documents_before_a_broken_one_are_read():
    stream = parse_documents(b'{"a": 1}\n{"a": 2}\n{"a": ', file="r")
    assert next(stream) == {"a": 1}
    assert next(stream) == {"a": 2}
    with pytest.raises(BrokenFileError, match="line 3"):
        next(stream)


def test_what_is_no_file_is_refused_and_never_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.json")
    for path in (tmp_path, tmp_path / "missing.json", tmp_path / "pipe.json"):
        with pytest.raises(BrokenFileError, match="is not a file"):
            read_content(path)
