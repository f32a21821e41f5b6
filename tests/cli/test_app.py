"""The command line as a user and a nightly job meet it."""

from __future__ import annotations

import csv
import json
import subprocess
import sys

import pandas as pd
import pytest

from calib.workflow import Options, report

POINT = (
    "--system", "h200_sxm", "--backend", "vllm", "--backend-version", "0.19.1", "--isl", "4000", "--osl", "1000",
    "--model", "Qwen/Qwen3-8B",
)  # fmt: skip


@pytest.fixture
def coefficients(calibrated, tmp_path):
    path = tmp_path / "c.json"
    calibrated("h200-vllm-pp").coefficients.save(path)
    return path


def test_run_prints_a_summary_or_every_table_and_names_its_files(cli, tmp_path):
    done = cli("run", "--out", tmp_path)
    assert done.code == 0
    assert done.err == ""
    (folder,) = tmp_path.iterdir()
    assert f"\n  {folder}/\n    coefficients-v1.json, report.html, report.md, report.json, 12 figures\n" in done.out
    every = cli("run", "--tables", "--out", tmp_path).out
    for words in ("Observed efficiency", "0.791", "Where the throughput goes", "FIT", "leave-one-pp-out", "published"):
        assert words in every
    assert "published" not in done.out
    again = cli("run", "--out", tmp_path)
    assert again.code == 0
    assert "Nothing new" in again.out


def test_run_json_is_one_document_in_full_precision(cli, tmp_path):
    done = cli("run", "--json", "--out", tmp_path)
    found = json.loads(done.out)
    assert found["new"] is True
    assert found["coefficients"][0]["s"] == pytest.approx(0.2060, abs=1e-3)
    assert len(repr(found["coefficients"][0]["s"])) > 10
    assert {f["rule"] for f in found["findings"]} == {
        "disputed_label", "few_requests", "littles_law", "no_microbatching", "peak_at_edge",
    }  # fmt: skip
    assert cli("run", "--json", "--out", tmp_path).out.count('"new": false') == 1


def test_ingest_lists_runs_and_reasons(cli, vllm_folder, edit):
    edit(vllm_folder / "points.csv", "565.099", "-1")
    done = cli("ingest", vllm_folder)
    assert done.code == 0
    assert "104 runs" in done.out
    assert "implausible_value" in done.out
    assert "points.csv:2" in done.out
    (found,) = json.loads(cli("ingest", vllm_folder, "--json").out)["campaigns"]
    assert len(found["runs"]) == 104
    assert cli("ingest", vllm_folder, "--strict").code == 3


def test_ingest_takes_several_campaigns(cli, vllm_folder):
    done = cli("ingest", vllm_folder, "h20-trtllm-pp")
    assert "== h200-vllm-pp" in done.out
    assert "== h20-trtllm-pp" in done.out
    assert [
        len(c["runs"]) for c in json.loads(cli("ingest", vllm_folder, "h20-trtllm-pp", "--json").out)["campaigns"]
    ] == [104, 15]


def test_check_lists_every_finding(cli, vllm_folder, edit):
    edit(vllm_folder / "points.csv", "565.099", "-1")
    done = cli("check", vllm_folder)
    assert done.code == 0
    assert "1 REJECT of 104 runs" in done.out
    assert done.out.count("littles_law") == 49
    points = vllm_folder / "points.csv"
    pd.read_csv(points).assign(output_tokens_per_s="nan").to_csv(points, index=False)
    assert cli("check", vllm_folder).code == 3


def test_a_run_without_its_baseline_is_told_before_anything_is_calibrated(cli, vllm_folder):
    points = vllm_folder / "points.csv"
    frame = pd.read_csv(points)
    frame[(frame["pp"] > 1) | (frame["model"] != "Qwen/Qwen3-8B")].to_csv(points, index=False)
    for command in ("ingest", "check"):
        assert "no_baseline" in cli(command, vllm_folder).out
    assert cli("check", vllm_folder, "--json").out.count('"no_baseline"') == 3  # one a topology


def test_warnings_are_shown_beside_refusals(cli, reported):
    out = reported("h200-vllm-pp", Options(matching="matched"))
    shown = " ".join(cli("run", "--tables", "--matching", "matched", "--out", out).out.split())
    assert "Qwen/Qwen3-14B REFUSED: 1 - s*log2(pp) misses the points" in shown
    assert "Qwen/Qwen3-8B FIT: disputed_label at" in shown


