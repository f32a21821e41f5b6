"""Is the model's own pp = 1 prediction good enough to hang a PP coefficient on?

A residual with ``reference = "model"`` is only as good as its baseline, so the pp = 1 prediction is held against the pp = 1
measurements of the campaign, one concurrency at a time. The prediction is the closed loop of `calib.pipeline.workload`: C
requests generate OSL tokens each in OSL steps, some of them mixed with prefill::

    throughput = C * OSL / (n_decode * t_decode + n_mixed * t_mixed)          per replica [tok/s]

with step times from the campaign's breakdown file.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from calib.errors import BreakdownError, NothingToFitError, UsageError
from calib.integrations.replay import Role, RoleConfig, materialize_role
from calib.measure import Campaign, records, usable
from calib.pipeline import ideal_throughput, load_gpu, load_shape

BAND_PCT = (-15.0, 15.0)
_RESERVED = 0.1  # share of the memory that engines keep for activations and workspaces


@dataclass(frozen=True)
class BaselinePoint:
    """One pp = 1 measurement and its prediction; throughput in tok/s, error in %."""

    model: str
    backend: str
    backend_version: str
    tp: int
    concurrency: int
    measured: float
    predicted: float
    fits_memory: bool | None

    @property
    def error_pct(self) -> float:
        """Predicted over measured, minus 1 [%]."""
        return 100.0 * (self.predicted / self.measured - 1.0)


@dataclass(frozen=True)
class Qualification:
    """All points, and the models of each backend that pass: every one of their points lies within the band [%]."""

    points: tuple[BaselinePoint, ...]
    band_pct: tuple[float, float]
    missing: tuple[str, ...]

    def within(self, point: BaselinePoint) -> bool:
        """Whether the error lies within the band, ends included."""
        return self.band_pct[0] <= point.error_pct <= self.band_pct[1]

    def passes(self, model: str, backend: str) -> bool:
        """Whether every point of a model lies within the band; False without a point."""
        own = [p for p in self.points if (p.model, p.backend) == (model, backend)]
        return bool(own) and all(map(self.within, own))

    def warnings(self) -> dict[tuple[str, str], str]:
        """(model, backend) -> the warning that goes beside its ``reference = "model"`` coefficients."""
        found = {}
        for key in dict.fromkeys((p.model, p.backend) for p in self.points):
            if not self.passes(*key):
                errors = [p.error_pct for p in self.points if (p.model, p.backend) == key]
                low, high = self.band_pct
                found[key] = (
                    f"the pp = 1 prediction is off by {min(errors):+.0f} to {max(errors):+.0f} %, outside {low:+g} to {high:+g} %"
                )
        return found


def qualify_baseline(campaign: Campaign, *, band_pct: tuple[float, float] = BAND_PCT) -> Qualification:
    """Hold the pp = 1 prediction of every usable pp = 1 run against what was measured.

    Raises
    ------
    NothingToFitError
        The campaign has no pp = 1 throughput, or no breakdowns of one.
    UsageError
        The band is empty.
    """
    if not band_pct[0] < band_pct[1]:
        raise UsageError("is empty", field="band", value=band_pct, remedy="give a lower and a higher bound in %")
    if campaign.breakdowns is None:
        raise NothingToFitError(f"campaign '{campaign.name}' has no breakdowns", remedy="run `calib breakdown`")
    runs = usable(campaign)
    runs = runs[
        (runs["pp"] == 1) & (runs["dp"] == 1) & runs["output_tokens_per_s"].notna() & runs["concurrency"].notna()
    ]
    points, missing = [], []
    for row in records(runs):
        at = {name: int(row[name]) for name in ("tp", "pp", "isl", "osl", "concurrency")}
        predicted = ideal_throughput(campaign.breakdowns, row["model"], row["backend"], **at)
        if predicted is None:
            missing.append(f"{row['model']} on {row['backend']} at C={row['concurrency']}: no decode and mixed step")
            continue
        # The role goes through the replay boundary, as any prediction by replay would.
        role = materialize_role(_role_config(row), functools.partial(_kv_tokens, row))
        points.append(
            BaselinePoint(
                model=row["model"],
                backend=row["backend"],
                backend_version=row["backend_version"],
                tp=int(row["tp"]),
                concurrency=int(row["concurrency"]),
                measured=float(row["output_tokens_per_s"]) / int(row["replicas"]),
                predicted=predicted,
                fits_memory=_fits(role, row),
            )
        )
    if not points:
        raise NothingToFitError(
            f"campaign '{campaign.name}' has no pp = 1 throughput with a decode and a mixed step",
            remedy="measure TP=G/PP=1, or compute its steps with `calib breakdown`",
        )
    return Qualification(tuple(points), band_pct, tuple(missing))


def _role_config(row: dict[str, Any]) -> RoleConfig:
    parallelism = {name: int(row[name]) for name in ("tp", "pp", "dp")}
    return RoleConfig("aggregated", parallelism, {}, {"pp": int(row["pp"])})


def _kv_tokens(row: dict[str, Any], config: RoleConfig) -> int:
    """KV capacity [tokens] of one replica from memory, weights and cache size; -1 where model or GPU are not known."""
    try:
        gpu, shape = load_gpu(str(row["system"])), load_shape(str(row["model"]))
    except BreakdownError:
        return -1
    tp = int(config.parallelism["tp"])
    attention = (
        shape.hidden * (shape.heads + 2 * shape.kv_heads) * shape.head_dim + shape.heads * shape.head_dim * shape.hidden
    )
    layer = (attention + 3 * shape.hidden * shape.intermediate) * shape.weight_bytes
    head = shape.vocab * shape.hidden * 2 * (1 if shape.tied_head else 2)
    free = gpu.memory_gb * 1e9 * (1 - _RESERVED) * tp - layer * shape.layers - head
    per_token = 2 * 2 * shape.layers * max(shape.kv_heads, tp) * shape.head_dim
    return max(0, int(free / per_token))


def _fits(role: Role, row: dict[str, Any]) -> bool | None:
    if role.kv_tokens < 0:
        return None
    return role.kv_tokens >= int(row["concurrency"]) * (int(row["isl"]) + int(row["osl"]))
