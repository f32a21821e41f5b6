"""Coefficients and operating points in, calibrated values with their uncertainty out.

This is what a prediction service imports: numpy and msgspec, nothing heavier. A prediction is refused, with the reason,
wherever the coefficient file does not cover the question; nothing is extrapolated.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from calib.coefficients import BalanceFactor, Coefficient, CoefficientSet, Span
from calib.errors import (
    AlreadyAppliedError,
    CoefficientFileError,
    MissingBalanceError,
    OutsideDomainError,
    PointError,
    ReferenceMismatchError,
    RefusedCoefficientError,
    UnknownKeyError,
)
from calib.operating_points import BASELINE_FIELD, MODEL_FIELD, PointKey, Points, PointTable, positive_numbers
from calib.residual import FORMS, FREE, ResidualForm, free_form

Array = NDArray[np.float64]
FILL_RULES = ("occupancy", "linear")


@dataclass(frozen=True)
class Prediction:
    """Predicted values, one an operating point.

    Attributes
    ----------
    value, stderr, low, high : ndarray, shape (n,)
        In ``unit``. ``stderr`` is that of one new measurement (parameter error and scatter about the curve), ``low`` and
        ``high`` bound its 95 % prediction interval; NaN where the fit had too few points to know.
    flags : ndarray of str, shape (n,)
        ``identity`` (pp = 1), ``exact`` (the model's own coefficient), ``pooled`` (the backend's), ``refused`` (a
        rejected form, applied because the caller named it).
    unit : str
        ``1`` for a factor, ``tok/s`` for a throughput.
    reference : str
        What the factor multiplies: ``baseline`` or ``model``.
    applied : str
        Digest of the coefficient file that was applied.
    """

    value: Array
    stderr: Array
    low: Array
    high: Array
    flags: NDArray[np.str_]
    unit: str
    reference: str
    applied: str


@dataclass(frozen=True)
class _Resolved:
    """What one distinct configuration resolves to."""

    coefficient: Coefficient | None
    balance: float  # times the fill factor, where the file has a fill rule
    flag: str
    form: ResidualForm = FORMS["log2"]


class Predictor:
    """Evaluates a coefficient file.

    >>> predictor = Predictor.load("coefficients-v1.json")  # doctest: +SKIP
    >>> predictor.throughput({"model": "Qwen/Qwen3-8B", "system": "h200_sxm", "backend": "vllm",
    ...     "backend_version": "0.19.1", "tp": [4, 2], "pp": [2, 4], "isl": 4000, "osl": 1000,
    ...     "baseline_output_tokens_per_s": 10208.5}).value  # doctest: +SKIP
    """

    def __init__(self, coefficients: CoefficientSet) -> None:
        for field, value, known in (
            ("form", coefficients.form, tuple(FORMS)),
            ("fill_rule", coefficients.fill_rule, ("none",) if coefficients.reference == "baseline" else FILL_RULES),
        ):
            if value not in known:
                raise CoefficientFileError(
                    "is not one this version of calib can evaluate",
                    field=field,
                    value=value,
                    remedy="install the calib version that wrote the file",
                )
        self.coefficients = coefficients
        for c in coefficients.coefficients:
            expected = _form_of(coefficients, c).parameters
            if c.estimate.parameters != expected:
                raise CoefficientFileError(
                    f"of {c.backend} {c.model or 'pool'} are not those of the form, {', '.join(expected)}",
                    field="parameters", value=", ".join(c.estimate.parameters), remedy="write the file again with `calib run`",
                )  # fmt: skip
        self._own: dict[tuple[str, str, str | None], list[Coefficient]] = {}
        for c in coefficients.coefficients:
            self._own.setdefault((c.system, c.backend, c.model), []).append(c)
        self._balance: dict[tuple[str, str, str, int, int], list[BalanceFactor]] = {}
        for b in coefficients.balance_factors:
            self._balance.setdefault((b.system, b.backend, b.model, b.tp, b.pp), []).append(b)

    @classmethod
    def load(cls, path: str | Path) -> Predictor:
        """Load and check a coefficient file.

        Raises
        ------
        CoefficientFileError
            See `CoefficientSet.load`.
        """
        return cls(CoefficientSet.load(path))

    def factor(self, points: Points, *, allow_refused: Collection[str] = ()) -> Prediction:
        """The factor [1] that multiplies the reference's throughput: balance factor (times fill factor) times residual.

        Parameters
        ----------
        points
            ``model, system, backend, backend_version, tp, pp, isl, osl``, each a scalar or an array of shape (n,); optional
            ``precision``, ``dp`` (1), ``concurrency`` (at ``peak`` matching: the fitted peak where it is left out) and
            ``balance_factor`` (your own model's, for configurations the file has none for).
        allow_refused
            Models whose coefficient the data reject and that shall be applied all the same; flagged ``refused``.

        Raises
        ------
        PointError, UnknownKeyError, OutsideDomainError, RefusedCoefficientError, MissingBalanceError
            The first point that cannot be predicted, and why.
        AlreadyAppliedError
            The table says that a coefficient file was applied to it.
        """
        if isinstance(allow_refused, str):
            allow_refused = (allow_refused,)
        table = PointTable.parse(points)
        resolved = [self._resolve(key, table, row, allow_refused) for row, key in table.distinct]
        pp = table.counts["pp"].astype(np.float64)
        value, stderr, quantile = np.ones(table.n), np.zeros(table.n), np.zeros(table.n)
        for index, item in enumerate(resolved):
            if item.coefficient is None:
                continue
            at = table.inverse == index
            balance = item.balance if table.own_balance is None else table.own_balance[at]
            estimate = item.coefficient.estimate
            load = table.counts["concurrency"][at].astype(np.float64) if item.form.needs_concurrency else None
            residual = item.form.residual(pp[at], estimate.values, load)
            value[at] = balance * residual
            slope = item.form.jacobian(pp[at], estimate.values, load)
            stderr[at] = balance * _residual_stderr(slope, residual, item.coefficient)
            quantile[at] = np.nan if estimate.t_quantile is None else estimate.t_quantile
        flags = np.array([r.flag for r in resolved], dtype=np.str_)[table.inverse]
        return Prediction(
            value=value,
            stderr=stderr,
            low=value - quantile * stderr,
            high=value + quantile * stderr,
            flags=flags,
            unit="1",
            reference=self.coefficients.reference,
            applied=self.coefficients.digest,
        )

    def throughput(self, points: Points, *, allow_refused: Collection[str] = ()) -> Prediction:
        """Calibrated output throughput [tok/s] of the whole replica.

        ``points`` as for `factor`, and ``baseline_output_tokens_per_s``: the throughput at TP=G, PP=1 on the same GPUs.
        At pp = 1 the input comes back bit for bit.

        Raises
        ------
        ReferenceMismatchError
            The table carries the throughput of another reference than the coefficients were fitted for.
        AlreadyAppliedError
            The throughput is itself the result of a prediction.
        """
        wanted, other = BASELINE_FIELD, MODEL_FIELD
        if self.coefficients.reference == "model":
            wanted, other = other, wanted
        if other in points:
            raise ReferenceMismatchError(
                f"coefficients with reference '{self.coefficients.reference}' multiply {wanted}, not this quantity",
                field=other,
                remedy=f"give {wanted}, or load coefficients fitted for the other reference",
            )
        if wanted not in points:
            raise PointError("is missing", field=wanted, remedy="add what the factor shall multiply [tok/s]")
        given = points[wanted]
        if isinstance(given, Prediction):
            raise AlreadyAppliedError(
                f"is already corrected, by the coefficient file {given.applied[:12]}",
                field=wanted,
                remedy="give the measured throughput",
            )
        f = self.factor(points, allow_refused=allow_refused)
        base = positive_numbers(wanted, given, len(f.value))
        return Prediction(
            value=base * f.value,
            stderr=base * f.stderr,
            low=base * f.low,
            high=base * f.high,
            flags=f.flags,
            unit="tok/s",
            reference=f.reference,
            applied=f.applied,
        )

    def _resolve(self, key: PointKey, table: PointTable, row: int, allow_refused: Collection[str]) -> _Resolved:
        if key.pp == 1:  # every factor is exactly 1 there, whatever the model
            return _Resolved(None, 1.0, "identity")
        coefficient = self._coefficient(key)
        flag = "exact" if coefficient.model is not None else "pooled"
        if coefficient.verdict == "REFUSED":
            if key.model not in allow_refused:
                raise RefusedCoefficientError(
                    f"point {row}: the form of the {coefficient.backend} coefficient for {key.model} is refused "
                    f"({'; '.join(coefficient.reasons)})",
                    remedy="measure this configuration, or name the model in allow_refused to apply it all the same",
                )
            flag = "refused"
        form = _form_of(self.coefficients, coefficient)
        _check_domain(coefficient, key, row, form)
        own = table.own_balance is not None
        return _Resolved(coefficient, 1.0 if own else self._balance_factor(key, row), flag, form)

    def _coefficient(self, key: PointKey) -> Coefficient:
        pooled = "backend" in self.coefficients.fallback
        for model in (key.model, None) if pooled else (key.model,):
            found = self._own.get((key.system, key.backend, model), [])
            fitting = [c for c in found if c.backend_versions.covers(key.backend_version)]
            fitting = [c for c in fitting if key.precision is None or c.precision == key.precision]
            if len(fitting) > 1:
                raise UnknownKeyError(
                    f"{len(fitting)} coefficients cover {key.describe()}",
                    remedy="state the precision and the backend version",
                )
            if fitting:
                return fitting[0]
            if found:  # the model is known, under another version or precision: the pool does not know better
                known = ", ".join(sorted({_version_text(c) for c in found}))
                raise UnknownKeyError(
                    f"no coefficient covers {key.describe()}: {model or key.backend} was fitted for {known}",
                    remedy="measure this version, or load a coefficient file that covers it",
                )
        raise UnknownKeyError(
            f"no coefficient covers {key.describe()}",
            remedy="list what the file covers with `calib show`, or measure a campaign",
        )

    def _balance_factor(self, key: PointKey, row: int) -> float:
        entries = self._balance.get((key.system, key.backend, key.model, key.tp, key.pp), [])
        entries = [b for b in entries if (b.isl, b.osl) == (key.isl, key.osl)]
        if key.concurrency == 0:
            chosen = [b for b in entries if b.fitted]
        else:
            chosen = [b for b in entries if b.concurrency == key.concurrency]
            chosen = chosen or [b for b in entries if b.concurrency is None]
        if len(chosen) == 1:
            return chosen[0].factor * (1.0 if chosen[0].fill is None else chosen[0].fill)
        if key.concurrency == 0 and len(chosen) > 1:
            raise PointError(
                f"point {row} needs a concurrency: the coefficients were fitted at several for {key.describe()}",
                field="concurrency",
                remedy=f"give one of {', '.join(str(b.concurrency) for b in chosen)}",
            )
        known = ", ".join(str(b.concurrency) for b in entries) or "none"
        raise MissingBalanceError(
            f"point {row}: the file has no balance factor for {key.describe()} (concurrencies it has: {known})",
            remedy="give your own as balance_factor (--balance-factor); `calib explain` computes one",
        )


def _form_of(coefficients: CoefficientSet, c: Coefficient) -> ResidualForm:
    """The form of one coefficient; ``free`` has the pp levels it was fitted on."""
    return free_form(c.domain.pp_levels) if coefficients.form == FREE.name else FORMS[coefficients.form]


def _check_domain(c: Coefficient, key: PointKey, row: int, form: ResidualForm) -> None:
    def outside(field: str, value: object, limit: str) -> OutsideDomainError:
        return OutsideDomainError(
            f"point {row} ({key.describe()}) lies outside what the coefficient was fitted on, {limit}",
            field=field,
            value=value,
            remedy="measure there, or choose a covered configuration",
        )

    domain = c.domain
    if c.positivity_limit_pp is not None and key.pp >= c.positivity_limit_pp:
        raise outside("pp", key.pp, f"and its residual is not positive from pp = {c.positivity_limit_pp:.1f} on")
    spans: tuple[tuple[str, int, Span], ...] = (
        ("pp", key.pp, domain.pp),
        ("isl", key.isl, domain.isl),
        ("osl", key.osl, domain.osl),
    )
    for field, value, span in spans:
        if not span.covers(value):
            raise outside(field, value, f"{span.low:g} to {span.high:g}")
    if form.name == FREE.name and key.pp not in domain.pp_levels:
        raise outside("pp", key.pp, f"one value at each of {', '.join(map(str, domain.pp_levels))} and nothing between")
    if form.needs_concurrency and not key.concurrency:
        raise PointError(
            f"point {row} needs one: the coefficient depends on it",
            field="concurrency",
            remedy="state it for every point",
        )
    if key.tp not in domain.tp:
        raise outside("tp", key.tp, f"one of {', '.join(map(str, domain.tp))}")
    if (gpus := key.tp * key.pp) not in domain.gpus or key.dp != 1:
        allowed = ", ".join(map(str, domain.gpus))
        raise outside("tp*pp", gpus, f"{allowed} GPUs a replica without data parallelism")
    if key.concurrency:
        if domain.concurrency is None:
            raise outside("concurrency", key.concurrency, "whose campaign states none")
        if not domain.concurrency.covers(key.concurrency):
            span = domain.concurrency
            raise outside("concurrency", key.concurrency, f"{span.low:g} to {span.high:g}")


def _residual_stderr(slope: Array, residual: Array, c: Coefficient) -> Array:
    """Standard error [1] of one new residual: parameter error and scatter, which is relative to the curve."""
    if c.estimate.covariance is None or c.estimate.scatter is None:
        return np.full(len(slope), np.nan)
    covariance = np.asarray(c.estimate.covariance)
    variance: Array = np.einsum("ij,jk,ik->i", slope, covariance, slope)
    return np.hypot(np.sqrt(variance), c.estimate.scatter * residual)


def _version_text(c: Coefficient) -> str:
    r = c.backend_versions
    versions = r.first if r.first == r.last else f"{r.first} to {r.last}"
    return f"{c.backend} {versions} ({c.precision or 'precision not stated'})"
