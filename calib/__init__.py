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

from calib._version import __version__

# Name -> module, with the name there where it differs: a function called as its module would be hidden by it.
_PUBLIC = {
    "Accuracy": "calib.validation",
    "CalibError": "calib.errors",
    "Campaign": "calib.campaign",
    "CoefficientSet": "calib.coefficients",
    "Decomposition": "calib.efficiency",
    "Draft": "calib.draft",
    "FitResult": "calib.fitting",
    "Options": "calib.workflow",
    "PipelineLayout": "calib.stages",
    "PipelineSteadyState": "calib.stages",
    "Prediction": "calib.predict",
    "Predictor": "calib.predict",
    "accuracy": "calib.validation",
    "coefficient_set": "calib.workflow:publish_fit",
    "contest_forms": "calib.contest:contest",
    "decompose": "calib.efficiency",
    "draft_campaign": "calib.draft",
    "explain_stages": "calib.explain:explain",
    "fit": "calib.fitting",
    "init_campaign": "calib.draft",
    "load_campaign": "calib.workflow",
    "open_store": "calib.store",
    "plan_runs": "calib.plan:plan",
    "plot_efficiency": "calib.figures",
    "plot_stages": "calib.figures",
    "rank_decisions": "calib.decisions:decisions",
    "report": "calib.workflow",
    "run": "calib.workflow",
    "shipped_campaigns": "calib.workflow",
}

__all__ = [
    "Accuracy",
    "CalibError",
    "Campaign",
    "CoefficientSet",
    "Decomposition",
    "Draft",
    "FitResult",
    "Options",
    "PipelineLayout",
    "PipelineSteadyState",
    "Prediction",
    "Predictor",
    "__version__",
    "accuracy",
    "coefficient_set",
    "contest_forms",
    "decompose",
    "draft_campaign",
    "explain_stages",
    "fit",
    "init_campaign",
    "load_campaign",
    "open_store",
    "plan_runs",
    "plot_efficiency",
    "plot_stages",
    "rank_decisions",
    "report",
    "run",
    "shipped_campaigns",
]

if TYPE_CHECKING:
    from calib.campaign import Campaign
    from calib.coefficients import CoefficientSet
    from calib.contest import contest as contest_forms
    from calib.decisions import decisions as rank_decisions
    from calib.draft import Draft, draft_campaign, init_campaign
    from calib.efficiency import Decomposition, decompose
    from calib.errors import CalibError
    from calib.explain import explain as explain_stages
    from calib.figures import plot_efficiency, plot_stages
    from calib.fitting import FitResult, fit
    from calib.plan import plan as plan_runs
    from calib.predict import Prediction, Predictor
    from calib.stages import PipelineLayout, PipelineSteadyState
    from calib.store import open_store
    from calib.validation import Accuracy, accuracy
    from calib.workflow import Options, load_campaign, report, run, shipped_campaigns
    from calib.workflow import publish_fit as coefficient_set


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'calib' has no attribute '{name}'")
    import importlib

    module, _, there = _PUBLIC[name].partition(":")
    value = getattr(importlib.import_module(module), there or name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