def test_rules_are_listed_with_their_limits(cli):
    from calib.measure.screening.catalogue import RULE_NAMES

    done = cli("rules")
    assert all(name in done.out for name in RULE_NAMES)
    found = {r["rule"]: r for r in json.loads(cli("rules", "--json").out)["rules"]}
    assert found["littles_law"]["limit"] == 0.95
    assert found["cancelled"]["limit"] is None


def test_decompose_and_fit_as_tables_and_json(cli):
    table = cli("decompose").out
    assert all(heading in table for heading in ("scheduling", "balance", "factor", "penalty"))
    assert table.count("Qwen/Qwen3-14B ") == 6, "two blocks of columns, each with the rows"
    assert len(json.loads(cli("decompose", "--json", "--matching", "matched").out)["points"]) == 78
    rows = json.loads(cli("fit", "--json", "h20-trtllm-pp").out)["coefficients"]
    assert rows[0]["verdict"] == "REFUSED"


def test_report_prints_the_markdown(cli, reported):
    out = reported("h200-vllm-pp")
    done = cli("report", "--out", out)
    assert done.out.startswith("# Qwen3-0.6B")
    assert str(out) in done.err


def test_show_is_readable_and_its_json_is_the_file(cli, coefficients):
    done = cli("show", coefficients)
    assert "factor = balance_factor * (1 - s*log2(pp))" in done.out
    assert "Qwen/Qwen3-32B-FP8" in done.out
    assert cli("show", coefficients, "--json").out == coefficients.read_text()


def test_fit_does_not_write_over_another_file(cli, coefficients, tmp_path):
    before = coefficients.read_bytes()
    assert cli("fit", "--out", coefficients).code == 0
    assert cli("fit", "--out", tmp_path / "new.json").code == 0
    assert json.loads((tmp_path / "new.json").read_bytes())["digest"] == json.loads(before)["digest"]
    done = cli("fit", "h20-trtllm-pp", "--out", coefficients)
    assert done.code == 3
    assert "never overwritten" in done.err
    assert coefficients.read_bytes() == before


