"""Fixtures shared by all tests: campaign folders to break, a known truth to recover, the command line in-process."""

from __future__ import annotations

import functools
import itertools
import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support.paths import SHARED

from calib.coefficients.file import CoefficientSet
from calib.coefficients.registry import SHIPPED, Registry
from calib.measure.shipped import find_campaign
from calib.workflow import Result, calibrate


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


PP = {2: 4, 4: 2, 8: 1}  # pp -> tp on 8 GPUs


def balance_of(layers: int, head: float, pp: int) -> float:
    """Balance of equal layers of 1 ms and a head of ``head`` ms, no links: worked out here, not by the code under test."""
    most = -(-layers // pp)
    last = layers // pp
    return (layers + head) / pp / max(most, last + head)


@pytest.fixture
def simulated(tmp_path: Path) -> Callable[..., Path]:
    """A campaign folder with a known ``s``: throughput = baseline * balance * (1 - s*log2(pp)) * noise."""

    def make(
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
        rng = np.random.default_rng(seed)
        folder = tmp_path / name
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

    return make


@pytest.fixture
def campaign_points():
    """A series as `calib.fitting.verdict` takes it: residuals at given pp levels, one baseline, balance 1."""

    def make(residual, pp=(2, 4, 8), error=0.02, base=0.02, baseline="a", concurrency=None):
        return pd.DataFrame(
            {
                "pp": pp, "tp": [8 // p for p in pp], "residual": residual, "efficiency": residual, "rel_error": error,
                "baseline_rel_error": base, "baseline_id": baseline, "concurrency": concurrency, "rules": "",
                "balance_status": "computed", "balance_factor": 1.0, "explained": 1.0,
            }
        )  # fmt: skip

    return make


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
