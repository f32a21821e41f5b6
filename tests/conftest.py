"""Fixtures shared by all tests: campaign folders to break, a known truth to recover, the command line in-process."""

from __future__ import annotations

import functools
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest
from support.campaigns import series_points, simulated_campaign
from support.paths import SHARED

from calib.coefficients.file import CoefficientSet
from calib.coefficients.registry import SHIPPED, Registry
from calib.measure.shipped import find_campaign
from calib.workflow import Result, calibrate, report


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of published data and samples that a user's clone does not have."""
    if not SHARED.is_dir():
        pytest.skip("the shared folder with published data and samples is not beside this clone")
    return SHARED


@pytest.fixture(scope="session")
def calibrated() -> Callable[..., Result]:
    """The result of a shipped campaign, and once drawn its report, made once for all tests; nobody may change it."""
    return functools.cache(calibrate)


@pytest.fixture(scope="session")
def reported(calibrated, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """A folder that holds the results of a shipped campaign already, without figures; for tests of what is said of them."""
    out = tmp_path_factory.mktemp("reported")

    def write(*arguments: object) -> Path:
        report(calibrated(*arguments), out, figures=False)
        return out

    return write


@pytest.fixture
def vllm_folder(tmp_path: Path) -> Path:
    """A copy of the shipped H200/vLLM campaign that a test may break."""
    folder = tmp_path / "campaign"
    shutil.copytree(find_campaign("h200-vllm-pp"), folder)
    return folder


@pytest.fixture
def edit() -> Callable[[Path, str, str], None]:
    """Replace one piece of text in a file; the piece must be there."""

    def replace(path: Path, old: str, new: str) -> None:
        text = path.read_text(encoding="utf-8")
        assert old in text, f"{old!r} is not in {path.name}"
        path.write_text(text.replace(old, new, 1), encoding="utf-8")

    return replace


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Outcome]:
    """Run the command line as a user would, without the start-up time of a process."""

    def call(*arguments: object) -> Outcome:
        from calib.cli.app import main

        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", ["calib", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            main()
        captured = capsys.readouterr()
        assert "Traceback" not in captured.out + captured.err
        return Outcome(int(stop.value.code or 0), captured.out, captured.err)

    return call


@pytest.fixture
def simulated(tmp_path: Path) -> Callable[..., Path]:
    """A campaign folder of a known truth; see `support.campaigns`."""
    return functools.partial(simulated_campaign, tmp_path)


@pytest.fixture
def campaign_points() -> Callable[..., pd.DataFrame]:
    """The table of one series; see `support.campaigns`."""
    return series_points


def _released(matching: str) -> CoefficientSet:
    registry = Registry.open(SHIPPED)
    return next(c for c in map(registry.load, registry.current) if c.matching == matching)


@pytest.fixture(scope="session")
def peak_set() -> CoefficientSet:
    """The shipped release of H200/vLLM at the peak: form log2, one concurrency."""
    return _released("peak")


@pytest.fixture(scope="session")
def matched_set() -> CoefficientSet:
    """The shipped release of H200/vLLM at matched concurrency: a form with a concurrency term."""
    return _released("matched")
