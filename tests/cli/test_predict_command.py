"""release, withdraw, compare, show, predict, apply and recommend, as a user calls them."""

from __future__ import annotations

import csv
import io
import json

import msgspec
import pytest
from support.paths import DATA

FILES = DATA / "aiconfigurator"


def flat(text):
    """Sentences as they were before they were wrapped to the window."""
    return " ".join(text.split())


POINT = (
    "--model", "Qwen/Qwen3-8B", "--system", "h200_sxm", "--backend", "vllm", "--backend-version", "0.19.1", "--tp", 2,
    "--pp", 4, "--isl", 4000, "--osl", 1000,
)  # fmt: skip


@pytest.fixture
def candidate(peak_set, tmp_path):
    path = tmp_path / "candidate.json"
    msgspec.structs.replace(peak_set, supersedes=None, calib_version="test").sealed().save(path)
    return path


@pytest.fixture
def newer(peak_set, tmp_path):
    path = tmp_path / "newer.json"
    first = peak_set.coefficients[0]
    e = first.estimate
    moved = msgspec.structs.replace(
        first, estimate=msgspec.structs.replace(e, values=(e.values[0] + 10 * e.stderr[0],))
    )
    changed = msgspec.structs.replace(peak_set, supersedes=None, coefficients=(moved, *peak_set.coefficients[1:]))
    changed.sealed().save(path)
    return path


def test_release_show_compare_and_withdraw(cli, candidate, newer, tmp_path):
    registry = tmp_path / "registry"
    made = cli("release", candidate, "--registry", registry, "--why", "first")
    assert made.code == 0, made.err
    assert "passed: left-out error of vllm (" in made.out
    digest = json.loads(candidate.read_text())["digest"]
    assert f"digest {digest[:12]}" in made.out
    again = cli("release", newer, "--registry", registry, "--why", "second")
    assert f"supersedes {digest[:12]}" in again.out
    assert "combined standard errors" in flat(again.out)
    shown = cli("show", "--registry", registry)
    assert "2 releases, 1 of them standing" in shown.out
    assert "superseded" in shown.out
    compared = cli("compare", candidate, newer)
    assert "parameters move by at most 7.1 combined standard errors" in flat(compared.out)
    assert cli("compare", candidate, newer, "--gate-z", 3).code == 1
    assert cli("compare", candidate, newer, "--gate-z", 8).code == 0
    assert cli("compare", candidate, newer, "--gate-change", 0.01).code == 1
    assert json.loads(cli("compare", candidate, newer, "--json").out)["largest_z"] == pytest.approx(50**0.5)
    gone = cli("withdraw", digest[:8], "--registry", registry, "--why", "wrong driver")
    assert gone.code == 0
    refused = cli("predict", registry / f"coefficients-{digest[:12]}.json", *POINT)
    assert refused.code == 3
    assert "was withdrawn at" in refused.err
    assert "wrong driver" in refused.err
    assert "WITHDRAWN" in cli("show", candidate, "--registry", registry).out
    assert len(json.loads(cli("show", "--registry", registry, "--json").out)["entries"]) == 3


def test_releasing_needs_a_registry_and_a_gate_that_fails_ends_with_1(cli, candidate, tmp_path):
    missing = cli("release", candidate, "--why", "x")
    assert missing.code == 2
    assert "'--registry': is needed to write" in missing.err
    failed = cli("release", candidate, "--registry", tmp_path / "r", "--why", "x", "--max-error", 0.1)
    assert failed.code == 1
    assert "percentage points" in failed.err
    assert not (tmp_path / "r").exists()


def test_show_says_whether_a_file_is_released(cli, candidate):
    assert "not released: a candidate" in cli("show", candidate).out
    assert "Balance factors" in cli("show", candidate).out


@pytest.mark.parametrize("text", ["", "{", "[]", "\x00"])
def test_broken_files_are_one_sentence(cli, tmp_path, text):
    path = tmp_path / "broken.json"
    path.write_text(text)
    for command in (("show", path), ("compare", path, path), ("predict", path, *POINT),
                    ("release", path, "--why", "x", "--registry", tmp_path / "r")):  # fmt: skip
        done = cli(*command)
        assert (done.code, done.out) == (3, "")
        assert done.err.startswith(f"calib: error: {path}: ")
        assert done.err.count("\n") == 1


def test_predict_takes_the_newest_release_and_says_which(cli):
    done = cli("predict", *POINT, "--baseline", 1000)
    assert done.code == 0, done.err
    (row,) = csv.DictReader(io.StringIO(done.out))
    assert 0 < float(row["predicted_output_tokens_per_s"]) < 1000
    assert f"corrected by coefficient file {row['calib_applied'][:12]} (" in done.err
    assert "reference 'baseline'" in done.err


