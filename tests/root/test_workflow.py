"""The main job: what it writes, what it leaves alone, and how it fails."""

from __future__ import annotations

import json
import subprocess
import sys

import pandas as pd
import pytest

from calib import Predictor, run, shipped_campaigns
from calib.coefficients.file import CoefficientSet
from calib.errors import NothingToFitError, OutputError, SetAsideError
from calib.workflow import Options, calibrate, report

VLLM = "h200-vllm-pp"


def files(folder):
    return {p.relative_to(folder): (p.read_bytes(), p.stat().st_mtime_ns) for p in folder.rglob("*") if p.is_file()}


def test_a_run_writes_one_folder_named_by_date_and_digest(tmp_path):
    result, written = run(out=tmp_path / "reports")
    assert written.new
    assert written.folder.name == f"{result.coefficients.created.at[:10]}-{result.coefficients.digest[:12]}"
    names = sorted(str(p.relative_to(written.folder)) for p in written.files)
    assert [n for n in names if not n.startswith("figures/")] == [
        "coefficients-v1.json", "report.html", "report.json", "report.md",
    ]  # fmt: skip
    assert {"figures/scatter.svg", "figures/scatter.png", "figures/heatmap.svg"} < set(names)
    assert [p.name for p in (tmp_path / "reports").iterdir()] == [written.folder.name]


def test_running_twice_gives_the_same_digest_and_writes_nothing(tmp_path, calibrated):
    first = calibrated(VLLM)
    report(first, tmp_path)
    before = files(tmp_path)
    again, written = run(out=tmp_path)
    assert again.coefficients.digest == first.coefficients.digest
    assert written.new is False
    assert files(tmp_path) == before


def test_results_of_an_earlier_day_are_found_again(tmp_path, calibrated):
    written = report(calibrated(VLLM), tmp_path)
    old = tmp_path / ("2020-01-01" + written.folder.name[10:])
    written.folder.rename(old)
    again = report(calibrated(VLLM), tmp_path)
    assert (again.new, again.folder) == (False, old)


@pytest.mark.parametrize("name", sorted(shipped_campaigns()))
def test_what_the_file_predicts_is_what_the_report_shows_bit_for_bit(tmp_path, name, calibrated):
    """In a process that loads neither pandas nor scipy."""
    result = calibrated(name)
    written = report(result, tmp_path)
    shown = json.loads((written.folder / "report.json").read_text())["tables"]["predicted"]["rows"]
    points = []
    for row, point in zip(shown, result.decomposition.table.to_dict("records"), strict=True):
        keys = ("model", "system", "backend", "backend_version", "tp", "pp", "isl", "osl")
        c = {} if pd.isna(point["concurrency"]) else {"concurrency": int(point["concurrency"])}
        points.append(({k: point[k] for k in keys} | c, row["predicted"]))
    code = (
        "import json, sys; from calib import Predictor\n"
        f"p = Predictor.load({str(written.folder / 'coefficients-v1.json')!r})\n"
        "for point, shown in json.load(sys.stdin):\n"
        "    assert p.factor(point, allow_refused=[point['model']]).value[0] == shown, point\n"
        "assert not {'pandas', 'scipy'} & set(sys.modules)\nprint('same')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], input=json.dumps(points), capture_output=True, text=True, check=False
    )
    assert done.stdout == "same\n", done.stderr
    assert len(points) == len(result.decomposition.table)


def test_the_written_file_loads_and_is_the_result(tmp_path, calibrated):
    result = calibrated(VLLM)
    written = report(result, tmp_path)
    assert CoefficientSet.load(written.folder / "coefficients-v1.json") == result.coefficients
    assert Predictor.load(written.folder / "coefficients-v1.json").coefficients.digest == result.coefficients.digest


def test_options_are_part_of_the_digest(calibrated):
    digests = {calibrated(VLLM, o).coefficients.digest for o in (
        Options(), Options(matching="matched"), Options(error_floor=0.01))}  # fmt: skip
    assert len(digests) == 3


def test_the_order_of_lines_changes_the_inputs_and_no_estimate(vllm_folder):
    before = calibrate(vllm_folder).coefficients
    points = vllm_folder / "points.csv"
    lines = points.read_text().splitlines()
    points.write_text("\n".join([lines[0], *lines[:0:-1]]) + "\n")
    after = calibrate(vllm_folder).coefficients
    assert after.coefficients == before.coefficients
    assert after.balance_factors == before.balance_factors
    assert after.inputs != before.inputs


def test_strict_makes_what_is_set_aside_fatal(simulated):
    folder = simulated({"m": 0.2})
    assert calibrate(folder, Options(strict=True)).fit.series
    points = folder / "points.csv"
    points.write_text(points.read_text().replace("m,8,1,64,1000.0", "m,8,1,64,1000.0\nm,8,1,32,nan"))
    assert len(calibrate(folder).campaign.set_aside()) == 1
    with pytest.raises(SetAsideError, match=r"points.csv: m vllm TP8/PP1 C=32 .*'no_result'"):
        calibrate(folder, Options(strict=True))


