"""What stands beside a verdict and never makes one."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from calib.coefficients import ResidualForm
from calib.fitting.quantiles import chi_square_sf
from calib.fitting.verdict import LEVEL, MIN_LEVELS, fit_each_concurrency, p_text


def series_warnings(group: pd.DataFrame) -> tuple[str, ...]:
    """What screening said about the points and how their balance factors came to be known."""
    found = []
    for rule in sorted({r for rules in group["rules"] for r in rules.split()}):
        hit = sum(rule in rules.split() for rules in group["rules"])
        found.append(f"{rule} at {hit} of {len(group)} points")
    for status in ("assumed", "derived"):
        hit = int((group["balance_status"] == status).sum())
        if hit:
            found.append(f"balance factor {status} at {hit} of {len(group)} points")
    return tuple(found)


def drift_warning(form: ResidualForm, matched: pd.DataFrame) -> str | None:
    """Says that the first parameter differs between concurrencies by more than the stated errors; None where it does not.

    Homogeneity of the estimates at each concurrency: ``Q = sum((s_c - mean)^2 / var_c)`` is chi-square on their number
    less one, each concurrency having a baseline of its own.
    """
    fits = [f for f in fit_each_concurrency(form, matched, test=False) if f.points["pp"].nunique() >= MIN_LEVELS]
    if len(fits) < 2:
        return None
    s = np.array([f.curve.values[0] for f in fits])
    variance = np.array([f.curve.stated_covariance[0, 0] for f in fits])
    mean = np.sum(s / variance) / np.sum(1 / variance)
    p = float(chi_square_sf(np.sum((s - mean) ** 2 / variance), len(fits) - 1))
    if p >= LEVEL:
        return None
    low, high = sorted((fits[int(np.argmin(s))], fits[int(np.argmax(s))]), key=lambda f: f.concurrency)
    name = low.curve.form.parameters[0]
    return (
        f"drifts with concurrency: {name} = {low.curve.values[0]:.2f} at C={low.concurrency} and {high.curve.values[0]:.2f} "
        f"at C={high.concurrency} (p {p_text(p)} that it is the same)"
    )


def falling_warning(matched: pd.DataFrame) -> str | None:
    """Says where throughput falls while concurrency rises, by more than 3.5 of both errors; None where it does not."""
    worst: tuple[float, str] | None = None
    base = matched.drop_duplicates("baseline_id").assign(pp=1)
    for x, error, part in (
        *((p["output_tokens_per_s"], p["rel_error"], p) for _, p in matched.groupby("pp", sort=True)),
        (base["baseline_output_tokens_per_s"], base["baseline_rel_error"], base),
    ):
        table = pd.DataFrame({"x": x, "e": error, "c": part["concurrency"], "pp": part["pp"]}).dropna().sort_values("c")
        for (_, a), (_, b) in zip(table.iloc[:-1].iterrows(), table.iloc[1:].iterrows(), strict=True):
            z = math.log(a["x"] / b["x"]) / math.hypot(a["e"], b["e"])
            if z > 3.5 and (worst is None or z > worst[0]):
                words = (
                    f"pp={int(a['pp'])} from {a['x']:.0f} tok/s at C={int(a['c'])} to {b['x']:.0f} at C={int(b['c'])}"
                )
                worst = (z, f"throughput falls while concurrency rises: {words}")
    return worst[1] if worst else None
