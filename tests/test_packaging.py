"""An installed wheel runs the main job in any folder, without the repository."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile

import pytest
from support.paths import ROOT


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    out = tmp_path_factory.mktemp("wheel")
    done = subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--outdir", str(out), str(ROOT)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return next(out.glob("*.whl"))


def test_the_wheel_carries_campaigns_templates_and_schema(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    for campaign in ("h200-vllm-pp", "h200-sglang-trtllm-pp", "h20-trtllm-pp"):
        assert f"calib/_measurements/{campaign}/campaign.toml" in names
        assert f"calib/_measurements/{campaign}/breakdowns.json" in names
    assert "calib/reporting/templates/report.html.j2" in names
    assert "calib/data/coefficients-v1.schema.json" in names
    assert "calib/data/released/registry.jsonl" in names
    assert "calib/py.typed" in names
    assert "calib/data/model_configs/Qwen--Qwen3-14B/config.json" in names
    assert not [n for n in names if n.startswith(("tests/", "notebooks/", "reports/"))]


def test_the_main_job_runs_from_the_wheel_in_an_empty_folder(wheel, tmp_path):
    """Unpacked rather than installed: the same files on the path, without a second set of dependencies."""
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    (tmp_path / "work").mkdir()
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "site")}
    code = "import calib; assert 'site' in calib.__file__, calib.__file__; from calib.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "run"],
        cwd=tmp_path / "work",
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert len(list((tmp_path / "work" / "reports").glob("*/report.html"))) == 1
