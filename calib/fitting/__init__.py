"""Efficiencies to coefficients: each PP run against its baseline, what balance explains of it, and the form fitted to the rest.

Imports `measure`, `pipeline`, `coefficients` and the root. The formulas of the forms are the consumer's: `coefficients.forms`.
Read first: `efficiency` (a campaign to its residuals), then `estimate` (residuals to s), then `verdict` (FIT or REFUSED).
"""

from typing import TYPE_CHECKING

from calib._exports import face

if TYPE_CHECKING:
    from calib.fitting.comparison_rules import COMPARISON_RULES as COMPARISON_RULES
    from calib.fitting.efficiency import (
        ERROR_FLOOR as ERROR_FLOOR,
        LOG_PARTS as LOG_PARTS,
        SMALLEST_FLOOR as SMALLEST_FLOOR,
        Decomposition as Decomposition,
        decompose as decompose,
    )
    from calib.fitting.estimate import fit as fit
    from calib.fitting.fitted_curve import Curve as Curve, coordinates as coordinates, fit_curve as fit_curve
    from calib.fitting.least_squares import (
        Errors as Errors,
        Solution as Solution,
        fit_gls as fit_gls,
        solve_gls as solve_gls,
    )
    from calib.fitting.quantiles import (
        chi_square_sf as chi_square_sf,
        kendall_tau as kendall_tau,
        normal_quantile as normal_quantile,
    )
    from calib.fitting.random_effects import Pool as Pool, pool as pool
    from calib.fitting.results import KEY as KEY, FitResult as FitResult, Pooling as Pooling, SeriesFit as SeriesFit
    from calib.fitting.to_coefficients import to_coefficient_set as to_coefficient_set
else:
    __getattr__, __dir__ = face(
        __name__,
        {
            "comparison_rules": "COMPARISON_RULES",
            "efficiency": "Decomposition ERROR_FLOOR LOG_PARTS SMALLEST_FLOOR decompose",
            "estimate": "fit",
            "fitted_curve": "Curve coordinates fit_curve",
            "least_squares": "Errors Solution fit_gls solve_gls",
            "random_effects": "Pool pool",
            "quantiles": "chi_square_sf kendall_tau normal_quantile",
            "results": "FitResult KEY Pooling SeriesFit",
            "to_coefficients": "to_coefficient_set",
        },
    )
