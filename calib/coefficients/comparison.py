"""Two coefficient sets compared: what moved, by how many standard errors, and what that does to predictions. numpy only.

The one comparison there is: reports, releases and the nightly job ask it. Combined standard errors are
``sqrt(old**2 + new**2)``, as if the two were independent; sets that share measurements differ by less than that, so a z
that is large stays large.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from calib.coefficients.file import CoefficientSet
from calib.coefficients.predictor import Predictor
from calib.coefficients.records import BalanceFactor, Coefficient
from calib.errors import PredictionError, ReferenceMismatchError
from calib.files import SHORT

Key = tuple[str, str, str, str | None, str | None]  # system, backend, versions, model, precision


@dataclass(frozen=True)
class Moved:
    """One parameter in both sets [1]; ``z`` in combined standard errors, None where an error is unknown."""

    key: Key
    parameter: str
    old: float
    new: float
    z: float | None


@dataclass(frozen=True)
class Changed:
    """One property of a coefficient that differs, in words."""

    key: Key
    what: str
    old: str
    new: str


@dataclass(frozen=True)
class PredictionChange:
    """One operating point both sets answer for: the factors [1], their change [%], and z in combined standard errors."""

    model: str
    backend: str
    tp: int
    pp: int
    concurrency: int | None
    old: float
    new: float
    change_pct: float
    z: float | None


@dataclass(frozen=True)
class Comparison:
    """Old against new.

    ``moved`` has one entry a parameter that both have (none, where the forms differ), ``changed`` verdicts, domains and limits
    that differ, ``gained`` and ``lost`` the coefficients only one has, ``points`` the predictions on the intersection of
    the points both answer for, and ``points_gained``, ``points_lost`` how many only one answers for.
    """

    old: str
    new: str
    same_form: bool
    moved: tuple[Moved, ...]
    changed: tuple[Changed, ...]
    gained: tuple[Key, ...]
    lost: tuple[Key, ...]
    points: tuple[PredictionChange, ...]
    points_gained: int
    points_lost: int

    @property
    def largest_z(self) -> float | None:
        """The largest move of a parameter [combined standard errors]; None where none is known."""
        return max((abs(m.z) for m in self.moved if m.z is not None), default=None)

    @property
    def largest_change_pct(self) -> float | None:
        """The largest change of a prediction [%]; None without a common point."""
        return max((abs(p.change_pct) for p in self.points), default=None)

    @property
    def verdicts(self) -> tuple[Changed, ...]:
        """Verdicts that changed."""
        return tuple(c for c in self.changed if c.what == "verdict")

    def describe(self) -> str:
        """The comparison in one sentence."""
        if self.old == self.new:
            return f"{self.old[:SHORT]} and {self.new[:SHORT]} are the same"
        z, pct = self.largest_z, self.largest_change_pct
        parts = [
            "another form, so parameters cannot be compared" if not self.same_form
            else "no parameter in common has a known error" if z is None
            else f"parameters move by at most {z:.1f} combined standard errors",
            "no point in common" if pct is None
            else f"predictions on {len(self.points)} common points by at most {pct:.1f} %",
            f"{self.points_gained} points gained and {self.points_lost} lost",
            f"{len(self.verdicts)} verdicts changed",
        ]  # fmt: skip
        return f"from {self.old[:SHORT]} to {self.new[:SHORT]}: " + ", ".join(parts)


def compare(old: CoefficientSet, new: CoefficientSet) -> Comparison:
    """Compare two sets of one reference.

    Raises
    ------
    ReferenceMismatchError
        They multiply different quantities, so nothing about them can be compared.
    """
    if old.reference != new.reference:
        raise ReferenceMismatchError(
            f"the old set multiplies the throughput of the {old.reference}, the new one that of the {new.reference}",
            field="reference",
            value=new.reference,
            remedy="compare sets of one reference",
        )
    ours, theirs = {_key(c): c for c in old.coefficients}, {_key(c): c for c in new.coefficients}
    both = [k for k in ours if k in theirs]
    same_form = old.form == new.form
    points, gained, lost = _predictions(old, new)
    return Comparison(
        old=old.digest,
        new=new.digest,
        same_form=same_form,
        moved=tuple(m for k in both for m in _moved(k, ours[k], theirs[k])) if same_form else (),
        changed=(*_settings(old, new), *(c for k in both for c in _changed(k, ours[k], theirs[k]))),
        gained=tuple(k for k in theirs if k not in ours),
        lost=tuple(k for k in ours if k not in theirs),
        points=tuple(points),
        points_gained=gained,
        points_lost=lost,
    )


def _key(c: Coefficient) -> Key:
    r = c.backend_versions
    versions = r.first if r.first == r.last else f"{r.first} to {r.last}"
    return (c.system, c.backend, versions, c.model, c.precision)


def _moved(key: Key, a: Coefficient, b: Coefficient) -> Iterable[Moved]:
    for i, name in enumerate(a.estimate.parameters):
        if name not in b.estimate.parameters:
            continue
        j = b.estimate.parameters.index(name)
        x, y, z = a.estimate.values[i], b.estimate.values[j], None
        if a.estimate.stderr is not None and b.estimate.stderr is not None:
            z = _z(y - x, math.hypot(a.estimate.stderr[i], b.estimate.stderr[j]))
        yield Moved(key, name, x, y, z)


def _z(difference: float, error: float) -> float | None:
    if difference == 0.0:
        return 0.0
    return difference / error if error > 0 and math.isfinite(error) else None


def _settings(a: CoefficientSet, b: CoefficientSet) -> Iterable[Changed]:
    """What the whole files differ in."""
    nothing: Key = ("", "", "", None, None)
    for name in ("form", "matching", "fill_rule", "pooling", "error_floor", "fallback"):
        if getattr(a, name) != getattr(b, name):
            yield Changed(nothing, name, str(getattr(a, name)), str(getattr(b, name)))
    for name in ("name", "version", "system", "step", "partition"):
        x, y = (str(getattr(s.balance_source, name)) for s in (a, b))
        if x != y:
            yield Changed(nothing, f"balance source {name}", x, y)


def _changed(key: Key, a: Coefficient, b: Coefficient) -> Iterable[Changed]:
    pairs: dict[str, tuple[Any, Any]] = {
        "verdict": (a.verdict, b.verdict),
        "positive for pp below": (_number(a.positivity_limit_pp), _number(b.positivity_limit_pp)),
        "points": (a.estimate.n, b.estimate.n),
    }
    for name in ("gpus", "tp", "pp_levels", "concurrency", "isl", "osl"):
        pairs[f"domain {name}"] = (_domain(getattr(a.domain, name)), _domain(getattr(b.domain, name)))
    for what, (x, y) in pairs.items():
        if x != y:
            yield Changed(key, what, str(x), str(y))


def _number(value: float | None) -> str:
    return "any" if value is None else f"{value:.1f}"


def _domain(value: Any) -> str:
    if value is None:
        return "not stated"
    return ", ".join(map(str, value)) if isinstance(value, tuple) else f"{value.low:g} to {value.high:g}"


def _predictions(old: CoefficientSet, new: CoefficientSet) -> tuple[list[PredictionChange], int, int]:
    """Every configuration of either file's balance table, as far as each answers for it."""
    before, after = _answers(old), _answers(new)
    changes = []
    for at in (k for k in before if k in after):
        (x, dx), (y, dy) = before[at], after[at]
        backend, model, tp, pp, concurrency = at[1], at[3], at[4], at[5], at[8]
        changes.append(
            PredictionChange(
                str(model), str(backend), int(tp), int(pp), concurrency or None, x, y, 100 * (y / x - 1),
                _z(y - x, math.hypot(dx, dy)),
            )
        )  # fmt: skip
    return changes, len(after.keys() - before.keys()), len(before.keys() - after.keys())


