"""The coefficient file and its consumer: what a fit publishes, and what a prediction model loads and applies.

Holds the file's format, the formulas of the forms, the registry of released files, and the predictor. Needs numpy and msgspec
only and imports nothing of calib but the modules of its root, so a prediction service may carry this folder alone.
Read first: `file` (the document), then `predictor` (file and operating points to a factor).
"""

from typing import TYPE_CHECKING

from calib._exports import face

if TYPE_CHECKING:
    from calib.coefficients.comparison import Comparison as Comparison, Key as Key, compare as compare
    from calib.coefficients.estimate_rows import ESTIMATED as ESTIMATED, estimated_row as estimated_row
    from calib.coefficients.file import FILE_NAME as FILE_NAME, CoefficientSet as CoefficientSet
    from calib.coefficients.forms import (
        FORMS as FORMS,
        FREE as FREE,
        LOG2 as LOG2,
        LOG2_CONCURRENCY as LOG2_CONCURRENCY,
        ResidualForm as ResidualForm,
        free_form as free_form,
        get_form as get_form,
        real_array as real_array,
    )
    from calib.coefficients.point_columns import Codes as Codes
    from calib.coefficients.points import (
        APPLIED_FIELD as APPLIED_FIELD,
        BASELINE_FIELD as BASELINE_FIELD,
        FIELDS as FIELDS,
        MODEL_FIELD as MODEL_FIELD,
        NOT_APPLIED as NOT_APPLIED,
        Points as Points,
    )
    from calib.coefficients.prediction import Correction as Correction, Prediction as Prediction
    from calib.coefficients.predictor import Predictor as Predictor, load_released as load_released
    from calib.coefficients.records import (
        BalanceFactor as BalanceFactor,
        BalanceSource as BalanceSource,
        Coefficient as Coefficient,
        ContestRow as ContestRow,
        Created as Created,
        Deviation as Deviation,
        Domain as Domain,
        Estimate as Estimate,
        FormTest as FormTest,
        InputFile as InputFile,
        Span as Span,
        VersionRange as VersionRange,
    )
    from calib.coefficients.registry import SHIPPED as SHIPPED, Registry as Registry
    from calib.coefficients.releasing import release as release, withdraw as withdraw
else:
    __getattr__, __dir__ = face(
        __name__,
        {
            "comparison": "Comparison Key compare",
            "file": "CoefficientSet FILE_NAME",
            "forms": "FORMS FREE LOG2 LOG2_CONCURRENCY ResidualForm free_form get_form real_array",
            "estimate_rows": "ESTIMATED estimated_row",
            "points": "APPLIED_FIELD BASELINE_FIELD FIELDS MODEL_FIELD NOT_APPLIED Points",
            "point_columns": "Codes",
            "prediction": "Correction Prediction",
            "predictor": "Predictor load_released",
            "records": "BalanceFactor BalanceSource Coefficient ContestRow Created Deviation Domain Estimate FormTest InputFile Span VersionRange",
            "registry": "Registry SHIPPED",
            "releasing": "release withdraw",
        },
    )
