"""Published figures that a campaign carries beside its runs."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path

from calib.errors import CampaignError
from calib.files import read_bytes
from calib.measure.campaign.config import CampaignConfig
from calib.measure.campaign.folder import inside
from calib.measure.readers.csv_table import NUMBER

# What a published table must have: text columns, and columns of numbers (an empty cell is an unpublished figure).
_PUBLISHED = {
    "decomposition": (
        ("model", "backend"),
        ("pp", "total_penalty_pct", "balance_share_pp", "scheduling_residual_pp"),
    ),
    "coefficients": (("model",), ("vllm_s", "sglang_s", "trtllm_s")),
    "accuracy": (("backend", "approach", "mean_abs_error_pp", "max_abs_error_pp"), ()),
    "uncalibrated": (("model", "backend"), ("tp", "pp", "predicted_tokens_per_s_per_gpu")),
}


def published_files(config: CampaignConfig) -> dict[str, str | None]:
    """Name of each published table that a campaign carries -> its file."""
    return {name: getattr(config.published, name) for name in _PUBLISHED} if config.published else {}


def read_published(folder: Path, config: CampaignConfig, toml: Path) -> dict[str, tuple[Mapping[str, str], ...]]:
    """The published tables by name; `CampaignError` where one is not what its name says."""
    tables: dict[str, tuple[Mapping[str, str], ...]] = {}
    for name, file in published_files(config).items():
        if file is None:
            continue
        path = inside(folder, file, toml, f"published.{name}")
        try:
            rows = tuple(csv.DictReader(read_bytes(path).decode("utf-8-sig").splitlines(), restval=""))
        except (csv.Error, UnicodeDecodeError) as error:
            raise CampaignError(f"is not a CSV table ({error})", file=path, remedy="save it as UTF-8 CSV") from None
        _check_published(rows, *_PUBLISHED[name], path)
        tables[name] = rows
    return tables


def _check_published(
    rows: tuple[Mapping[str, str], ...], texts: tuple[str, ...], numbers: tuple[str, ...], path: Path
) -> None:
    for row in rows:
        for name in (*texts, *numbers):
            if name not in row:
                raise CampaignError("is missing", file=path, field=name, remedy="add the column")
        for name in numbers:
            if row[name] and not NUMBER.fullmatch(row[name]):
                raise CampaignError("is not a number", file=path, field=name, value=row[name], remedy="correct it")
        if not row.get("pp", "1").isdecimal():
            raise CampaignError("is not a whole number", file=path, field="pp", value=row["pp"], remedy="correct it")
