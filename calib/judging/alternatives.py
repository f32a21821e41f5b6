"""Other views of the same campaign, which a report shows beside the published fit."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from calib.coefficients import LOG2_CONCURRENCY, CoefficientSet
from calib.errors import CalibError
from calib.fitting import KEY, Decomposition, FitResult, decompose, fit, to_coefficient_set
from calib.judging.accuracy import predict_table


@dataclass(frozen=True)
class Fitted:
    """Measured and predicted efficiency [1] of every point of one fit.

    ``table``: the decomposition's rows with ``measured``, ``predicted``, ``low`` and ``high`` [1], NaN where not known.
    """

    fit: FitResult
    table: pd.DataFrame


def predicted_points(result: FitResult, coefficients: CoefficientSet) -> Fitted:
    """What a coefficient file predicts of its own points."""
    table = result.decomposition.table
    value, low, high = predict_table(coefficients, table)
    return Fitted(result, table.assign(measured=table["efficiency"], predicted=value, low=low, high=high))


def at_every_concurrency(decomposition: Decomposition) -> Fitted | None:
    """Every measured concurrency by the form with a concurrency term, partially pooled; None where there are too few."""
    if decomposition.table["concurrency"].isna().any():
        return None
    matched = _again(decomposition, matching="matched")
    if matched is None:
        return None
    few = matched.table.groupby(list(KEY), dropna=False)["concurrency"].nunique().min() < 3
    if few or matched.table["concurrency"].isna().any():
        return None
    result = fit(matched, form=LOG2_CONCURRENCY.name, pooling="partial", drift=False)
    return predicted_points(result, to_coefficient_set(result))


def by_the_model(decomposition: Decomposition) -> FitResult | None:
    """The published form with ``reference = "model"``; None where the breakdowns do not hold what it needs."""
    model = _again(decomposition, reference="model")
    return None if model is None else fit(model, drift=False)


def _again(decomposition: Decomposition, **changes: str) -> Decomposition | None:
    options = {"matching": decomposition.matching, "reference": decomposition.reference} | changes
    try:
        found = decompose(
            decomposition.campaign, error_floor=decomposition.error_floor, balance=decomposition.balance,
            end_effect=decomposition.end_effect, **options,  # type: ignore[arg-type]
        )  # fmt: skip
    except CalibError:
        return None
    return None if found.table.empty else found
