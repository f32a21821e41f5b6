"""Nothing that is printed is wider than the window, and nothing is lost for it."""

from __future__ import annotations

import re

import pytest

from calib.cli.run_output import MOST_LINES, print_summary
from calib.cli.terminal import lay_out, shortened
from calib.reporting import Column, Table
from calib.workflow import Options, calibrate, report

CAMPAIGNS = ("h200-vllm-pp", "h200-sglang-trtllm-pp", "h20-trtllm-pp")
# Each with what a campaign's name stands for; `run` is below, since it writes.
ON_CAMPAIGNS = ("ingest", "check", "decompose", "fit")
ELSEWHERE = (
    ("rules",), ("show",), ("demo", "--list"), ("baseline",), ("baseline", "h200-sglang-trtllm-pp"),
    ("recommend", "--gpus", "8", "--model", "Qwen/Qwen3-8B"), ("plan", "--model", "Qwen/Qwen3-8B"),
    ("show", "dc41948e8608"), ("compare", "dc41948e8608", "41b3fc059ff8"),
    ("recommend", "--gpus", "8", "--model", "Qwen/Qwen3-8B", "--tpot", "5.5"),
)  # fmt: skip


def widest(text):
    """The longest line; a path has no place to break, so it counts as one character."""
    return max((len(re.sub(r"/\S{30,}", "/", line)) for line in text.splitlines()), default=0)


