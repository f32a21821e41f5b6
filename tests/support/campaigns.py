"""Campaigns of a known truth, as folders and as the table of one series."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pandas as pd

PP = {2: 4, 4: 2, 8: 1}  # pp -> tp on 8 GPUs


def balance_of(layers: int, head: float, pp: int) -> float:
    """Balance of equal layers of 1 ms and a head of ``head`` ms, no links: worked out here, not by the code under test."""
    most = -(-layers // pp)
    last = layers // pp
    return (layers + head) / pp / max(most, last + head)


def simulated_campaign(
    parent: Path,
    s: dict[str, float],
    *,
    noise: float = 0.0,
    seed: int = 0,
    layers: int = 32,
    head: float = 2.0,
    levels: tuple[int, ...] = (2, 4, 8),
    name: str = "simulated",
    backends: tuple[str, ...] = ("vllm",),
) -> Path:
    """A campaign folder below ``parent`` with a known ``s``: throughput = baseline * balance * (1 - s*log2(pp)) * noise."""
    rng = np.random.default_rng(seed)
    folder = parent / name
    folder.mkdir()
    several = len(backends) > 1
    stated = "" if several else f'backend = "{backends[0]}"\n'
    lines = [f"model,{'backend,' if several else ''}tp,pp,concurrency,output_tokens_per_s"]
    steps = []
    for backend, (model, truth) in itertools.product(backends, s.items()):
        quoted = '"' + model.replace('"', '""') + '"' if {",", '"'} & set(model) else model
        who = f"{quoted},{backend}" if several else quoted
        lines.append(f"{who},8,1,64,{1000.0 * (1 + noise * rng.standard_normal())!r}")
        for pp in levels:
            x = 1000.0 * float(balance_of(layers, head, pp) * (1 - truth * np.log2(pp)))
            lines.append(f"{who},{PP[pp]},{pp},64,{x * (1 + noise * rng.standard_normal())!r}")
            steps.append(
                {
                    "model": model, "backend": backend, "tp": PP[pp], "pp": pp, "concurrency": 64, "microbatch": 64 // pp,
                    "isl": 1000, "osl": 100, "num_layers": layers, "status": "computed",
                    "ops_ms": {"generation_attention": float(layers), "generation_logits_gemm": head},
                }
            )  # fmt: skip
    (folder / "points.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    provider = {"name": "simulation", "version": "1", "system": "h200_sxm", "note": "equal layers"}
    document = {"format": "calib-breakdowns", "format_version": 1, "provider": provider, "steps": steps}
    (folder / "breakdowns.json").write_text(json.dumps(document), encoding="utf-8")
    (folder / "campaign.toml").write_text(
        f'format_version = 1\nname = "{name}"\ntitle = "simulated"\nsource = "a test"\nmatching = "peak"\n'
        f'[defaults]\nsystem = "h200_sxm"\ngpus = 8\n{stated}backend_version = "0.19.1"\nisl = 1000\nosl = 100\n'
        '[[tables]]\nfile = "points.csv"\n[balance]\nfile = "breakdowns.json"\n',
        encoding="utf-8",
    )
    return folder


def series_points(residual, pp=(2, 4, 8), error=0.02, base=0.02, baseline="a", concurrency=None):
    """A series as `calib.fitting.verdict` takes it: residuals at given pp levels, one baseline, balance 1."""
    return pd.DataFrame(
        {
            "pp": pp, "tp": [8 // p for p in pp], "residual": residual, "efficiency": residual, "rel_error": error,
            "baseline_rel_error": base, "baseline_id": baseline, "concurrency": concurrency, "rules": "",
            "balance_status": "computed", "balance_factor": 1.0, "explained": 1.0,
        }
    )  # fmt: skip
