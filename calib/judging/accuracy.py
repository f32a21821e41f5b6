"""How wrong a prediction is, in sample and left out, point by point.

Error = predicted - measured, in percentage points of efficiency. Averages are taken over points.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from calib.arrays import Array
from calib.coefficients import LOG2, CoefficientSet, Predictor, ResidualForm
from calib.fitting import KEY, Curve, FitResult, coordinates, fit_curve
from calib.names import BACKEND_KEY, IN_SAMPLE, ONE_PP
from calib.notebook import LEFT, RIGHT, ROWS, decimal_text, html_block, html_table

Train = Callable[[ResidualForm, pd.DataFrame, pd.DataFrame], Array]

PER_MODEL = "balance * (1 - s_model*log2(pp))"
PER_BACKEND = "balance * (1 - s_backend*log2(pp))"
FLAT = "1 - c*log2(pp), no balance"
UNWEIGHTED = "balance * (1 - s_model*log2(pp)), plain least squares as published"
APPROACHES = (FLAT, UNWEIGHTED, PER_MODEL, PER_BACKEND)
POINT = (
    "system",
    "backend",
    "backend_version",
    "model",
    "precision",
    "tp",
    "pp",
    "concurrency",
    "isl",
    "osl",
)


@dataclass(frozen=True, repr=False)
class Accuracy:
    """Errors of each approach.

    Attributes
    ----------
    points : DataFrame
        One row a (approach, scheme, point): ``measured``, ``predicted`` [1] (NaN where it cannot be predicted) and
        ``error_pp`` [percentage points].
    summary : DataFrame
        One row a (backend, approach, scheme): points, points predicted, mean and worst absolute error [percentage points].
    """

    points: pd.DataFrame
    summary: pd.DataFrame

    def __repr__(self) -> str:
        return f"<Accuracy of {len(self.summary)} approaches and schemes, {len(self.points)} predictions>"

    def _repr_html_(self) -> str:
        columns = {"backend": LEFT, "approach": LEFT, "scheme": LEFT, "points predicted": RIGHT, "mean |error| [pp]": RIGHT,
                   "worst |error| [pp]": RIGHT, "worst point": LEFT}  # fmt: skip
        rows = [
            (r["backend"], r["approach"], r["scheme"], f"{r['predicted']} of {r['points']}",
             decimal_text(r["mean_abs_error_pp"], 1), decimal_text(r["max_abs_error_pp"], 1), r["worst_point"])
            for r in self.summary.head(ROWS).to_dict("records")
        ]  # fmt: skip
        return html_block(
            "Accuracy", "Predicted minus measured efficiency, in percentage points (pp).",
            html_table(columns, rows, len(self.summary), "accuracy.summary"),
        )  # fmt: skip


def error_pp(*, predicted: ArrayLike, measured: ArrayLike) -> Array:
    """Predicted minus measured efficiency [percentage points]."""
    return 100.0 * (np.asarray(predicted, dtype=np.float64) - np.asarray(measured, dtype=np.float64))


def judge_accuracy(fit: FitResult, coefficients: CoefficientSet) -> Accuracy:
    """Errors of the flat coefficient, of one ``s`` a model and of one ``s`` a backend, and of the published estimator.

    The other forms, ways to pool and left-out schemes are in `calib.judging.contest`.

    In sample, the per-model predictions are what `Predictor` gives for ``coefficients``, bit for bit. Left out, each pp
    level is predicted from a fit to the other levels of the same group. Refused coefficients are included: the table
    shows why they are refused.
    """
    table, form = fit.decomposition.table, fit.form
    flat = LOG2 if form.needs_concurrency else form
    predicted = {
        (FLAT, IN_SAMPLE): _by_group(flat, table, BACKEND_KEY, _flat),
        (FLAT, ONE_PP): _by_group(flat, table, BACKEND_KEY, _left_out(_flat)),
        (UNWEIGHTED, IN_SAMPLE): _by_group(LOG2, table, KEY, _unweighted),
        (UNWEIGHTED, ONE_PP): _by_group(LOG2, table, KEY, _left_out(_unweighted)),
        (PER_MODEL, IN_SAMPLE): predict_points(coefficients, table),
        (PER_MODEL, ONE_PP): _by_group(form, table, KEY, _left_out(_balanced)),
        (PER_BACKEND, IN_SAMPLE): _by_group(form, table, BACKEND_KEY, _balanced),
        (PER_BACKEND, ONE_PP): _by_group(form, table, BACKEND_KEY, _left_out(_balanced)),
    }
    parts = []
    for (approach, scheme), values in predicted.items():
        part = table[list(POINT)].copy()
        part.insert(0, "approach", approach)
        part.insert(1, "scheme", scheme)
        part["measured"] = table["efficiency"]
        part["predicted"] = values
        part["error_pp"] = error_pp(predicted=values, measured=table["efficiency"])
        parts.append(part)
    points = pd.concat(parts, ignore_index=True)
    return Accuracy(points, _summary(points))


def predict_points(coefficients: CoefficientSet, table: pd.DataFrame) -> Array:
    """The efficiency [1] the coefficient file gives for each row of a decomposition's table, refused ones included.

    With ``reference = "model"`` that is K times the file's factor. The concurrency is left out where the campaign states none.
    """
    return predict_table(coefficients, table)[0]


def predict_table(coefficients: CoefficientSet, table: pd.DataFrame) -> tuple[Array, Array, Array]:
    """Efficiency [1] with the bounds of its 95 % prediction interval, as `predict_points`."""
    points = {c: table[c].to_numpy(dtype=object) if c == "precision" else table[c].to_numpy() for c in POINT}
    points["concurrency"] = np.array([None if pd.isna(c) else int(c) for c in table["concurrency"]], dtype=object)
    factor = Predictor(coefficients).factor(points, allow_refused=set(table["model"]))
    k: Array = table["k_model"].to_numpy(dtype=np.float64)
    return k * factor.value, k * factor.low, k * factor.high


def _by_group(form: ResidualForm, table: pd.DataFrame, key: tuple[str, ...], predict: Train) -> Array:
    values = np.full(len(table), np.nan)
    for _, group in table.groupby(list(key), dropna=False, sort=True):
        values[group.index] = predict(form, group, group)
    return values


def _flat(form: ResidualForm, train: pd.DataFrame, test: pd.DataFrame) -> Array:
    return _evaluate(fit_curve(form, train, column="efficiency"), test)


def _balanced(form: ResidualForm, train: pd.DataFrame, test: pd.DataFrame) -> Array:
    return test["explained"].to_numpy() * _evaluate(fit_curve(form, train), test)


def _unweighted(form: ResidualForm, train: pd.DataFrame, test: pd.DataFrame) -> Array:
    """Least squares that takes every point to be equally well known, as was published."""
    values = form.start(train["pp"].to_numpy(), train["residual"].to_numpy())
    return test["explained"].to_numpy() * form.residual(test["pp"].to_numpy(), values)


def _evaluate(curve: Curve, test: pd.DataFrame) -> Array:
    pp, concurrency = coordinates(curve.form, test)
    return curve.form.residual(pp, curve.values, concurrency)


def _left_out(predict: Train) -> Train:
    def each_level(form: ResidualForm, train: pd.DataFrame, test: pd.DataFrame) -> Array:
        values = np.full(len(test), np.nan)
        for level in sorted(set(test["pp"])):
            rest, here = train[train["pp"] != level], (test["pp"] == level).to_numpy()
            if len(rest) >= max(1, len(form.parameters)):
                values[here] = predict(form, rest, test[here])
        return values

    return each_level


def _summary(points: pd.DataFrame) -> pd.DataFrame:
    rows = []
    for (backend, approach, scheme), group in points.groupby(["backend", "approach", "scheme"], sort=False):
        known = group[group["predicted"].notna()]
        size = known["error_pp"].abs()
        worst = known.iloc[int(size.argmax())] if len(known) else None
        rows.append(
            {
                "backend": backend,
                "approach": approach,
                "scheme": scheme,
                "points": len(group),
                "predicted": len(known),
                "mean_abs_error_pp": float(size.mean()) if len(known) else np.nan,
                "max_abs_error_pp": float(size.max()) if len(known) else np.nan,
                "worst_point": "" if worst is None else f"{worst['model']} TP{worst['tp']}/PP{worst['pp']}",
            }
        )
    table = pd.DataFrame(rows)
    rank = {name: i for i, name in enumerate((*APPROACHES, IN_SAMPLE, ONE_PP))}
    order = table.assign(_a=table["approach"].map(rank), _s=table["scheme"].map(rank))
    return order.sort_values(["backend", "_a", "_s"], kind="stable", ignore_index=True).drop(columns=["_a", "_s"])