def test_predict_one_point_and_a_table(cli, coefficients, tmp_path):
    one = cli("predict", coefficients, *POINT, "--tp", "2", "--pp", "4", "--baseline", "10208.526", "--json")
    (row,) = json.loads(one.out)
    assert row["flag"] == "exact"
    assert row["predicted_output_tokens_per_s"] == 10208.526 * row["factor"]
    table = tmp_path / "points.csv"
    table.write_text(
        "model,system,backend,backend_version,tp,pp,isl,osl,concurrency,baseline_output_tokens_per_s\n"
        "Qwen/Qwen3-8B,h200_sxm,vllm,0.19.1,2,4,4000,1000,,10208.526\n"
        "Qwen/Qwen3-8B,h200_sxm,vllm,0.19.1,8,1,4000,1000,,10208.526\n"
    )
    done = cli("predict", coefficients, "--points", table)
    rows = list(csv.DictReader(done.out.splitlines()))
    assert float(rows[0]["factor"]) == row["factor"]
    assert rows[1]["predicted_output_tokens_per_s"] == "10208.526"
    out = tmp_path / "predicted.csv"
    out.write_text(done.out)
    twice = cli("predict", coefficients, "--points", out)
    assert twice.code == 3
    assert "corrected before" in twice.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--tp", "1", "--pp", "16"), "outside what the coefficient was fitted on"),
        (("--tp", "1"), "'pp': is missing"),
        (("--tp", "2", "--pp", "4", "--concurrency", "8"), "64 to 64"),
    ],
)
def test_a_refused_prediction_is_exit_3_and_one_sentence(cli, coefficients, arguments, words):
    done = cli("predict", coefficients, *POINT, *arguments)
    assert done.code == 3
    assert done.out == ""
    assert words in done.err
    assert done.err.count("\n") == 1
    assert done.err.startswith("calib: error: ")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("run", "nowhere"), 3),
        (("run", "--matching", "best"), 2),
        (("run", "--error-floor", "0"), 2),
        (("run", "--colour"), 2),
        (("paint",), 2),
        (("predict", "c.json"), 2),
        (("predict", "c.json", "--points", "p.csv"), 3),
        (("show", "none.json"), 3),
        (("breakdown", "--table-version", "vllm"), 2),
        (("--version",), 0),
        (("--help",), 0),
    ],
)
def test_exit_codes(cli, arguments, code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = cli(*arguments)
    assert done.code == code
    assert (done.err == "") == (code == 0)
    assert list(tmp_path.iterdir()) == []


def test_gates(cli, tmp_path, calibrated):
    for name in ("h200-vllm-pp", "h20-trtllm-pp"):
        report(calibrated(name), tmp_path, figures=False)
    assert cli("run", "--out", tmp_path, "--gate-error", "2.0", "--gate-refused").code == 0
    done = cli("run", "--out", tmp_path, "--gate-error", "1.0")
    assert done.code == 1
    assert "left-out mean error of vllm is 1.56 pp, over 1 pp" in done.err
    done = cli("run", "h20-trtllm-pp", "--out", tmp_path, "--gate-refused")
    assert done.code == 1
    assert "refused for Qwen/Qwen3-32B on trtllm" in done.err
    assert len(list(tmp_path.iterdir())) == 2  # the results are there all the same


@pytest.mark.parametrize("change", ["no-baseline", "empty", "unreadable", "nan"])
def test_bad_data_leaves_a_good_output_alone(cli, vllm_folder, tmp_path, change, calibrated):
    out = tmp_path / "reports"
    report(calibrated("h200-vllm-pp"), out, figures=False)
    before = {p: p.read_bytes() for p in out.rglob("*") if p.is_file()}
    points = vllm_folder / "points.csv"
    if change == "unreadable":
        points.write_bytes(b"\xff\xfe\x00\x01")
    else:
        frame = pd.read_csv(points)
        frame = frame[frame["pp"] > 1] if change == "no-baseline" else frame[:0] if change == "empty" else frame
        frame.assign(**({"output_tokens_per_s": "nan"} if change == "nan" else {})).to_csv(points, index=False)
    done = cli("run", vllm_folder, "--out", out)
    assert done.code == 3
    assert done.err.startswith("calib: error: ")
    assert done.err.count("\n") == 1
    assert {p: p.read_bytes() for p in out.rglob("*") if p.is_file()} == before


def in_a_process(*arguments: str, code: str = "") -> subprocess.CompletedProcess[str]:
    call = [sys.executable, "-c", code] if code else [sys.executable, "-m", "calib", *arguments]
    return subprocess.run(call, capture_output=True, text=True, check=False)


def test_help_imports_neither_numpy_nor_pandas():
    code = (
        "import sys; sys.argv = ['calib', '--help']\nfrom calib.cli import main\n"
        "try: main()\nexcept SystemExit as e: assert not e.code\n"
        "print(sorted({'numpy', 'pandas', 'msgspec', 'scipy', 'matplotlib'} & set(sys.modules)))"
    )
    assert in_a_process(code=code).stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("arguments", [["rules"], ["show"], ["sql", "--help"], ["demo", "--list"]], ids=" ".join)
def test_a_command_loads_what_it_needs_and_nothing_heavier(arguments):
    code = (
        f"import sys; sys.argv = {['calib', *arguments]!r}\nfrom calib.cli import main\n"
        "try: main()\nexcept SystemExit as e: assert not e.code\n"
        "print(sorted({'pandas', 'pandera', 'scipy', 'matplotlib', 'statsmodels', 'duckdb'} & set(sys.modules)))"
    )
    assert in_a_process(code=code).stdout.splitlines()[-1] == "[]"


def test_predict_imports_neither_pandas_nor_scipy(coefficients):
    code = (
        f"import sys; sys.argv = {['calib', 'predict', str(coefficients), *POINT, '--tp', '2', '--pp', '4']!r}\n"
        "from calib.cli import main\ntry: main()\nexcept SystemExit as e: assert not e.code\n"
        "print(sorted({'pandas', 'scipy', 'matplotlib', 'statsmodels'} & set(sys.modules)))"
    )
    assert in_a_process(code=code).stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ("model,pp,pp", "'pp': stands twice"),
        ("model,concurency", "'concurency': is not a field"),
    ],
)
def test_a_table_of_points_with_an_odd_header(cli, coefficients, tmp_path, header, words):
    (tmp_path / "p.csv").write_text(header + "\n" + ",".join("1" for _ in header.split(",")) + "\n")
    done = cli("predict", coefficients, "--points", tmp_path / "p.csv")
    assert done.code == 3
    assert words in done.err
    assert "p.csv" in done.err


