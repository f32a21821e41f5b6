"""How wrong a fit is, whether it chooses right, which form predicts best, and what to measure next.

Everything here asks a fit about points it has not seen. Imports `fitting` and what lies below it.
Read first: `accuracy` (errors in sample and left out), then `left_out` and `contest` (all ways to fit, held against each other).
"""

from typing import TYPE_CHECKING

from calib._exports import face

if TYPE_CHECKING:
    from calib.judging.accuracy import (
        FLAT as FLAT,
        PER_BACKEND as PER_BACKEND,
        PER_MODEL as PER_MODEL,
        POINT as POINT,
        UNWEIGHTED as UNWEIGHTED,
        Accuracy as Accuracy,
        judge_accuracy as judge_accuracy,
    )
    from calib.judging.alternatives import (
        Fitted as Fitted,
        at_every_concurrency as at_every_concurrency,
        by_the_model as by_the_model,
        predicted_points as predicted_points,
    )
    from calib.judging.before_after import compare_before_after as compare_before_after
    from calib.judging.candidates import (
        Candidate as Candidate,
        Question as Question,
        campaign_candidates as campaign_candidates,
        gpu_layouts as gpu_layouts,
    )
    from calib.judging.contest import contest_forms as contest_forms
    from calib.judging.decisions import (
        CALIBRATED_BY_OTHERS as CALIBRATED_BY_OTHERS,
        OWN_OPTIMUM as OWN_OPTIMUM,
        UNCALIBRATED as UNCALIBRATED,
        rank_decisions as rank_decisions,
        summarize_decisions as summarize_decisions,
    )
    from calib.judging.left_out import (
        NESTED as NESTED,
        ONE_BACKEND as ONE_BACKEND,
        ONE_CONFIGURATION as ONE_CONFIGURATION,
        ONE_MODEL as ONE_MODEL,
    )
    from calib.judging.planning import (
        DETECTION as DETECTION,
        MOST_REPEATS as MOST_REPEATS,
        Plan as Plan,
        PlanOptions as PlanOptions,
        plan_runs as plan_runs,
    )
    from calib.judging.recommendation import (
        Recommendation as Recommendation,
        choose_release as choose_release,
        require_reference as require_reference,
    )
    from calib.judging.sensitivity import vary_choices as vary_choices, vary_physics as vary_physics
else:
    __getattr__, __dir__ = face(
        __name__,
        {
            "accuracy": "Accuracy FLAT PER_BACKEND PER_MODEL POINT UNWEIGHTED judge_accuracy",
            "alternatives": "Fitted at_every_concurrency by_the_model predicted_points",
            "before_after": "compare_before_after",
            "candidates": "Candidate Question campaign_candidates gpu_layouts",
            "contest": "contest_forms",
            "decisions": "CALIBRATED_BY_OTHERS OWN_OPTIMUM UNCALIBRATED rank_decisions summarize_decisions",
            "left_out": "NESTED ONE_BACKEND ONE_CONFIGURATION ONE_MODEL",
            "planning": "DETECTION MOST_REPEATS Plan PlanOptions plan_runs",
            "recommendation": "Recommendation choose_release require_reference",
            "sensitivity": "vary_choices vary_physics",
        },
    )
