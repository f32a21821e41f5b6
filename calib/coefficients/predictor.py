"""Coefficients and operating points in, calibrated values with their uncertainty out.

This is what a prediction service imports: numpy and msgspec, nothing heavier. A prediction is refused, with the reason,
wherever the coefficient file does not cover the question; a caller may widen its domain field by field
(`calib.coefficients.extrapolation`).
"""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import numpy as np

from calib.errors import (
    MissingConcurrencyError,
    NothingReleasedError,
    PointError,
    PredictionError,
    ReferenceMismatchError,
    UsageError,
)

# The records and tables behind this class are imported where it is used: a service that starts waits for numpy, not for them.
if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from calib.arrays import Array
    from calib.coefficients.file import CoefficientSet
    from calib.coefficients.points import Points
    from calib.coefficients.prediction import Correction, Prediction
    from calib.names import Reference


class Predictor:
    """Evaluates a coefficient file.

    >>> from calib import Predictor
    >>> predictor = Predictor.load("coefficients-v1.json")  # doctest: +SKIP
    >>> predictor.throughput({"model": "Qwen/Qwen3-8B", "system": "h200_sxm", "backend": "vllm",
    ...     "backend_version": "0.19.1", "tp": [4, 2], "pp": [2, 4], "isl": 4000, "osl": 1000,
    ...     "baseline_output_tokens_per_s": 10208.5}).value  # doctest: +SKIP
    """

    def __init__(self, coefficients: CoefficientSet, *, source: str = "") -> None:
        from calib.coefficients.selection import Lookup

        self.coefficients = coefficients
        self.source = source
        self._lookup = Lookup(coefficients)

    @classmethod
    def load(
        cls,
        path: str | Path | None = None,
        *,
        registry: str | Path | None = None,
        points: Points | None = None,
        reference: Reference | None = None,
    ) -> Predictor:
        """Load and check a coefficient file; without ``path`` the newest released one that covers the question.

        Parameters
        ----------
        path
            A coefficient file.
        registry
            Folder of released files to choose from, and to ask whether the file was withdrawn; the shipped one where left out.
            A registry beside the file and the shipped one are asked in any case.
        points, reference
            The question: operating points as for `factor`, and what the factor shall multiply. The newest standing release that
            answers for every point is taken.

        Raises
        ------
        CoefficientFileError
            See `CoefficientSet.load`.
        WithdrawnError
            The file was withdrawn; says by whom, when and why.
        RegistryError
            A registry is torn or was altered.
        NothingReleasedError
            No released file covers the question; lists what is released and what each lacks.
        """
        from calib.coefficients.file import CoefficientSet
        from calib.coefficients.registry import SHIPPED, Registry

        if path is None:
            return load_released(registry, points=points, reference=reference)
        coefficients = CoefficientSet.load(path)
        asked = dict.fromkeys(os.fspath(f) for f in (registry, os.path.dirname(path), SHIPPED) if f is not None)
        for folder in asked:
            Registry.open(folder).require_standing(coefficients, path)
        return cls(coefficients, source=str(path))

    def factor(
        self,
        points: Points,
        *,
        allow_refused: Collection[str] = (),
        extrapolate: bool | Collection[str] = False,
        correction: Correction = "on",
    ) -> Prediction:
        """The factor [1] that multiplies the reference's throughput: balance factor (times fill factor) times residual.

        Parameters
        ----------
        points
            ``model, system, backend, backend_version, tp, pp, isl, osl``, each a scalar or an array of shape (n,), text also
            as `Codes` or pandas categories; optional ``precision``, ``dp`` (1), ``concurrency`` (at ``peak`` matching: the
            fitted peak where it is left out) and ``balance_factor`` (your own model's, fill included, for configurations the
            file has none for).
        allow_refused
            Models whose coefficient the data reject and that shall be applied all the same; flagged ``refused``.
        extrapolate
            Fields in which points may lie outside the domain, or True for all of `EXTRAPOLATABLE`; the standard error
            is then that at the nearest covered point times ``1 + D``, D the doublings outside; flagged ``extrapolated``. The
            balance factor is that of the nearest concurrency and workload the file has.
        correction
            ``off``: a factor of exactly 1, flagged ``uncorrected``.

        Raises
        ------
        PointError, UnknownKeyError, OutsideDomainError, RefusedCoefficientError, MissingBalanceError
            The first point that cannot be predicted, and why.
        AlreadyAppliedError
            The table says that a coefficient file was applied to it.
        """
        from calib.coefficients.evaluation import evaluate, resolve
        from calib.coefficients.points import PointTable
        from calib.coefficients.selection import Allowed

        table = PointTable.parse(points)
        if correction not in ("on", "off"):
            raise UsageError("must be 'on' or 'off'", field="correction", value=correction)
        if correction == "off":
            return self._uncorrected(table.n)
        allowed = Allowed.of(allow_refused, extrapolate)
        own_balance = table.own_balance is not None
        resolved = [resolve(self._lookup, key, row, allowed, own_balance=own_balance) for row, key in table.distinct]
        value, stderr, spread = (column[table.inverse] for column in evaluate(self._lookup, resolved))
        if table.own_balance is not None:
            own = np.where(np.array([r.coefficient is None for r in resolved])[table.inverse], 1.0, table.own_balance)
            value, stderr, spread = value * own, stderr * own, spread * own
        return self._marked(value, stderr, spread, np.array([r.flag for r in resolved], dtype=np.str_)[table.inverse])

    def _marked(self, value: Array, stderr: Array, spread: Array, flags: NDArray[np.str_]) -> Prediction:
        """The factors, marked as those of this file, so that nothing is corrected twice."""
        from calib.coefficients.points import CalibratedArray
        from calib.coefficients.prediction import Prediction

        mark = self.coefficients.digest
        return Prediction(
            value=CalibratedArray.of(value, mark),
            stderr=CalibratedArray.of(stderr, mark),
            low=CalibratedArray.of(value - spread, mark),
            high=CalibratedArray.of(value + spread, mark),
            flags=flags,
            unit="1",
            reference=self.coefficients.reference,
            applied=mark,
            source=self.source,
        )

    def _uncorrected(self, n: int) -> Prediction:
        from calib.coefficients.points import NOT_APPLIED
        from calib.coefficients.prediction import Prediction

        one, flags = np.ones(n), np.full(n, "uncorrected")
        return Prediction(one, np.zeros(n), one, one, flags, "1", self.coefficients.reference, NOT_APPLIED)

    def throughput(
        self,
        points: Points,
        *,
        allow_refused: Collection[str] = (),
        extrapolate: bool | Collection[str] = False,
        correction: Correction = "on",
    ) -> Prediction:
        """Calibrated output throughput [tok/s] of the whole replica.

        Parameters as for `factor`; ``points`` also has what the factor multiplies: ``baseline_output_tokens_per_s``, the
        throughput at TP=G, PP=1 on the same GPUs, or, where the coefficients have ``reference = "model"``,
        ``model_output_tokens_per_s``, the model's own ideal-PP throughput. At pp = 1, and with correction off, the input comes
        back bit for bit.

        Raises
        ------
        ReferenceMismatchError
            The table carries the throughput of another reference than the coefficients were fitted for.
        AlreadyAppliedError
            The throughput is itself the result of a prediction.
        """
        from calib.coefficients.point_columns import positive_numbers
        from calib.coefficients.points import BASELINE_FIELD, MODEL_FIELD
        from calib.coefficients.prediction import Prediction, require_not_applied

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
        require_not_applied(wanted, given := points[wanted])
        f = self.factor(points, allow_refused=allow_refused, extrapolate=extrapolate, correction=correction)
        base = positive_numbers(wanted, given, len(f.value))
        for column in {id(a): a for a in (f.value, f.stderr, f.low, f.high)}.values():  # in place: they are ours alone
            np.multiply(column, base, out=column)
        return Prediction(
            value=f.value,
            stderr=f.stderr,
            low=f.low,
            high=f.high,
            flags=f.flags,
            unit="tok/s",
            reference=f.reference,
            applied=f.applied,
            source=f.source,
        )


