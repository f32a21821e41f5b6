"""A nightly job in a folder of its own, with campaigns of known truth that arrive night by night."""

from __future__ import annotations

import shutil

import pytest
from support.night import AIPERF, Job


@pytest.fixture
def job(tmp_path, simulated) -> Job:
    folder = tmp_path / "job"
    (folder / "results").mkdir(parents=True)
    (folder / "nightly.toml").write_text(
        'name = "team"\nresults = ["results"]\nregistry = "released"\nfigures = false\n', encoding="utf-8"
    )
    return Job(folder, simulated)


@pytest.fixture
def aiperf_job(tmp_path, simulated) -> Job:
    folder = tmp_path / "job"
    (folder / "results").mkdir(parents=True)
    shutil.copytree(AIPERF, folder / "results" / "qwen")
    (folder / "nightly.toml").write_text('name = "team"\nresults = ["results"]\n', encoding="utf-8")
    return Job(folder, simulated)
