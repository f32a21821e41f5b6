"""calib: what pipeline parallelism really costs, measured, explained and published as coefficients.

>>> import calib
>>> campaign = calib.load_campaign("h200-vllm-pp")
>>> decomposition = calib.decompose(campaign)
>>> result = calib.fit(decomposition)
>>> result.table()  # doctest: +SKIP

Names are imported when first used: ``import calib`` alone costs nothing, and a prediction service that uses
`Predictor` loads neither pandas nor scipy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_PUBLIC = {
    "Campaign": "calib.campaign",
    "CalibError": "calib.errors",
    "CoefficientSet": "calib.coefficients",
    "Decomposition": "calib.efficiency",
    "FitResult": "calib.fitting",
    "PipelineLayout": "calib.stages",
    "PipelineSteadyState": "calib.stages",
    "Prediction": "calib.predict",
    "Predictor": "calib.predict",
    "coefficient_set": "calib.publish",
    "decompose": "calib.efficiency",
    "fit": "calib.fitting",
    "load_campaign": "calib.workflow",
    "open_store": "calib.store",
    "report": "calib.workflow",
    "run": "calib.workflow",
    "shipped_campaigns": "calib.workflow",
}

__all__ = [
    "CalibError",
    "Campaign",
    "CoefficientSet",
    "Decomposition",
    "FitResult",
    "PipelineLayout",
    "PipelineSteadyState",
    "Prediction",
    "Predictor",
    "__version__",
    "coefficient_set",
    "decompose",
    "fit",
    "load_campaign",
    "open_store",
    "report",
    "run",
    "shipped_campaigns",
]

if TYPE_CHECKING:
    from calib.campaign import Campaign
    from calib.coefficients import CoefficientSet
    from calib.efficiency import Decomposition, decompose
    from calib.errors import CalibError
    from calib.fitting import FitResult, fit
    from calib.predict import Prediction, Predictor
    from calib.publish import coefficient_set
    from calib.stages import PipelineLayout, PipelineSteadyState
    from calib.store import open_store
    from calib.workflow import load_campaign, report, run, shipped_campaigns


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'calib' has no attribute '{name}'")
    import importlib

    value = getattr(importlib.import_module(_PUBLIC[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
