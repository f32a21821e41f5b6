"""Which coefficient and which balance factor of a file a configuration gets. numpy only."""

from __future__ import annotations

from collections.abc import Collection

import msgspec
import numpy as np

from calib.coefficients.extrapolation import fields_to_extrapolate
from calib.coefficients.file import CoefficientSet
from calib.coefficients.forms import FORMS, FREE, ResidualForm, free_form
from calib.coefficients.points import PointKey
from calib.coefficients.records import BalanceFactor, Coefficient
from calib.errors import CoefficientFileError, MissingBalanceError, MissingConcurrencyError, UnknownKeyError

FILL_RULES = ("occupancy", "linear")


class Allowed(msgspec.Struct, frozen=True):
    """What the caller opted in to."""

    refused: frozenset[str]
    extrapolate: frozenset[str]

    @classmethod
    def of(cls, refused: Collection[str], extrapolate: bool | Collection[str]) -> Allowed:
        """From the arguments of a prediction; a single name counts as one."""
        names = (refused,) if isinstance(refused, str) else refused
        return cls(frozenset(names), fields_to_extrapolate(extrapolate))


class Lookup:
    """A coefficient file by key; checked to be one that this version can evaluate.

    Raises
    ------
    CoefficientFileError
        An unknown form or fill rule, or parameters of another form.
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
        self._own: dict[tuple[str, str, str | None], list[Coefficient]] = {}
        for c in coefficients.coefficients:
            if c.estimate.parameters != (expected := self.form_of(c).parameters):
                raise CoefficientFileError(
                    f"of {c.backend} {c.model or 'pool'} are not those of the form, {', '.join(expected)}",
                    field="parameters", value=", ".join(c.estimate.parameters), remedy="write the file again with `calib run`",
                )  # fmt: skip
            self._own.setdefault((c.system, c.backend, c.model), []).append(c)
        self._balance: dict[tuple[str, str, str, int, int], list[BalanceFactor]] = {}
        for b in coefficients.balance_factors:
            self._balance.setdefault((b.system, b.backend, b.model, b.tp, b.pp), []).append(b)

    def form_of(self, c: Coefficient) -> ResidualForm:
        """The form of one coefficient; ``free`` has the pp levels it was fitted on."""
        name = self.coefficients.form
        return free_form(c.domain.pp_levels) if name == FREE.name else FORMS[name]

    def coefficient(self, key: PointKey, allowed: Allowed) -> Coefficient:
        """The model's own coefficient, else its backend's pool where the fallback ladder has one.

        Raises
        ------
        UnknownKeyError
            None covers model, backend, version, precision and system; or several do.
        """
        pooled = "backend" in self.coefficients.fallback
        for model in (key.model, None) if pooled else (key.model,):
            found = self._own.get((key.system, key.backend, model), [])
            fitting = [c for c in found if key.precision is None or c.precision == key.precision]
            covering = [c for c in fitting if c.backend_versions.covers(key.backend_version)]
            fitting = covering or (fitting if "backend_version" in allowed.extrapolate else [])
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
                    remedy="measure this version, load a file that covers it, or extrapolate in backend_version",
                )
        raise UnknownKeyError(
            f"no coefficient covers {key.describe()}",
            remedy="list what the file covers with `calib show`, or measure a campaign",
        )

    def balance_factor(self, key: PointKey, row: int, allowed: Allowed) -> float:
        """Balance times fill factor [1] of a configuration.

        Raises
        ------
        MissingBalanceError
            The file has none for it.
        MissingConcurrencyError
            The file has several, and no concurrency is stated.
        """
        entries = self._balance.get((key.system, key.backend, key.model, key.tp, key.pp), [])
        near = _nearest_workload(entries, key, allowed.extrapolate)
        if key.concurrency == 0:
            chosen = [b for b in near if b.fitted]
        else:
            chosen = [b for b in near if b.concurrency == key.concurrency]
            chosen = chosen or [b for b in near if b.concurrency is None]
            if not chosen and "concurrency" in allowed.extrapolate and near:
                chosen = [
                    min(near, key=lambda b: (abs(np.log2(key.concurrency / (b.concurrency or 1))), b.concurrency))
                ]
        if len(chosen) == 1:
            return chosen[0].factor * (1.0 if chosen[0].fill is None else chosen[0].fill)
        if key.concurrency == 0 and len(chosen) > 1:
            raise MissingConcurrencyError(
                f"point {row} needs a concurrency: the coefficients were fitted at several for {key.describe()}",
                field="concurrency",
                remedy=f"give one of {', '.join(str(b.concurrency) for b in chosen)}",
            )
        known = ", ".join(str(b.concurrency) for b in near) or "none"
        raise MissingBalanceError(
            f"point {row}: the file has no balance factor for {key.describe()} (concurrencies it has: {known})",
            remedy="give your own as balance_factor (--balance-factor); `calib explain` computes one",
        )


def _nearest_workload(entries: list[BalanceFactor], key: PointKey, extrapolate: frozenset[str]) -> list[BalanceFactor]:
    """The entries of the point's ISL and OSL; of the nearest ones in a field that may be extrapolated."""
    for name in ("isl", "osl"):
        asked = getattr(key, name)
        exact = [b for b in entries if getattr(b, name) == asked]
        if not exact and name in extrapolate and entries:
            best = min(abs(np.log2(asked / getattr(b, name))) for b in entries)
            exact = [b for b in entries if abs(np.log2(asked / getattr(b, name))) == best]
        entries = exact
    return entries


def _version_text(c: Coefficient) -> str:
    r = c.backend_versions
    versions = r.first if r.first == r.last else f"{r.first} to {r.last}"
    return f"{c.backend} {versions} ({c.precision or 'precision not stated'})"
