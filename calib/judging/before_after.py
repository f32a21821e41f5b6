"""Before and after calibration, over every PP>1 point of a campaign at matched concurrency: four predictions of throughput.

Each multiplies the throughput that was measured at TP=G/PP=1 and the same concurrency, so the error of the model's own pp = 1
prediction is in none of them:

    (a) measured baseline * K                          K: the model's ideal (tp, pp) throughput over its own at (G, 1)
    (b) measured baseline * K * balance * linear fill
    (c) measured baseline * factor of ``reference = "baseline"``, from the other models
    (d) measured baseline * K * factor of ``reference = "model"``, from the other models

(c) and (d) leave the predicted model out and are fixed beforehand, not chosen by this error: the form with a concurrency term,
partially pooled over the models, (c) without balance and with that of a decode step.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from calib.arrays import Array
from calib.errors import BreakdownError, UsageError
from calib.fitting import decompose
from calib.judging.left_out import ONE_MODEL, Data, Way, left_out, mape
from calib.measure import Campaign, usable

FORM = "log2_concurrency"
COLUMNS = (
    "backend",
    "approach",
    "scheme",
    "points",
    "predicted",
    "mape_pct",
    "starved_mape_pct",
    "full_mape_pct",
    "note",
)
NOTHING_FITTED = "nothing fitted"
WHY_D_DIFFERS = (
    "K carries the model's own TP scaling, which is off by another factor for each model; one form in pp and C cannot learn that "
    "from the other models"
)


def compare_before_after(campaign: Campaign) -> pd.DataFrame:
    """One row a (backend, prediction); columns `COLUMNS`, errors as MAPE of throughput [%].

    ``starved_mape_pct`` is over the points with C < pp, ``full_mape_pct`` over those with C >= pp. Empty where the campaign has
    no throughputs, or no decode and mixed steps, at several concurrencies.
    """
    empty = pd.DataFrame(columns=list(COLUMNS))
    if campaign.breakdowns is None or usable(campaign)["efficiency"].notna().any():
        return empty
    try:
        model = decompose(campaign, matching="matched", reference="model").table
        baseline = decompose(campaign, matching="matched", reference="baseline").table
    except (BreakdownError, UsageError):
        return empty
    rows: list[dict[str, Any]] = []
    for key, group in model.groupby(["system", "backend", "backend_version"], dropna=False, sort=False):
        same = (baseline[["system", "backend", "backend_version"]] == list(key)).all(axis=1)
        if group["concurrency"].isna().any() or group["concurrency"].nunique() < 3:
            continue
        stated = same & baseline["concurrency"].notna()
        rows += _rows(str(key[1]), group, baseline[stated])
    return pd.DataFrame(rows, columns=list(COLUMNS)) if rows else empty


def _rows(backend: str, model: pd.DataFrame, baseline: pd.DataFrame) -> list[dict[str, Any]]:
    k, balance = model["k_model"].to_numpy(), model["balance_factor"].to_numpy()
    linear = np.minimum(1.0, model["concurrency"].to_numpy(dtype=np.float64) / model["pp"].to_numpy())
    points = Data.of(baseline)
    flat = points.without_balance(baseline["balance_factor"].to_numpy())

    def others(data: Data, kind: Any) -> Array:
        return left_out(Way(FORM, "partial", kind).predict, data, ONE_MODEL)

    found = (
        ("(a) ideal model: measured baseline * K", NOTHING_FITTED, k, model, ""),
        ("(b) (a) * balance * linear fill", NOTHING_FITTED, k * balance * linear, model, ""),
        ("(c) baseline factor, without balance", ONE_MODEL, others(flat, "none"), baseline, ""),
        ("(c) baseline factor, balance of a decode step", ONE_MODEL, others(points, "decode"), baseline, ""),
        ("(d) K * model factor", ONE_MODEL, others(Data.of(model), "decode"), model, WHY_D_DIFFERS),
    )
    return [_row(backend, *each) for each in found]


def _row(backend: str, approach: str, scheme: str, predicted: Array, table: pd.DataFrame, note: str) -> dict[str, Any]:
    measured = table["efficiency"].to_numpy(dtype=np.float64)
    full = (table["concurrency"] >= table["pp"]).fillna(False).to_numpy(dtype=np.bool_)
    return {
        "backend": backend,
        "approach": approach,
        "scheme": scheme,
        "points": len(predicted),
        "predicted": int(np.sum(~np.isnan(predicted))),
        "mape_pct": mape(predicted=predicted, measured=measured),
        "starved_mape_pct": mape(predicted=predicted[~full], measured=measured[~full]),
        "full_mape_pct": mape(predicted=predicted[full], measured=measured[full]),
        "note": note,
    }