@pytest.mark.parametrize("columns", [80, 60])
@pytest.mark.parametrize("campaign", CAMPAIGNS)
@pytest.mark.parametrize("command", ON_CAMPAIGNS)
def test_no_command_on_a_campaign_prints_a_line_wider_than_the_window(cli, monkeypatch, command, campaign, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    assert 0 < widest(cli(command, campaign).out) <= columns


@pytest.mark.parametrize("arguments", ELSEWHERE, ids=" ".join)
def test_no_other_command_does(cli, arguments):
    done = cli(*arguments)
    assert widest(done.out) <= 80


@pytest.mark.parametrize("campaign", CAMPAIGNS)
@pytest.mark.parametrize("tables", [False, True])
def test_the_main_job_fits_a_window_of_25_lines_and_80_columns(cli, reported, campaign, tables):
    out = reported(campaign)
    done = cli("run", campaign, "--out", out, *(["--tables"] if tables else []))
    assert widest(done.out) <= 80
    assert re.search(rf"^  {out}/\S+/$", done.out, re.M)
    if tables:
        assert len(done.out.splitlines()) > MOST_LINES
    else:
        assert len(done.out.splitlines()) <= MOST_LINES
        assert f"`calib check {campaign}` lists the warnings" in done.out
        assert "Set aside: nothing." in done.out


def test_a_refused_estimate_is_not_printed_as_one(cli, reported):
    out = cli("run", "h20-trtllm-pp", "--out", reported("h20-trtllm-pp")).out
    assert re.search(r"Qwen/Qwen3-32B +REFUSED +- +- +39\.8", out)
    assert "misses the points at C=128 by more than" in out, "why"


def summary(capsys, folder, out, **options):
    """What the main job says of a campaign, without waiting for figures."""
    result = calibrate(folder, Options(**options))
    written = report(result, out, figures=False)
    capsys.readouterr()
    print_summary(str(folder), result, written)
    return capsys.readouterr().out


def test_what_is_set_aside_and_what_stands_beside_a_verdict_is_counted(capsys, tmp_path, vllm_folder, edit):
    edit(vllm_folder / "points.csv", "565.099", "-1")
    out = summary(capsys, vllm_folder, tmp_path, matching="matched")
    said = " ".join(out.split())
    assert "Set aside: 3 no_baseline, 1 implausible_value." in said
    assert "49 littles_law" in said
    assert "REFUSED" in said
    assert len(out.splitlines()) <= MOST_LINES


def test_many_models_are_cut_short_and_it_says_so(capsys, tmp_path, simulated):
    out = summary(capsys, simulated({f"model-{i}": 0.2 for i in range(20)}, noise=0.01), tmp_path)
    assert len(out.splitlines()) <= MOST_LINES
    shown = len(re.findall(r"^ model-\d+ ", out, re.M))
    assert shown >= 3
    assert f"... and {20 - shown} more; `calib show FILE` lists all" in out


def table(*columns, rows=3):
    return Table("t", "T", "", tuple(columns), tuple({c.key: c.key * (i + 2) for c in columns} for i in range(rows)))


def test_columns_that_fit_are_left_as_they_are():
    layout = lay_out(table(Column("a", "a"), Column("b", "b")), 80)
    assert (layout.above, layout.below) == ((), ())
    assert [c.cells for c in layout.blocks[0]] == [("aa", "aaa", "aaaa"), ("bb", "bbb", "bbbb")]


def test_figures_that_do_not_fit_get_a_block_of_their_own_with_the_names_of_the_rows():
    columns = (Column("model", "model"), *(Column(f"x{i}", f"figure{i} [ms]", "ratio") for i in range(9)))
    rows = tuple({"model": f"Qwen/Qwen3-{n}B-Instruct-FP8", **{f"x{i}": n + i for i in range(9)}} for n in (1, 2))
    layout = lay_out(Table("t", "T", "", columns, rows), 60)
    assert len(layout.blocks) > 1
    shown = [c.column.key for block in layout.blocks for c in block]
    assert set(shown) == {"model", *(f"x{i}" for i in range(9))}
    assert all(block[0].column.key == "model" for block in layout.blocks)
    assert all(sum(c.least + 2 for c in block) <= 60 for block in layout.blocks)
    values = {c.cells for block in layout.blocks for c in block if c.column.numeric}
    assert ("1.000", "2.000") in values, "no figure is shortened"


def test_what_is_the_same_in_every_row_stands_once_above():
    columns = (
        Column("backend", "backend"),
        Column("model", "model"),
        *(Column(f"x{i}", f"figure{i}", "ratio") for i in range(8)),
    )
    rows = tuple({"backend": "vllm", "model": f"m{n}", **{f"x{i}": n * i for i in range(8)}} for n in (1, 2))
    layout = lay_out(Table("t", "T", "", columns, rows), 78)
    assert "backend: vllm" in layout.above
    assert "backend" not in {c.column.key for block in layout.blocks for c in block}


def test_sentences_stand_below_and_name_their_rows():
    columns = (
        Column("model", "model"),
        *(Column(f"x{i}", f"figure{i}", "ratio") for i in range(6)),
        Column("why", "why", "long"),
    )
    why = ("a reason of many words that wraps", "another one, of as many words", "a reason of many words that wraps")
    rows = tuple({"model": f"m{n}", "why": w, **{f"x{i}": n * i for i in range(6)}} for n, w in enumerate(why))
    layout = lay_out(Table("t", "T", "", columns, rows), 70)
    assert layout.below == (("m0, m2", why[0]), ("m1", why[1]))


def test_names_are_shortened_in_the_middle_and_never_made_equal():
    assert shortened("Qwen/Qwen3-32B-FP8", 14) == "Qwen/Q…32B-FP8"
    assert shortened("short", 14) == "short"
    columns = (Column("name", "name"), *(Column(f"x{i}", f"figure{i}", "ratio") for i in range(5)))
    rows = tuple({"name": f"org/the-{n}-model-of-the-same-length", **{f"x{i}": n for i in range(5)}} for n in range(5))
    layout = lay_out(Table("t", "T", "", columns, rows), 60)
    names = next(c for c in layout.blocks[0] if c.column.key == "name").cells
    assert len(set(names)) == 5


def test_a_form_of_several_parameters_is_shown_with_all_of_them(capsys, tmp_path):
    options = {"matching": "matched", "form": "log2_concurrency", "pooling": "partial"}
    out = summary(capsys, "h200-vllm-pp", tmp_path, **options)
    assert "s, u [1]" in out
    assert len(out.splitlines()) <= MOST_LINES
