"""Whether a form fits, in numbers and in words.

The form is refused where chi-square under the stated errors is too large at the level `LEVEL`. What quality screening had to
say stands beside the verdict and never makes one.
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from scipy import stats

from calib.coefficients import FormTest, Verdict
from calib.curve import Curve, fit_curve
from calib.residual import ResidualForm

LEVEL = 0.01
MIN_LEVELS = 3  # distinct pp > 1 below which no interval is claimed


def form_test(
    curve: Curve,
    levels: list[int],
    group: pd.DataFrame,
    form: ResidualForm,
    by_concurrency: list[tuple[int, float, float]],
) -> FormTest | None:
    """Chi-square under the stated errors; per concurrency where there are several, at a level shared by all of them.

    A parameter that changes with concurrency is not a lack of fit of the form in pp, so concurrencies are not pooled.
    """
    if len(levels) < MIN_LEVELS:
        return None
    tested = [(p, c) for c, _, p in by_concurrency if not math.isnan(p)]
    if not tested:
        p = float(stats.chi2.sf(curve.chi_square, curve.dof))
        return FormTest(name="chi-square", statistic=curve.chi_square, dof=curve.dof, p_value=p, level=LEVEL)
    p, c = min(tested)
    worst = fit_curve(form, group[group["concurrency"] == c])
    return FormTest(
        name=f"chi-square at C={c}, the worst of {len(tested)} concurrencies (Bonferroni)",
        statistic=worst.chi_square,
        dof=worst.dof,
        p_value=min(1.0, p * len(tested)),
        level=LEVEL,
    )


def form_verdict(
    form: ResidualForm, test: FormTest | None, levels: list[int], group: pd.DataFrame, curve: Curve
) -> tuple[Verdict, tuple[str, ...]]:
    if test is None:
        seen = ", ".join(map(str, levels))
        return "WARN", (
            f"only pp = {seen} measured, under {MIN_LEVELS} levels: no interval, and the form is not tested",
        )
    if test.p_value >= test.level:
        return "FIT", ()
    reasons = [
        f"{form.formula} misses the points by more than their error ({test.name} = {test.statistic:.0f} on "
        f"{test.dof} dof, p {_p_text(test.p_value)})"
    ]
    shown = group
    if "C=" in test.name:
        shown = group[group["concurrency"] == int(test.name.split("C=")[1].split(",")[0])]
        curve = fit_curve(form, shown)
    eta, fitted = shown["efficiency"].to_numpy(), curve.fitted * shown["balance_factor"].to_numpy()
    i = int(np.argmax(np.abs(eta - fitted)))
    reasons.append(f"pp={int(shown['pp'].iloc[i])} is measured at {eta[i]:.2f} and fitted at {fitted[i]:.2f}")
    return "REFUSED", (*reasons, *_rises(shown))


def _rises(group: pd.DataFrame) -> list[str]:
    """Where the efficiency rises with pp by more than both errors, in words."""
    ordered = group.sort_values("pp")
    rises = []
    for (_, a), (_, b) in zip(ordered.iloc[:-1].iterrows(), ordered.iloc[1:].iterrows(), strict=True):
        error = math.hypot(a["rel_error"] * a["efficiency"], b["rel_error"] * b["efficiency"])
        if a["baseline_id"] == b["baseline_id"] and b["efficiency"] - a["efficiency"] > 3 * error:
            rises.append(
                f"efficiency rises from pp={int(a['pp'])} ({a['efficiency']:.2f}) to pp={int(b['pp'])} "
                f"({b['efficiency']:.2f}): not monotone"
            )
    return rises


def series_warnings(group: pd.DataFrame) -> tuple[str, ...]:
    found = []
    for rule in sorted({r for rules in group["rules"] for r in rules.split()}):
        hit = sum(rule in rules.split() for rules in group["rules"])
        found.append(f"{rule} at {hit} of {len(group)} points")
    for status in ("assumed", "derived"):
        hit = int((group["balance_status"] == status).sum())
        if hit:
            found.append(f"balance factor {status} at {hit} of {len(group)} points")
    return tuple(found)


def _p_text(p: float) -> str:
    return "< 1e-6" if p < 1e-6 else f"= {p:.2g}"