def test_predict_extrapolates_only_where_it_is_named(cli):
    far = (*POINT, "--concurrency", 4096)
    refused = cli("predict", *far)
    assert refused.code == 3
    assert "no released file covers the question" in refused.err
    (row,) = json.loads(cli("predict", *far, "--extrapolate", "concurrency", "--json").out)
    assert row["flag"] == "extrapolated"
    assert cli("predict", *far, "--extrapolate", "colour").code == 2


def test_predict_without_correction_says_so(cli):
    done = cli("predict", *POINT, "--baseline", 1000, "--no-correction", "--json")
    (row,) = json.loads(done.out)
    assert (row["factor"], row["predicted_output_tokens_per_s"], row["flag"]) == (1.0, 1000.0, "uncorrected")
    assert row["calib_applied"] == "none"
    assert "no correction was applied" in done.err


def test_predict_with_an_engine_asks_for_what_it_needs(cli):
    done = cli("predict", *POINT, "--engine", "aiconfigurator")
    assert done.code == 3
    assert "has reference 'baseline'" in done.err  # nothing of reference 'model' is released


def test_apply_ranks_again_and_says_what_changed(cli, tmp_path):
    out = tmp_path / "ranked.csv"
    done = cli("apply", FILES / "best_config_topn.csv", "--extrapolate", "all", "--out", out)
    assert done.code == 0, done.err
    assert "first before: TP1/PP8" in done.err
    assert "first now: TP8/PP1" in done.err
    assert "corrected by coefficient file" in done.err
    first = next(csv.DictReader(io.StringIO(out.read_text())))
    assert (first["tp"], first["pp"], first["calib_rank"]) == ("8", "1", "1")
    again = cli("apply", FILES / "best_config_topn.csv", "--extrapolate", "all", "--out", out)
    assert again.code == 3
    assert "not overwritten" in again.err
    assert "corrected before" in cli("apply", out).err


def test_apply_without_opting_in_says_what_lies_outside_and_what_to_do(cli):
    done = cli("apply", FILES / "best_config_topn.csv")
    assert done.code == 0
    assert "3 of 4 rows could not be corrected" in done.err
    assert "--extrapolate widens the domain" in done.err
    assert len(done.out.splitlines()) == 5


def test_apply_with_an_option_that_cannot_be_is_a_usage_error_and_not_a_remark_a_row(cli):
    done = cli("apply", FILES / "best_config_topn.csv", "--extrapolate", "nonsense")
    assert (done.code, done.out) == (2, "")
    assert "use backend_version, tp, pp" in done.err


def test_apply_on_what_is_no_such_table(cli, tmp_path):
    assert cli("apply", tmp_path / "none.csv").code == 3
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    done = cli("apply", tmp_path / "other.csv")
    assert done.code == 3
    assert "is not a table of the aiconfigurator command" in done.err
    (tmp_path / "bytes.csv").write_bytes(b"\xff\xfe")
    assert "is not UTF-8" in cli("apply", tmp_path / "bytes.csv").err


@pytest.mark.parametrize("model", ["Qwen/Qwen3-0.6B", "Qwen/Qwen3-8B", "Qwen/Qwen3-14B", "Qwen/Qwen3-32B-FP8"])
def test_recommend_names_the_measured_best_for_every_model(cli, model):
    done = cli("recommend", "--gpus", 8, "--model", model)
    assert done.code == 0, done.err
    assert done.out.startswith("TP8/PP1 x1 at ")
    assert "the uncalibrated model would have chosen TP1/PP8 x1" in flat(done.out)
    assert "corrected by coefficient file" in done.err


def test_recommend_under_limits_and_beyond_what_is_known(cli):
    assert json.loads(cli("recommend", "--gpus", 8, "--model", "Qwen/Qwen3-8B", "--json").out)["choices"]
    limited = cli("recommend", "--gpus", 8, "--model", "Qwen/Qwen3-8B", "--tpot", 5.5)
    assert "(not calibrated) is over 5.5 ms" in flat(limited.out)
    for wrong, code in (
        (("--gpus", 12, "--model", "Qwen/Qwen3-8B"), 2), (("--gpus", 8, "--model", "nope"), 2),
        (("--gpus", 8, "--model", "Qwen/Qwen3-8B", "--backend-version", "0.24.0"), 3),
        (("--gpus", 8, "--model", "Qwen/Qwen3-8B", "--no-correction"), 2),
    ):  # fmt: skip
        done = cli("recommend", *wrong)
        assert (done.code, done.out) == (code, ""), done
        assert done.err.count("\n") == 1