def _answers(c: CoefficientSet) -> dict[tuple[Any, ...], tuple[float, float]]:
    """Factor and standard error [1] of every configuration of the balance table that the set answers for."""
    predictor, found = Predictor(c), {}
    for own in c.coefficients:
        for b in c.balance_factors:
            if b.pp == 1 or (b.system, b.backend, b.model) != (own.system, own.backend, own.model):
                continue
            for load in _loads(b, own):
                point = {
                    "system": b.system, "backend": b.backend, "backend_version": own.backend_versions.first,
                    "model": b.model, "tp": b.tp, "pp": b.pp, "isl": b.isl, "osl": b.osl, "concurrency": load,
                }  # fmt: skip
                try:
                    made = predictor.factor(point | ({} if own.precision is None else {"precision": own.precision}))
                except PredictionError:
                    continue
                at = (*point.values(), own.precision)
                found[at] = (float(made.value[0]), float(np.nan_to_num(made.stderr[0], nan=np.inf)))
    return found


def _loads(b: BalanceFactor, own: Coefficient) -> tuple[int, ...]:
    """The concurrencies [requests] a balance factor is compared at; 0 where none is stated."""
    if b.concurrency is not None:
        return (b.concurrency,) if own.domain.concurrency is not None else (0,)
    return (0,) if own.domain.concurrency is None else (int(own.domain.concurrency.high),)
