"""A fit as a results object of statsmodels, for whoever knows those: ``summary()``, ``params``, ``bse``, ``conf_int()``.

`calib.fitting.least_squares` fits thousands of curves in one call and follows the fitted curve with its covariance; at the point
where it ends, the curve is its tangent, and the generalised least squares of statsmodels on that tangent has the same estimates,
covariance and degrees of freedom. So nothing is fitted twice: this is the same fit in the clothes that an analyst expects.
statsmodels is imported here alone, and only when it is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from calib.fitting.fitted_curve import Curve, coordinates, stated_errors
from calib.fitting.quantiles import normal_quantile, t_quantile

if TYPE_CHECKING:
    from calib.coefficients import Estimate


def regression_of(curve: Curve, points: pd.DataFrame) -> Any:
    """The fitted curve of one series as ``statsmodels`` results of generalised least squares on its tangent.

    Parameters
    ----------
    curve, points
        As `calib.fitting.fitted_curve.fit_curve` takes and gives them.

    Returns
    -------
    statsmodels.regression.linear_model.RegressionResultsWrapper
        ``endog`` is the residual [1] less what the tangent does not explain. Where there are no degrees of freedom the errors are
        the stated ones and quantiles are normal, as in calib's own interval; otherwise both are scaled by the scatter seen.
    """
    from statsmodels.regression.linear_model import GLS

    pp, concurrency = coordinates(curve.form, points)
    fitted = curve.form.residual(pp, curve.values, concurrency)
    slope = curve.form.jacobian(pp, curve.values, concurrency)
    measured = points["residual"].to_numpy(dtype=np.float64)
    tangent = pd.Series(measured - fitted + slope @ curve.values, name="residual [1]")
    design = pd.DataFrame(slope, columns=list(curve.form.parameters))
    model = GLS(tangent, design, sigma=stated_errors(points).covariance(fitted))
    if curve.dof > 0:
        return model.fit(use_t=True)
    return model.fit(cov_type="fixed scale", use_t=False)


def interval_table(
    rows: Sequence[tuple[tuple[Any, ...], Estimate, int, bool]], names: Sequence[str], alpha: float
) -> pd.DataFrame:
    """Estimates [1] with ``stderr`` and the ``1 - alpha`` interval, one row a parameter; NaN where nothing is known.

    ``rows`` are ``(key, estimate, dof, whether it is one)``; without degrees of freedom the quantile is the normal one.
    """
    found = []
    for key, e, dof, known in rows:
        at = 1.0 - alpha / 2.0
        q = t_quantile(at, dof) if dof > 0 else normal_quantile(at)
        for i, parameter in enumerate(e.parameters):
            error = e.stderr[i] if e.stderr and known else np.nan
            value = e.values[i] if known else np.nan
            found.append((*key, parameter, value, error, value - q * error, value + q * error))
    columns = [*names, "parameter", "value", "stderr", "lower", "upper"]
    return pd.DataFrame(found, columns=columns).set_index([*names, "parameter"])


def summary_of(table: pd.DataFrame, title: str, notes: Sequence[str]) -> Any:
    """A ``statsmodels.iolib.summary.Summary`` of a table that is text already, printed and shown in notebooks like any other."""
    from statsmodels.iolib.summary import Summary
    from statsmodels.iolib.table import SimpleTable
    from statsmodels.iolib.tableformatting import fmt_params

    made = Summary()
    made.tables.append(
        SimpleTable(table.to_numpy().tolist(), headers=list(table.columns), title=title, txt_fmt=fmt_params)
    )
    made.add_extra_txt(list(notes))
    return made
