"""Whether a form fits, in numbers and in words.

The form is refused where chi-square under the stated errors is too large at the level `LEVEL`. What quality screening had to
say stands beside the verdict and never makes one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import stats

from calib.coefficients import FormTest, Verdict
from calib.curve import Curve, fit_curve
from calib.residual import ResidualForm

LEVEL = 0.01
MIN_LEVELS = 3  # distinct pp > 1 below which no interval is claimed


@dataclass(frozen=True)
class Tested:
    """A form test, and the points and curve it was made on, which the reasons are told from."""

    test: FormTest
    points: pd.DataFrame
    curve: Curve


@dataclass(frozen=True)
class ConcurrencyFit:
    """The form fitted at one concurrency [requests] on its own; ``p_value`` None under three pp levels."""

    concurrency: int
    curve: Curve
    p_value: float | None


def fit_each_concurrency(form: ResidualForm, group: pd.DataFrame) -> tuple[ConcurrencyFit, ...]:
    """One fit a concurrency, in ascending order."""
    fits = []
    for c, part in group.groupby("concurrency", sort=True):
        curve = fit_curve(form, part)
        known = part["pp"].nunique() >= MIN_LEVELS
        fits.append(ConcurrencyFit(int(str(c)), curve, _p_value(curve) if known else None))
    return tuple(fits)


def form_test(group: pd.DataFrame, curve: Curve, by_concurrency: tuple[ConcurrencyFit, ...]) -> Tested | None:
    """Chi-square under the stated errors; per concurrency where there are several, at a level shared by all of them.

    A parameter that changes with concurrency is not a lack of fit of the form in pp, so concurrencies are not pooled. None
    under three pp levels.
    """
    if group["pp"].nunique() < MIN_LEVELS:
        return None
    tested = [(f.p_value, f) for f in by_concurrency if f.p_value is not None]
    if not tested:
        return Tested(_test("chi-square", curve, 1), group, curve)
    _, worst = min(tested, key=lambda pair: (pair[0], pair[1].concurrency))
    name = f"chi-square at C={worst.concurrency}, the worst of {len(tested)} concurrencies (Bonferroni)"
    points = group[group["concurrency"] == worst.concurrency]
    return Tested(_test(name, worst.curve, len(tested)), points, worst.curve)


def form_verdict(form: ResidualForm, tested: Tested | None, group: pd.DataFrame) -> tuple[Verdict, tuple[str, ...]]:
    """FIT, WARN or REFUSED, and the reasons in words."""
    if tested is None:
        seen = ", ".join(str(p) for p in sorted(set(group["pp"])))
        return "WARN", (
            f"only pp = {seen} measured, under {MIN_LEVELS} levels: no interval, and the form is not tested",
        )
    test, points = tested.test, tested.points
    if test.p_value >= test.level:
        return "FIT", ()
    eta, fitted = points["efficiency"].to_numpy(), tested.curve.fitted * points["balance_factor"].to_numpy()
    i = int(np.argmax(np.abs(eta - fitted)))
    return "REFUSED", (
        f"{form.formula} misses the points by more than their error ({test.name} = {test.statistic:.0f} on "
        f"{test.dof} dof, p {_p_text(test.p_value)})",
        f"pp={int(points['pp'].iloc[i])} is measured at {eta[i]:.2f} and fitted at {fitted[i]:.2f}",
        *_rises(points),
    )


def _test(name: str, curve: Curve, tests: int) -> FormTest:
    p = min(1.0, tests * _p_value(curve))
    return FormTest(name=name, statistic=curve.chi_square, dof=curve.dof, p_value=p, level=LEVEL)


def _p_value(curve: Curve) -> float:
    return float(stats.chi2.sf(curve.chi_square, curve.dof))


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


def _p_text(p: float) -> str:
    return "< 1e-6" if p < 1e-6 else f"= {p:.2g}"
