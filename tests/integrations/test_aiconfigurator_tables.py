"""Tables of the aiconfigurator command, corrected and ranked again; `tests/data/aiconfigurator` holds real ones."""

from __future__ import annotations

import csv
import io

import msgspec
import pytest
from support.paths import DATA

import calib
from calib import errors
from calib.integrations.aiconfigurator_rows import parse_results
from calib.integrations.aiconfigurator_tables import ADDED, ApplyOptions, apply_to_results, best_predictor

FILES = DATA / "aiconfigurator"
TOP, PARETO = (FILES / name for name in ("best_config_topn.csv", "pareto.csv"))
WIDE = ApplyOptions(extrapolate=True, allow_refused=("Qwen/Qwen3-8B",))


@pytest.fixture(scope="module")
def peak(peak_set):
    return calib.Predictor(peak_set)


@pytest.fixture(scope="module")
def matched(matched_set):
    return calib.Predictor(matched_set)


def as_model(c):
    """The matched set as if it had been fitted for the model's own throughput."""
    filled = tuple(msgspec.structs.replace(b, fill=1.0) for b in c.balance_factors)
    content = {"reference": "model", "fill_rule": "occupancy", "balance_factors": filled}
    return calib.Predictor(msgspec.structs.replace(c, **content).sealed())


def applied(path, predictor, options=WIDE):
    return apply_to_results(*parse_results(path.read_text()), predictor, options)


@pytest.mark.parametrize("path", [TOP, PARETO])
def test_the_uncalibrated_first_is_tp1_pp8_and_the_calibrated_first_is_what_silicon_ranks_first(path, peak):
    made = applied(path, peak)
    before = min(made.rows, key=lambda r: r["uncalibrated_rank"])
    assert (before["tp"], before["pp"]) == ("1", "8")
    assert (made.rows[0]["tp"], made.rows[0]["pp"], made.rows[0]["calib_rank"]) == ("8", "1", 1)


def test_the_whole_order_of_the_best_configurations_is_turned_over(peak, matched_set):
    for predictor in (peak, as_model(matched_set)):
        made = applied(TOP, predictor)
        assert [(r["tp"], r["pp"], r["uncalibrated_rank"]) for r in made.rows] == [
            ("8", "1", 4), ("4", "2", 3), ("2", "4", 2), ("1", "8", 1),
        ]  # fmt: skip
        said = "\n".join(made.describe())
        assert (
            "first before: TP1/PP8 at concurrency 1408 (3555 tok/s a GPU); first now: TP8/PP1 at concurrency 512"
            in said
        )
        assert "6 of 6 pairs of the 4 ranked rows changed their order" in said


def test_a_baseline_coefficient_multiplies_the_tables_own_pp1_row(peak):
    made = applied(TOP, peak)
    base = float(made.rows[0]["tokens/s"])
    assert made.rows[0]["calib_tokens/s"] == base
    factor = peak.factor(
        {"model": "Qwen/Qwen3-8B", "system": "h200_sxm", "backend": "vllm", "backend_version": "0.19.1", "tp": 4, "pp": 2,
         "isl": 4000, "osl": 1000}
    ).value[0]  # fmt: skip
    assert made.rows[1]["calib_tokens/s"] == pytest.approx(base * factor)
    assert made.rows[1]["calib_tokens/s/gpu"] == pytest.approx(base * factor / 8)
    assert any("a prediction and not a measurement" in line for line in made.describe())


def test_rows_outside_the_domain_keep_their_figures_and_get_the_reason(peak):
    made = applied(TOP, peak, ApplyOptions())
    assert [r["calib_rank"] for r in made.rows] == [None] * 4  # a ranking of the PP=1 row alone is none
    assert made.corrected == 0
    outside = [r for r in made.rows if r["calib_problem"]]
    assert len(outside) == 3
    assert all(r["calib_applied"] == "none" for r in outside)
    said = "\n".join(made.describe())
    assert "no row with PP>1 could be corrected, so there is no new ranking" in said
    assert "3 of 4 rows could not be corrected: no coefficient covers" in said
    assert "was fitted for vllm 0.19.1" in said
    by_version = "\n".join(applied(TOP, peak, ApplyOptions(backend_version="0.19.1")).describe())
    assert "concurrency: lies outside what the coefficient was fitted on, 64 to 64" in by_version