def test_strict_turns_warnings_into_rejections(vllm_folder):
    with pytest.raises(SetAsideError, match="disputed_label"):
        calibrate(vllm_folder, Options(strict=True))


def test_strict_counts_series_without_a_baseline(simulated):
    folder = simulated({"m": 0.2, "n": 0.2})
    points = folder / "points.csv"
    points.write_text("\n".join(x for x in points.read_text().splitlines() if not x.startswith("n,8,1,")) + "\n")
    assert len(calibrate(folder).fit.series) == 1
    with pytest.raises(SetAsideError, match="no_baseline"):
        calibrate(folder, Options(strict=True))


def test_nothing_fittable_is_an_error_with_the_first_reason(vllm_folder):
    points = vllm_folder / "points.csv"
    frame = pd.read_csv(points)
    frame[frame["pp"] > 1].to_csv(points, index=False)
    with pytest.raises(NothingToFitError, match=r"no_baseline.*TP8/PP1"):
        calibrate(vllm_folder)
    points.write_text(points.read_text().splitlines()[0] + "\n")
    with pytest.raises(NothingToFitError, match="'h200-vllm-pp'"):
        calibrate(vllm_folder)


def test_a_folder_that_cannot_be_made_is_one_sentence_and_leaves_nothing(tmp_path, calibrated):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OutputError, match="nothing was changed"):
        report(calibrated(VLLM), tmp_path / "file")
    assert (tmp_path / "file").read_text() == "in the way"


def test_incomplete_results_are_not_completed_over(tmp_path, calibrated):
    written = report(calibrated(VLLM), tmp_path)
    (written.folder / "report.html").unlink()
    before = files(tmp_path)
    with pytest.raises(OutputError, match="not overwritten"):
        report(calibrated(VLLM), tmp_path)
    assert files(tmp_path) == before


def test_another_files_coefficients_or_an_emptied_report_are_not_taken_for_these_results(tmp_path, calibrated):
    result, other = calibrated(VLLM), calibrated(VLLM, Options(matching="matched"))
    written = report(result, tmp_path)
    good = (written.folder / "coefficients-v1.json").read_bytes()
    (written.folder / "coefficients-v1.json").write_bytes(other.coefficients.to_json())
    with pytest.raises(OutputError, match="other or incomplete results"):
        report(result, tmp_path)
    (written.folder / "coefficients-v1.json").write_bytes(good)
    assert report(result, tmp_path).new is False
    (written.folder / "report.md").write_text("")
    with pytest.raises(OutputError, match="other or incomplete results"):
        report(result, tmp_path)


def test_of_two_jobs_at_once_the_slower_one_finds_the_results(tmp_path, monkeypatch, calibrated):
    import calib.workflow as workflow

    result = calibrated(VLLM)
    real = workflow.write_folder

    def beaten(folder, contents):
        assert real(folder, contents) is True  # the other job, in between
        return real(folder, contents)

    monkeypatch.setattr(workflow, "write_folder", beaten)
    written = workflow.report(result, tmp_path)
    assert written.new is False
    assert [p.name for p in tmp_path.iterdir()] == [written.folder.name]


@pytest.mark.parametrize("file", ["published-accuracy.csv", "points.csv"])
def test_any_file_that_was_read_changes_the_digest(vllm_folder, file, edit):
    before = calibrate(vllm_folder).coefficients.digest
    edit(
        vllm_folder / file,
        ",1.8," if file.startswith("published") else ",44.589,",
        ",1.7," if file.startswith("published") else ",44.588,",
    )
    assert calibrate(vllm_folder).coefficients.digest != before


def test_one_model_at_two_precisions_has_two_coefficients(vllm_folder):
    points = vllm_folder / "points.csv"
    frame = pd.read_csv(points)
    both = pd.concat([frame.assign(precision="bf16"), frame.assign(precision="fp8")])
    both.to_csv(points, index=False)
    found = calibrate(vllm_folder)
    assert len(found.fit.series) == 8
    frame.assign(precision=["bf16" if m.endswith("8B") else "" for m in frame["model"]]).to_csv(points, index=False)
    assert len(calibrate(vllm_folder).fit.series) == 4


def test_report_json_and_markdown_are_the_same_every_time(tmp_path, calibrated):
    """Whether calibrated once or twice."""
    _, a = run(out=tmp_path / "a")
    b = report(calibrated(VLLM), tmp_path / "b")
    for name in ("report.json", "report.md", "report.html"):
        assert (a.folder / name).read_bytes() == (b.folder / name).read_bytes()
