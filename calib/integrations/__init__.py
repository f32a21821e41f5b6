"""Other tools' models and tables: aiconfigurator's steps and result tables, the engine-replay boundary, the pp = 1 baseline.

Imports `judging` and what lies below it; each module needs its tool only when it is used.
Read first: `aiconfigurator_tables` (a table corrected and ranked again), then `replay`.
"""

from typing import TYPE_CHECKING

from calib._exports import face

if TYPE_CHECKING:
    from calib.integrations.aiconfigurator import EnginePoint as EnginePoint, IdealEngine as IdealEngine
    from calib.integrations.aiconfigurator_rows import parse_results as parse_results
    from calib.integrations.aiconfigurator_tables import ApplyOptions as ApplyOptions, best_predictor as best_predictor
    from calib.integrations.baseline import Qualification as Qualification, qualify_baseline as qualify_baseline
else:
    __getattr__, __dir__ = face(
        __name__,
        {
            "aiconfigurator": "EnginePoint IdealEngine",
            "aiconfigurator_tables": "ApplyOptions best_predictor",
            "aiconfigurator_rows": "parse_results",
            "baseline": "Qualification qualify_baseline",
        },
    )