def load_released(
    registry: str | Path | None = None,
    *,
    points: Points | None = None,
    reference: Reference | None = None,
    **options: Any,
) -> Predictor:
    """The newest standing release of a registry, the shipped one where left out, that answers; see `Predictor.load`.

    ``options`` are those of `Predictor.factor`: what the caller opts in to is part of the question.

    A superseded file is never taken: what replaced it may know better than to answer.

    Raises
    ------
    NothingReleasedError
        None does; with each and what it lacks.
    """
    from calib.coefficients.registry import SHIPPED, Registry
    from calib.files import SHORT

    opened, lacks = Registry.open(registry or SHIPPED), []
    for entry in opened.current:
        coefficients = opened.load(entry)
        predictor = Predictor(coefficients, source=opened.path_of(entry))
        if reference is not None and coefficients.reference != reference:
            lacks.append(f"{entry.digest[:SHORT]} has reference '{coefficients.reference}'")
            continue
        try:
            if points is not None:
                predictor.factor(points, **options)
        except PredictionError as error:
            if isinstance(error, PointError) and not isinstance(error, MissingConcurrencyError):
                raise  # not a possible point, whatever the file
            field = f"field '{error.field}': " if error.field and not isinstance(error, PointError) else ""
            lacks.append(f"{entry.digest[:SHORT]}: {field}{error.problem}")
        else:
            return predictor
    there = "; ".join(lacks) or "nothing is released and standing"
    raise NothingReleasedError(
        f"no released file covers the question ({there})",
        file=opened.folder,
        remedy="give a coefficient file, release one with `calib release`, name another folder with registry (--registry), or "
        "widen a field that is outside with extrapolate (--extrapolate FIELD)",
    )