def test_extrapolated_rows_are_flagged_and_their_interval_is_wide(peak):
    made = applied(TOP, peak)
    assert [r["calib_flag"] for r in made.rows] == ["identity", *["extrapolated"] * 3]
    for r in made.rows[1:]:
        assert r["calib_tokens/s_high95"] - r["calib_tokens/s_low95"] > 0.5 * r["calib_tokens/s"]
    assert "3 of 4 rows lie outside the coefficients' domain and are extrapolated" in made.describe()


def test_a_pareto_front_says_that_it_may_lack_the_peak_and_which_rows_are_no_peak(peak):
    said = "\n".join(applied(PARETO, peak).describe())
    assert "best TP=G/PP1 row is at concurrency 24 and its PP>1 rows go up to 1408" in said
    assert "42 of 60 rows could not be corrected: not the best row of its configuration" in said


def test_matched_coefficients_need_a_pp1_row_at_the_same_concurrency(matched):
    made = applied(TOP, matched)
    assert made.corrected == 0
    assert "the table has no TP=G/PP1 row at its concurrency" in "\n".join(made.describe())
    text = TOP.read_text()
    pp1 = text.splitlines()[-1]
    with_base = text + pp1.replace(",512,", ",1408,", 1).replace("18138.332", "20000.0") + "\n"
    again = apply_to_results(*parse_results(with_base), matched, WIDE)
    assert {r["pp"] for r in again.rows if r["calib_rank"] is not None} == {"1", "4", "8"}
    assert (again.rows[0]["tp"], again.rows[0]["concurrency"]) == ("8", "1408")


def test_the_file_that_corrects_most_rows_is_taken(peak, matched):
    header, rows = parse_results(TOP.read_text())
    assert best_predictor(header, rows, [matched, peak], WIDE).applied == peak.coefficients.digest
    assert (
        best_predictor(header, rows, [matched, peak], ApplyOptions()).applied == matched.coefficients.digest
    )  # the newest
    with pytest.raises(errors.PointError, match="no coefficient file is released"):
        best_predictor(header, rows, [], WIDE)


def test_no_row_is_dropped_and_the_table_can_be_read_again(peak):
    made = applied(PARETO, peak)
    assert len(made.rows) == 60
    header, *rows = csv.reader(io.StringIO(made.to_csv()))
    assert len(rows) == 60
    assert tuple(header[-len(ADDED) :]) == ADDED
    with pytest.raises(errors.AlreadyAppliedError, match="corrected before"):
        parse_results(made.to_csv())


def test_turned_off_nothing_changes_and_the_table_says_so(peak):
    made = applied(TOP, peak, ApplyOptions(correction="off"))
    assert [r["uncalibrated_rank"] for r in made.rows] == [r["calib_rank"] for r in made.rows] == [1, 2, 3, 4]
    assert all(r["calib_tokens/s"] == float(r["tokens/s"]) for r in made.rows)
    assert made.applied == "none"
    assert {r["calib_applied"] for r in made.rows} == {"none"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t.replace("concurrency,", "load,", 1), r"f.csv: field 'concurrency': is not a table of the aiconf"),
        (lambda t: t.replace(",1408,", ",many,", 1), r"'concurrency' = 'many': line 2 is not a positive whole number"),
        (lambda t: t.replace(",1408,", ",1408.5,", 1), r"line 2 is not a positive whole"),
        (lambda t: t.replace("28440.048", "nan", 1), r"'tokens/s' = 'nan': line 2 is not a positive number"),
        (lambda t: t.replace("28440.048", "-1", 1), r"line 2 is not a positive number"),
        (lambda t: t + "short,line\n", r"line 6 has another number of cells"),
        (lambda t: t.splitlines()[0], r"holds no rows"),
        (lambda _: "", r"column missing"),
        (lambda _: '"', r"is not a CSV table"),
    ],
)
def test_what_is_no_such_table_is_said(change, words):
    with pytest.raises(errors.PointError, match=words):
        parse_results(change(TOP.read_text()), file="f.csv")


def test_data_parallel_rows_are_outside(peak):
    text = TOP.read_text().replace(",8,1,8,1,", ",8,1,8,2,", 1)
    made = apply_to_results(*parse_results(text), peak, WIDE)
    assert any("dp" in str(r["calib_problem"]) for r in made.rows)
