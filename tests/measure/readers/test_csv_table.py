"""CSV tables: values or a clear error, never a guess."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from calib.errors import CalibError, CampaignError
from calib.measure.readers.csv_table import KNOWN, parse_table
from calib.measure.readers.read_run import ReadRun, UnreadableRun

HEADER = b"model,tp,pp,concurrency,output_tokens_per_s\n"


def parse(data: bytes, columns=None, ignore=()):
    return parse_table(data, file="t.csv", columns=columns or {}, ignore=ignore)


def test_values_types_and_line_numbers():
    (a, b) = parse(HEADER + b"m,4,2,64,1000.5\nn,8,1,,1e3\n")
    assert a.stated == {"model": "m", "tp": 4, "pp": 2, "concurrency": 64, "output_tokens_per_s": 1000.5}
    assert b.stated == {"model": "n", "tp": 8, "pp": 1, "output_tokens_per_s": 1000.0}
    assert (a.source_file, a.source_row, b.source_row) == ("t.csv", 2, 3)
    assert a.source_sha256 == b.source_sha256


@pytest.mark.parametrize(
    "data",
    [
        b"\xef\xbb\xbf" + HEADER + b"m,4,2,64,1\n",
        HEADER.replace(b"\n", b"\r\n") + b"m,4,2,64,1\r\n",
        HEADER + b"m,4,2,64,1",
    ],
)
def test_byte_order_mark_line_ends_and_a_missing_last_one(data):
    (run,) = parse(data)
    assert run.stated["output_tokens_per_s"] == 1.0


def test_columns_are_mapped_and_ignored_by_name():
    (run,) = parse(b"who,tok,comment\nm,5,fast\n", {"who": "model", "tok": "output_tokens_per_s"}, ["comment"])
    assert run.stated == {"model": "m", "output_tokens_per_s": 5.0}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"model,speed\nm,1\n", "'speed': is not a column of the run table"),
        (b"model,model\nm,m\n", "'model': stands twice"),
        (b"", "has no header"),
        (b"model\n\xff\n", "not UTF-8 text"),
        (b'model\n"m\n', "not a CSV table"),
        (b"campaign,model\nc,m\n", "'campaign': is not a column"),
    ],
)
def test_what_cannot_be_a_table_of_runs_is_an_error(data, words):
    with pytest.raises(CampaignError, match=words) as error:
        parse(data)
    assert str(error.value).startswith("t.csv")


def test_quotes_may_hold_commas_and_line_ends():
    (a, b) = parse(b'model,tool\n"a,b","x\ny"\nc,d\n')
    assert a.stated["model"] == "a,b"
    assert (a.source_row, b.source_row) == (3, 4)


@given(st.binary(max_size=200))
def test_any_bytes_give_runs_or_a_calib_error(data):
    try:
        found = parse(data)
    except CalibError:
        return
    assert all(isinstance(r, (ReadRun, UnreadableRun)) for r in found)


@given(
    st.lists(st.sampled_from(sorted(KNOWN)), min_size=1, max_size=8, unique=True),
    st.lists(st.text(max_size=8), max_size=8),
)
def test_any_cells_give_runs_or_a_calib_error(names, cells):
    import csv
    import io

    out = io.StringIO()
    csv.writer(out).writerows([names, cells])
    try:
        found = parse(out.getvalue().encode("utf-8", "surrogatepass"))
    except CalibError:
        return
    assert len(found) <= 1


@pytest.mark.parametrize(
    ("columns", "ignore", "words"),
    [
        ({"tok_s": "throughput"}, (), "is mapped to 'throughput', which is no column of the run table"),
        ({"tok_s": "output_tokens_per_s"}, ("tok_s",), "is mapped to output_tokens_per_s and ignored"),
        ({"tps": "output_tokens_per_s"}, (), "is not a column of the table, which has model, tp, pp, tok_s"),
    ],
)
def test_a_mapping_that_cannot_be_says_what_is_wrong_with_it(columns, ignore, words):
    with pytest.raises(CampaignError, match=words):
        parse(b"model,tp,pp,tok_s\nm,4,2,1000\n", columns, ignore)
