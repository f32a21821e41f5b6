"""The predictors and the engine that predict, apply and recommend work with."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from calib.errors import UsageError

if TYPE_CHECKING:
    from calib.coefficients import Predictor


def prediction_options(refused: list[str] | None, extrapolate: list[str] | None, no_correction: bool) -> dict[str, Any]:
    """The arguments of a prediction."""
    names = tuple(extrapolate or ())
    return {
        "allow_refused": tuple(refused or ()),
        "extrapolate": True if "all" in names else names,
        "correction": "off" if no_correction else "on",
    }


def standing_predictors(file: Path | None, registry: Path | None) -> list[Predictor]:
    """The file, else every standing release, newest first."""
    from calib.coefficients import SHIPPED, Predictor, Registry

    if file is not None:
        return [Predictor.load(file, registry=registry)]
    opened = Registry.open(registry or SHIPPED)
    return [Predictor(opened.load(e), source=opened.path_of(e)) for e in opened.current]


def ideal_engine(name: str, backend: str, system: str, partition: str | None) -> Any:
    if name != "aiconfigurator":
        raise UsageError("must be 'aiconfigurator'", field="--engine", value=name)
    from calib.integrations import IdealEngine
    from calib.pipeline import AiconfiguratorProvider

    return IdealEngine(AiconfiguratorProvider(system), partition or ("vllm" if backend == "vllm" else "even"))
