"""Runs of any tool below a folder, in any order of listing, packed or not."""

from __future__ import annotations

import gzip
import os
import shutil

import pytest
import zstandard

from calib.measure.readers.discover import read_path
from calib.measure.readers.read_run import ReadRun, UnreadableRun


def test_runs_of_two_tools_in_one_folder(shared, tmp_path):
    shutil.copytree(shared / "samples/aiperf/00_base_single_run", tmp_path / "a")
    shutil.copytree(shared / "samples/other/sglang_0.5.23", tmp_path / "b")
    found = read_path(tmp_path, root=tmp_path)
    tools = [r.stated["tool"] for r in found if isinstance(r, ReadRun)]
    assert tools == ["aiperf", "sglang-bench", "sglang-bench", "sglang-bench"]


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
def test_a_packed_aiperf_summary_is_a_run_whatever_its_ending(shared, tmp_path, pack):
    data = (shared / "samples/aiperf/00_base_single_run/profile_export_aiperf.json").read_bytes()
    (tmp_path / "profile_export_aiperf.json.gz").write_bytes(pack(data))
    (run,) = read_path(tmp_path, root=tmp_path)
    assert isinstance(run, ReadRun)
    assert run.stated["output_tokens_per_s"] == 240.0 / 0.46665702400000003


def test_the_order_of_listing_does_not_matter(shared, tmp_path, monkeypatch):
    for case in ("00_base_single_run", "a_multirun_sweep", "ae_sweep_one_cell_fails", "c_all_fail"):
        shutil.copytree(shared / "samples/aiperf" / case, tmp_path / case)
    shutil.copytree(shared / "samples/other", tmp_path / "other")
    forward = read_path(tmp_path, root=tmp_path)
    real = os.scandir

    class Backwards:
        def __init__(self, path):
            with real(path) as entries:
                self.entries = iter(sorted(entries, key=lambda e: e.name, reverse=True))

        def __enter__(self):
            return self

        def __exit__(self, *_):
            return None

        def __iter__(self):
            return self

        def __next__(self):
            return next(self.entries)

        def close(self):
            return None

    monkeypatch.setattr(os, "scandir", Backwards)
    assert read_path(tmp_path, root=tmp_path) == forward
    assert any(isinstance(r, UnreadableRun) for r in forward)


def test_an_empty_folder_says_so(tmp_path):
    (run,) = read_path(tmp_path, root=tmp_path)
    assert isinstance(run, UnreadableRun)
    assert "no result of a tool" in run.reason