@pytest.mark.parametrize("bad", ["1e0x", "２", "1_0", "nan"])
def test_a_table_of_points_with_an_odd_number(cli, coefficients, tmp_path, bad):
    (tmp_path / "p.csv").write_text(f"model,pp\nQwen/Qwen3-8B,{bad}\n")
    done = cli("predict", coefficients, "--points", tmp_path / "p.csv")
    assert done.code == 3
    assert "'pp'" in done.err


def test_tables_are_never_cropped(cli, coefficients):
    assert "residual" in cli("decompose").out or "factor" in cli("decompose").out
    assert "peak_at_edge" in " ".join(cli("show", coefficients).out.split())


def test_a_wrong_option_is_one_sentence(cli):
    done = cli("run", "--colour")
    assert done.err.count("\n") == 1
    assert done.err.startswith("calib: error: ")


@pytest.mark.parametrize("end", [" | head -1", " > /dev/full", " >&-"])
def test_a_reader_that_goes_away_and_an_output_that_is_full(end, tmp_path):
    command = f"set -o pipefail; {sys.executable} -m calib ingest{end}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == (3 if "full" in end else 0), done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n") == (1 if "full" in end else 0), done.stderr


def test_output_in_ascii_and_a_strange_matplotlib(tmp_path, calibrated):
    import os

    (tmp_path / "matplotlibrc").write_text("text.usetex: True\nsavefig.dpi: 7\n")
    environment = os.environ | {
        "PYTHONIOENCODING": "ascii",
        "MPLBACKEND": "bogus",
        "HOME": "/nonexistent",
        "CALIB_USER": "\udcff",
    }
    call = [sys.executable, "-m", "calib", "run", "--out", "r"]
    done = subprocess.run(call, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    plain = report(calibrated("h200-vllm-pp"), tmp_path / "s")
    (strange,) = (tmp_path / "r").iterdir()
    for name in ("report.html", "figures/scatter.png"):
        assert (strange / name).read_bytes() == (plain.folder / name).read_bytes()


@pytest.mark.usefixtures("coefficients")
@pytest.mark.parametrize(
    "command", [("show", "p"), ("predict", "p", "--model", "m"), ("predict", "c.json", "--points", "p")]
)
def test_a_pipe_is_no_file(cli, tmp_path, monkeypatch, command):
    import os

    monkeypatch.chdir(tmp_path)
    os.mkfifo("p")
    done = cli(*command)
    assert done.code == 3
    assert "not a regular file" in done.err


def test_breakdown_without_the_extra_says_how_to_get_it(cli, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "aiconfigurator_core", None)
    done = cli("breakdown", "--out", tmp_path / "b.json")
    assert done.code == 2
    assert "pip install 'llm-calib[aic]'" in done.err


def test_a_fault_of_calib_itself_is_exit_4_without_a_traceback(cli, monkeypatch):
    import calib.measure

    monkeypatch.setattr(calib.measure, "load_campaign", lambda *_, **__: 1 / 0)
    done = cli("ingest")
    assert done.code == 4
    assert done.err == (
        "calib: internal error: ZeroDivisionError: division by zero; set CALIB_DEBUG=1 for the traceback, and please report it\n"
    )


def test_the_module_runs_as_a_program():
    done = in_a_process("--version")
    assert done.returncode == 0
    assert done.stdout.startswith("calib 0.")


@pytest.mark.parametrize(
    "where", [{"TZ": "Asia/Kolkata"}, {"LC_ALL": "tr_TR.UTF-8", "LANG": "tr_TR.UTF-8"}, {"PYTHONHASHSEED": "7"}]
)
def test_time_zone_locale_and_hash_seed_change_nothing(where):
    import os

    call = [sys.executable, "-m", "calib", "ingest", "--json", "h200-vllm-pp", "h20-trtllm-pp"]
    plain, other = (
        subprocess.run(call, capture_output=True, check=True, env=os.environ | extra).stdout for extra in ({}, where)
    )
    assert other == plain
