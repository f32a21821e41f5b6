"""Speed of reading a campaign of many run folders. `pytest -m slow -n 0 -s tests/benchmarks`."""

from __future__ import annotations

import json
import time

import pytest

from calib import load_campaign
from calib.measure.readers.discover import read_path

FOLDERS = 1000


@pytest.mark.slow
def test_a_thousand_summary_folders(shared, tmp_path):
    document = json.loads((shared / "samples/aiperf/00_base_single_run/profile_export_aiperf.json").read_text())
    for i in range(FOLDERS):
        tp, pp = ((8, 1), (4, 2), (2, 4), (1, 8))[i % 4]
        document["benchmark_id"] = f"{i:012x}"
        document["input_config"]["phases"][0]["concurrency"] = 1 + i // 4
        folder = tmp_path / f"qwen3-8b-tp{tp}pp{pp}" / f"c{1 + i // 4}"
        folder.mkdir(parents=True)
        (folder / "profile_export_aiperf.json").write_text(json.dumps(document))
    (tmp_path / "campaign.toml").write_text(
        'format_version = 1\nname = "many"\ntitle = "t"\nsource = "s"\nmatching = "peak"\n[defaults]\nsystem = "h200_sxm"\n'
        'gpus = 8\nbackend = "vllm"\nbackend_version = "1"\n[[runs]]\nfolder = "qwen3-8b-tp{tp}pp{pp}"\n'
    )
    start = time.process_time()
    found = [r for f in sorted(tmp_path.glob("qwen3*")) for r in read_path(f, root=tmp_path)]
    reading = time.process_time() - start
    start = time.process_time()
    campaign = load_campaign(tmp_path)
    whole = time.process_time() - start
    print(
        f"\n{FOLDERS} folders: read in {reading:.2f} s of one core; read, merged, digested and screened in {whole:.2f} s"
    )
    assert len(found) == len(campaign.runs) == FOLDERS
    assert reading < 5
