"""Whether a form fits, in numbers and in words.

Three detectors can refuse a form, and they share one family-wise level `LEVEL` (Bonferroni over every single comparison):
chi-square under the stated errors, one pp level that breaks the curve (a cliff), and an efficiency that rises with pp. A
parameter that drifts with concurrency, throughput that falls while concurrency rises, and what screening said of the data
stand beside the verdict and never make one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from calib.arrays import Array
from calib.coefficients import FREE, Deviation, FormTest, ResidualForm
from calib.fitting.fitted_curve import Curve, coordinates, fit_curve, for_points, stated_errors
from calib.fitting.least_squares import Errors, fit_gls
from calib.fitting.level_break import WithLevel
from calib.fitting.quantiles import chi_square_sf, normal_sf
from calib.names import Verdict

LEVEL = 0.01
MIN_LEVELS = 3  # distinct pp > 1 below which no interval is claimed


@dataclass(frozen=True)
class Detection:
    """One comparison that can refuse: its p-value, the level it refuses at (its part of the family's), and the words."""

    name: str
    statistic: float
    dof: int
    p_value: float
    words: str
    level: float = LEVEL
    possible: bool = True  # whether what it is held against is a curve that can be

    @property
    def refuses(self) -> bool:
        """Whether it rejects the form."""
        return self.p_value < self.level

    def test(self) -> FormTest:
        """As it is published."""
        return FormTest(name=self.name, statistic=self.statistic, dof=self.dof, p_value=self.p_value, level=self.level)


@dataclass(frozen=True)
class ConcurrencyFit:
    """The form fitted at one concurrency [requests] on its own, and the comparisons that could refuse it there."""

    concurrency: int
    curve: Curve
    points: pd.DataFrame
    found: tuple[Detection, ...]

    @property
    def p_value(self) -> float | None:
        """Of chi-square; None where it is not tested."""
        return next((d.p_value for d in self.found if d.name.startswith(KINDS[0])), None)

    def verdict(self) -> tuple[Verdict, tuple[str, ...]]:
        """Verdict of this concurrency and its reasons in words."""
        return form_verdict(self.found, self.points, self.curve.form)


def fit_each_concurrency(form: ResidualForm, group: pd.DataFrame, *, test: bool = True) -> tuple[ConcurrencyFit, ...]:
    """One fit a concurrency, in ascending order; none for a form that has a concurrency term of its own.

    A parameter that changes with concurrency is no lack of fit of the form in pp, so concurrencies are tested one by one,
    all of them at one family-wise level.
    """
    if form.needs_concurrency or group["concurrency"].isna().any() or not group.duplicated("pp").any():
        return ()  # each level once is one curve, also where the levels peak at different concurrencies
    fits = []
    for c, part in group.groupby("concurrency", sort=True):
        curve = fit_curve(form, part)
        found = _comparisons(form, part, curve, deviations(form, part), f" at C={c}") if test else ()
        fits.append(ConcurrencyFit(int(str(c)), curve, part, found))
    total = sum(len(f.found) for f in fits)
    return tuple(replace(f, found=_at(f.found, total)) for f in fits)


def detect(
    form: ResidualForm,
    group: pd.DataFrame,
    curve: Curve,
    by_concurrency: tuple[ConcurrencyFit, ...],
    off: tuple[Deviation, ...],
) -> tuple[Detection, ...]:
    """Every comparison that could refuse the form, each at its part of the family's level; empty where nothing is tested.

    Those of each concurrency where there are several, of all points otherwise; ``off`` are the `deviations` of the group.
    """
    if by_concurrency:
        return tuple(d for f in by_concurrency for d in f.found)
    found = _comparisons(form, group, curve, off, "")
    return _at(found, len(found))


def _at(found: tuple[Detection, ...], total: int) -> tuple[Detection, ...]:
    return tuple(replace(d, level=LEVEL / total) for d in found)


def _comparisons(
    form: ResidualForm, points: pd.DataFrame, curve: Curve, off: tuple[Deviation, ...], where: str
) -> tuple[Detection, ...]:
    if form.name == FREE.name or points["pp"].nunique() < MIN_LEVELS or curve.dof < 1:
        return ()
    return (_chi_square(form, where, points, curve), *_breaks(where, off, curve), *_rises(where, points))


def form_verdict(
    found: tuple[Detection, ...], group: pd.DataFrame, form: ResidualForm
) -> tuple[Verdict, tuple[str, ...]]:
    """FIT, WARN (not tested) or REFUSED, and the reasons in words, the strongest of each kind."""
    if not found:
        seen = ", ".join(str(p) for p in sorted(set(group["pp"])))
        if form.name == FREE.name:
            return "WARN", (f"one value at each of pp = {seen}: there is no curve that could be tested",)
        return "WARN", (
            f"only pp = {seen} measured, under {MIN_LEVELS} levels: no interval, and the form is not tested",
        )
    refusing = [d for d in found if d.refuses]
    words: dict[str, str] = {}
    for d in sorted(
        refusing, key=lambda d: (KINDS.index(d.name.split(" at ")[0]), not d.possible, d.p_value, -d.statistic)
    ):
        words.setdefault(d.name.split(" at ")[0], d.words)
    return ("REFUSED", tuple(words.values())) if refusing else ("FIT", ())


KINDS = ("chi-square", "level break", "rise")


def deciding(found: tuple[Detection, ...]) -> FormTest | None:
    """The chi-square test that decides, the worst of its kind."""
    tests = [d for d in found if d.name.startswith(KINDS[0])]
    return min(tests, key=lambda d: (d.p_value, -d.statistic)).test() if tests else None


def deviations(form: ResidualForm, group: pd.DataFrame) -> tuple[Deviation, ...]:
    """How far each (tp, pp) lies off the curve that all other levels define: relative size, stderr [1] and p-value.

    The interaction of TP and PP that a form in pp alone cannot show. Empty where the others do not define the curve.
    """
    form = for_points(form, group)
    if form.name == FREE.name or group["pp"].nunique() <= max(2, len(form.parameters)):
        return ()
    pp, concurrency = coordinates(form, group)
    y, errors = group["residual"].to_numpy(dtype=np.float64), stated_errors(group)
    found = []
    for level, part in group.groupby("pp", sort=True):
        size, stderr = level_deviation(form, pp, y, errors, float(str(level)), concurrency)
        z = abs(float(size) / float(stderr))
        found.append(
            Deviation(
                tp=int(part["tp"].iloc[0]) if "tp" in part and part["tp"].nunique() == 1 else None, pp=int(str(level)),
                size=float(size), stderr=float(stderr), p_value=float(2 * normal_sf(z)),
            )
        )  # fmt: skip
    return tuple(found)


def level_deviation(
    form: ResidualForm, pp: Array, y: Array, errors: Errors, level: float, concurrency: Array | None = None
) -> tuple[Array, Array]:
    """Relative deviation [1] of one pp level from the curve through the others, and its stderr; each of shape (...)."""
    solution = fit_gls(WithLevel.of(form, level), pp, y, errors, concurrency)
    return solution.values[..., -1], np.sqrt(solution.covariance[..., -1, -1])


def p_text(p: float) -> str:
    """A p-value as it is written in sentences."""
    return "< 1e-6" if p < 1e-6 else f"= {p:.2g}"


def _chi_square(form: ResidualForm, where: str, points: pd.DataFrame, curve: Curve) -> Detection:
    eta, fitted = points["efficiency"].to_numpy(), curve.fitted * (points["efficiency"] / points["residual"]).to_numpy()
    i = int(np.argmax(np.abs(eta - fitted)))
    words = (
        f"{form.formula} misses the points{where} by more than their error (chi-square = {curve.chi_square:.0f} on "
        f"{curve.dof} dof, p {p_text(curve.p_value)}): pp={int(points['pp'].iloc[i])} is measured at {eta[i]:.2f} and "
        f"fitted at {fitted[i]:.2f}"
    )
    return Detection(f"chi-square{where}", curve.chi_square, curve.dof, curve.p_value, words)


def _breaks(where: str, off: tuple[Deviation, ...], curve: Curve) -> Iterator[Detection]:
    """Each pp level against the curve through the others; needs a degree of freedom beside it."""
    for d in off if curve.dof >= 2 else ():
        at = f"TP{d.tp}/PP{d.pp}" if d.tp else f"pp={d.pp}"
        possible = d.size > -1.0  # a residual is positive, so the curve is not, where it lies further below
        words = (
            f"{at} lies {100 * d.size:+.0f} % off the curve through the other levels{where} "
            f"(+-{100 * d.stderr:.0f} %, p {p_text(d.p_value)})"
            if possible
            else f"the curve through the other levels{where} is negative at {at} (p {p_text(d.p_value)})"
        )
        yield Detection(f"level break{where}", abs(d.size) / d.stderr, 1, d.p_value, words, possible=possible)


def _rises(where: str, group: pd.DataFrame) -> Iterator[Detection]:
    """Neighbouring pp levels of one baseline."""
    eta, own = group["efficiency"].to_numpy(dtype=np.float64), group["rel_error"].to_numpy(dtype=np.float64)
    pp = group["pp"].to_numpy(dtype=np.float64)
    pairs, z = rises(pp, eta, own, pd.factorize(group["baseline_id"])[0])
    for (i, j), value in zip(pairs, z, strict=True):
        words = (
            f"efficiency rises from pp={pp[i]:.0f} ({eta[i]:.2f}) to pp={pp[j]:.0f} ({eta[j]:.2f}){where}: not monotone"
        )
        yield Detection(f"rise{where}", float(value), 1, float(normal_sf(value)), words)


def rises(pp: Array, eta: Array, own: Array, blocks: NDArray[np.intp]) -> tuple[list[tuple[int, int]], Array]:
    """Pairs of neighbouring pp levels that share a baseline, and how far efficiency (..., n) rises between them.

    In standard errors, shape (..., pairs): ``ln(eta_j/eta_i) / hypot(sigma_i, sigma_j)``, in which the common error cancels.
    """
    pairs = []
    for block in np.unique(blocks):
        order = sorted(np.flatnonzero(blocks == block), key=lambda i: pp[i])
        pairs += [(int(i), int(j)) for i, j in pairwise(order) if pp[i] < pp[j]]
    first, second = [i for i, _ in pairs], [j for _, j in pairs]
    own = np.broadcast_to(own, eta.shape)
    return pairs, np.log(eta[..., second] / eta[..., first]) / np.hypot(own[..., first], own[..., second])


def refused(
    form: ResidualForm, pp: Array, y: Array, errors: Errors, concurrency: Array | None = None
) -> NDArray[np.bool_]:
    """The verdict alone, for residuals (..., n) of thousands of simulated campaigns at once; balance 1.

    The same comparisons at the same levels as `detect`, on one part.
    """
    solution = fit_gls(form, pp, y, errors, concurrency)
    dof = len(pp) - len(form.parameters)
    p_values = [chi_square_sf(solution.chi_square, dof)]
    if dof >= 2:
        for level in np.unique(pp):
            size, stderr = level_deviation(form, pp, y, errors, float(level), concurrency)
            p_values.append(2 * normal_sf(np.abs(size) / stderr))
    _, z = rises(pp, y, errors.own, errors.blocks)
    p = np.stack([*p_values, *np.moveaxis(normal_sf(z), -1, 0)])
    return np.asarray((p < LEVEL / len(p)).any(axis=0))
