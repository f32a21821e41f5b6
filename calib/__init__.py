"""calib: what pipeline parallelism really costs, measured, explained and published as coefficients.

>>> import calib
>>> campaign = calib.load_campaign("h200-vllm-pp")
>>> decomposition = calib.decompose(campaign)
>>> result = calib.fit(decomposition)
>>> result.table()  # doctest: +SKIP

Names are imported when first used: ``import calib`` alone costs nothing, and a prediction service that uses
`Predictor` loads neither pandas nor scipy.

How ``pp`` and one throughput walk from a benchmark file to a coefficient, and from there to a prediction:

 1. measure/readers/aiperf/summary.py `parse_summary`: the file states tok/s; of pp it knows nothing
 2. measure/campaign/topology.py `identify`: pp from campaign.toml, side-cars and names, which must agree; never a guess
 3. measure/run_table.py `make_run_table`: both become a row with their units in the column names
 4. measure/screening/screen.py `screen`: rules warn about the row, or set it aside
 5. fitting/matching.py `observe`: its throughput per GPU over that of TP=G/PP=1 is the efficiency at this pp
 6. fitting/shares.py `explain_point`: what balance explains is taken out, the rest is the residual
 7. fitting/least_squares.py `fit_gls`: the residuals of a model over their pp give s
 8. fitting/to_coefficients.py `to_coefficient_set`: s, its interval, verdict and domain become a file
 9. coefficients/selection.py `Lookup`: asked for a model and a pp, the file gives the coefficient and the balance factor
10. coefficients/predictor.py `Predictor`: balance * (1 - s*log2(pp)), times the throughput measured at PP=1
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from calib._exports import face
from calib._version import __version__

__all__ = [
    "Accuracy", "CalibError", "Campaign", "CoefficientSet", "Decomposition", "Draft", "FitResult", "Options", "PipelineLayout",
    "PipelineSteadyState", "Prediction", "Predictor", "__version__", "accuracy", "coefficient_set", "contest_forms", "decompose",
    "draft_campaign", "explain_stages", "fit", "init_campaign", "load_campaign", "open_store", "plan_runs", "plot_efficiency",
    "plot_stages", "rank_decisions", "report", "run", "shipped_campaigns",
]  # fmt: skip

if TYPE_CHECKING:
    from calib.coefficients import CoefficientSet, Prediction, Predictor
    from calib.errors import CalibError
    from calib.fitting import Decomposition, FitResult, decompose, fit
    from calib.judging import Accuracy, contest_forms, judge_accuracy as accuracy, plan_runs, rank_decisions
    from calib.measure import Campaign, Draft, draft_campaign, init_campaign, load_campaign, shipped_campaigns
    from calib.nightly import open_store
    from calib.pipeline import PipelineLayout, PipelineSteadyState, explain_stages
    from calib.reporting import plot_efficiency, plot_stages
    from calib.workflow import Options, coefficient_set, report, run
else:
    __getattr__, _ = face(__name__, {
        "coefficients.file": "CoefficientSet",
        "coefficients.prediction": "Prediction",
        "coefficients.predictor": "Predictor",
        "errors": "CalibError",
        "fitting": "Decomposition FitResult decompose fit",
        "judging": "Accuracy contest_forms plan_runs rank_decisions accuracy=judge_accuracy",
        "measure": "Campaign Draft draft_campaign init_campaign load_campaign shipped_campaigns",
        "nightly": "open_store",
        "pipeline": "PipelineLayout PipelineSteadyState explain_stages",
        "reporting": "plot_efficiency plot_stages",
        "workflow": "Options coefficient_set report run",
    })  # fmt: skip


def __dir__() -> list[str]:
    return list(__all__)
