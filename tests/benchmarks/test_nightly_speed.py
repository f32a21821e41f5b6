"""Ratios of the nightly job, each within one run. `pytest -m slow -n 0 -s tests/benchmarks/test_nightly_speed.py`.

Start-up is excluded: both sides of a ratio run in this process. The default run takes a tenth of the folders.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import threading
import time
from pathlib import Path

import pytest
from support.paths import DATA

from calib.measure.shipped import shipped_campaigns
from calib.nightly.night import run_night
from calib.nightly.read_cache import read_batch
from calib.nightly.setup import Asked, job_folders
from calib.nightly.store.reader import open_store
from calib.nightly.workers import Processes

AIPERF = DATA / "qwen3-8b-aiperf"
TOML = (
    'format_version = 1\nname = "many"\ntitle = "t"\nsource = "s"\nmatching = "peak"\n[defaults]\nsystem = "h200_sxm"\n'
    'gpus = 8\nbackend = "vllm"\nbackend_version = "1"\n[[runs]]\nfolder = "qwen3-8b-tp{tp}pp{pp}/c{concurrency}"\n'
)


def generate(folder, runs):
    """``runs`` run folders of aiperf, each another concurrency or topology."""
    document = json.loads(
        (AIPERF / "qwen3-8b-tp4pp2" / "c2" / "profile_export_aiperf.json").read_text(encoding="utf-8")
    )
    for i in range(runs):
        tp, pp = ((8, 1), (4, 2), (2, 4), (1, 8))[i % 4]
        document["benchmark_id"] = f"{i:012x}"
        for phase in document["input_config"]["phases"]:
            phase["concurrency"] = 1 + i // 4
        place = folder / f"qwen3-8b-tp{tp}pp{pp}" / f"c{1 + i // 4}"
        place.mkdir(parents=True)
        (place / "profile_export_aiperf.json").write_text(json.dumps(document), encoding="utf-8")
    (folder / "campaign.toml").write_text(TOML, encoding="utf-8")


def job(tmp_path, runs):
    """A nightly job over one real campaign and ``runs`` generated run folders, which cannot be fitted."""
    shutil.copytree(AIPERF, tmp_path / "results" / "real")
    generate(tmp_path / "results" / "many", runs)
    (tmp_path / "nightly.toml").write_text('name = "n"\nresults = ["results"]\n', encoding="utf-8")
    return tmp_path / "nightly.toml"


def second_night(tmp_path, runs):
    config = job(tmp_path, runs)
    start = time.perf_counter()
    first = run_night(config)
    one = time.perf_counter() - start
    assert first.read == runs + 4
    start = time.perf_counter()
    second = run_night(config)
    two = time.perf_counter() - start
    assert not second.new
    print(f"\n{runs} run folders: first night {one:.2f} s, second {two:.3f} s, ratio {one / two:.0f}")
    return one / two


def test_a_second_night_over_unchanged_folders_reads_nothing(tmp_path):
    """The ratio is printed and not asserted: other jobs share the machine that runs the tests."""
    second_night(tmp_path, 200)


@pytest.mark.slow
def test_a_second_night_over_a_thousand_unchanged_folders_is_20_times_as_quick(tmp_path):
    assert second_night(tmp_path, 1000) >= 20


@pytest.mark.slow
def test_two_processes_read_1_5_times_as_fast_as_one(tmp_path):
    generate(tmp_path, 1000)
    units = [str(p.relative_to(tmp_path)) for p in sorted(tmp_path.glob("*/c*"))] * 2
    tasks = [(str(tmp_path), units[i : i + 16]) for i in range(0, len(units), 16)]

    def seconds(workers):
        start = time.perf_counter()
        assert len(dict(Processes(workers).map(read_batch, tasks))) == len(tasks)
        return time.perf_counter() - start

    seconds(2)  # the server that processes are forked from has its libraries loaded now
    ratios = [seconds(1) / seconds(2) for _ in range(5)]
    print(f"\none process over two: median {statistics.median(ratios):.2f} of {[f'{r:.2f}' for r in ratios]}")
    assert statistics.median(ratios) >= 1.5


class Memory(threading.Thread):
    """Resident memory of processes [MiB], once a tenth of a second until it is stopped."""

    def __init__(self, pids):
        super().__init__(daemon=True)
        self.pids, self.seen, self._end = pids, {pid: [] for pid in pids}, threading.Event()

    def run(self):
        while not self._end.wait(0.1):
            for pid in self.pids:
                pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
                self.seen[pid].append(pages * os.sysconf("SC_PAGE_SIZE") / 2**20)

    def stop(self):
        self._end.set()
        self.join()


def over_campaigns(tmp_path, campaigns, runs):
    """``campaigns`` of ``runs`` run folders each and a real one; what a cluster of two workers and this process need for them."""
    distributed = pytest.importorskip("distributed")
    shutil.copytree(AIPERF, tmp_path / "results" / "real")
    for i in range(campaigns):
        generate(tmp_path / "results" / f"many-{i:03d}", runs)
    config = tmp_path / "nightly.toml"
    config.write_text('name = "n"\nresults = ["results"]\n', encoding="utf-8")
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        with distributed.Client(cluster, set_as_default=False) as client:
            pids = client.run(os.getpid).values()
        memory = Memory([*pids, os.getpid()])
        memory.start()
        start = time.perf_counter()
        night = run_night(config, Asked(scheduler=cluster.scheduler_address))
        took = time.perf_counter() - start
        memory.stop()
    assert night.read == campaigns * runs + 4
    with open_store(job_folders(config).store) as store:
        assert len(store.runs) == campaigns * runs + 12
    return took, memory.seen


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_ten_thousand_folders_on_a_cluster_without_growing_memory(tmp_path):
    """Four times the work needs no more memory: a worker holds a result or a campaign, this process the rows of all runs."""
    workers, here = [], []
    for campaigns in (25, 100):
        took, seen = over_campaigns(tmp_path / str(campaigns), campaigns, 100)
        own = seen.pop(os.getpid())
        workers.append(max(max(found) for found in seen.values()))
        here.append(max(own) - own[0])
        print(
            f"\n{campaigns * 100} run folders in {took:.0f} s: a worker at most {workers[-1]:.0f} MiB, "
            f"this process {here[-1]:.0f} MiB more than before"
        )
    assert workers[1] < 1.15 * workers[0]


@pytest.mark.slow
def test_one_night_over_the_shipped_campaigns_takes_less_than_20_seconds(tmp_path):
    for name, folder in shipped_campaigns().items():
        shutil.copytree(folder, tmp_path / "results" / name)
    (tmp_path / "nightly.toml").write_text('name = "n"\nresults = ["results"]\n', encoding="utf-8")
    start = time.perf_counter()
    run_night(tmp_path / "nightly.toml", Asked(workers=2))
    took = time.perf_counter() - start
    print(f"\nshipped campaigns: {took:.1f} s")
    assert took < 20
