"""Ways to fit, and what each predicts of the points that were left out of it."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from calib.arrays import Array
from calib.coefficients import FORMS, FREE, ResidualForm, free_form
from calib.fitting import Errors, Pool, Solution, fit_gls, pool
from calib.names import BACKEND_KEY, IN_SAMPLE, ONE_PP, BalanceKind

Scope = Literal["model", "partial", "backend"]
SCOPES: tuple[Scope, ...] = ("model", "partial", "backend")
ONE_CONFIGURATION, ONE_MODEL, ONE_BACKEND = (
    "leave-one-(model, tp, pp)-out", "leave-one-model-out", "leave-one-backend-out",
)  # fmt: skip
NESTED = "leave-one-model-out, nested"
MOST_MODELS = 12  # of a backend, in a contest

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Data:
    """The points of one backend as arrays of shape (n,); ``model`` and ``backend`` are codes."""

    pp: Array
    tp: Array
    concurrency: Array
    eta: Array
    explained: Array
    own: Array
    shared: Array
    blocks: NDArray[np.intp]
    model: NDArray[np.intp]
    backend: NDArray[np.intp]
    label: tuple[str, ...]
    index: NDArray[np.intp]  # position in the whole, by which fits are remembered
    fits: dict[tuple[object, ...], Solution] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of(cls, table: pd.DataFrame) -> Data:
        """The points of a decomposition's table, in its order."""

        def real(name: str) -> Array:
            return table[name].to_numpy(dtype=np.float64, na_value=np.nan)

        at = [
            f"{m} TP{t}/PP{p}" + ("" if pd.isna(c) else f" C={c}")
            for m, t, p, c in zip(table["model"], table["tp"], table["pp"], table["concurrency"], strict=True)
        ]
        return cls(
            real("pp"), real("tp"), real("concurrency"), real("efficiency"), real("explained"), real("rel_error"),
            real("baseline_rel_error"), pd.factorize(table["baseline_id"])[0],
            pd.factorize(pd.MultiIndex.from_frame(table[["backend", "model"]]))[0],
            pd.factorize(table["backend"])[0], tuple(at), np.arange(len(table)),
        )  # fmt: skip

    def without_balance(self, balance: Array) -> Data:
        """The same points with balance set to 1: what the residual then has to explain."""
        return replace(self, explained=self.explained / balance, fits={})

    def where(self, mask: Mask) -> Data:
        """The points of a mask."""
        cut = {name: getattr(self, name)[mask] for name in self.__dataclass_fields__ if name not in ("label", "fits")}
        return Data(**cut, label=tuple(x for x, keep in zip(self.label, mask, strict=True) if keep), fits=self.fits)

    def load(self, form: ResidualForm) -> Array | None:
        """The concurrency, where the form needs it."""
        return self.concurrency if form.needs_concurrency else None

    def fit(self, form: ResidualForm) -> Solution:
        """Generalised least squares of the residual; the same points are fitted once, whatever was left out beside them."""
        key = (form.name, form.parameters, self.index.tobytes())
        if key not in self.fits:
            errors = Errors(self.own, self.shared, self.blocks)
            self.fits[key] = fit_gls(form, self.pp, self.eta / self.explained, errors, self.load(form))
        return self.fits[key]


@dataclass(frozen=True)
class Way:
    """One way to fit."""

    form: str
    scope: Scope
    balance: BalanceKind

    def predict(self, train: Data, test: Data) -> Array:
        """Efficiencies [1] of ``test`` from a fit to ``train``; NaN where it says nothing of a point."""
        form = FORMS[self.form]
        if self.scope == "backend":
            return _evaluate(form, train, test)
        predicted = np.full(len(test.pp), np.nan)
        curves = _Curves.of(form, train)
        for m in np.unique(test.model):
            here = test.model == m
            part = test.where(here)
            own = curves.own.get(int(m))
            if self.scope == "partial":
                predicted[here] = curves.partial(int(m), part)
            elif own is not None:
                predicted[here] = part.explained * own[0].residual(part.pp, own[1].values, part.load(form))
        return predicted


@dataclass(frozen=True)
class _Curves:
    """The curve of every model of ``train`` that has the points for one."""

    form: ResidualForm
    own: dict[int, tuple[ResidualForm, Solution]]
    scale: float

    @functools.cached_property
    def common(self) -> tuple[str, ...]:
        """The parameters that most models have; `free` has as many as pp levels were measured."""
        shapes = Counter(form.parameters for form, _ in self.own.values())
        return max(shapes, key=lambda names: (shapes[names], len(names), names))

    @functools.cached_property
    def pool(self) -> Pool | None:
        """Of the models with the common parameters; None under two of them."""
        members = [s for f, s in self.own.values() if f.parameters == self.common]
        if len(members) < 2:
            return None
        return pool(np.array([s.values for s in members]), self.scale * np.array([s.covariance for s in members]))

    @classmethod
    def of(cls, form: ResidualForm, train: Data) -> _Curves:
        own: dict[int, tuple[ResidualForm, Solution]] = {}
        chi_square = dof = 0.0
        for m in np.unique(train.model):
            part = train.where(train.model == m)
            shaped = shaped_form(form, part)
            if shaped is None:
                continue
            own[int(m)] = (shaped, part.fit(shaped))
            if (left := len(part.pp) - len(shaped.parameters)) > 0:
                chi_square, dof = chi_square + float(own[int(m)][1].chi_square), dof + left
        return cls(form, own, chi_square / dof if dof else 1.0)

    def partial(self, model: int, test: Data) -> Array:
        """Predicted from the models of the pool, and from the model's own curve as far as it is better known."""
        own = self.own.get(model)
        if not self.own or (self.pool is None and own is None):
            return np.full(len(test.pp), np.nan)
        if self.pool is None or (own is not None and own[0].parameters != self.common):
            assert own is not None
            return test.explained * own[0].residual(test.pp, own[1].values, test.load(own[0]))
        form = next(f for f, _ in self.own.values() if f.parameters == self.common)
        b = self.pool.new()[0]
        if own is not None:
            b = self.pool.shrunk(own[1].values, self.scale * own[1].covariance)[0]
        return test.explained * form.residual(test.pp, b, test.load(form))


def shaped_form(form: ResidualForm, part: Data) -> ResidualForm | None:
    """The form for these points, or None where they do not define it."""
    if form.name == FREE.name:
        return free_form([int(p) for p in np.unique(part.pp)])
    if form.needs_concurrency and len(np.unique(part.concurrency)) < 3:
        return None
    return form if len(part.pp) >= len(form.parameters) else None


def _evaluate(form: ResidualForm, train: Data, test: Data) -> Array:
    shaped = shaped_form(form, train) if len(train.pp) else None
    if shaped is None:
        return np.full(len(test.pp), np.nan)
    return test.explained * shaped.residual(test.pp, train.fit(shaped).values, test.load(shaped))


def leave_out(data: Data, scheme: str) -> Iterator[Mask]:
    """The masks of what is left out, one after another; the whole is nothing left out."""
    if scheme == IN_SAMPLE:
        yield np.zeros(len(data.pp), dtype=np.bool_)
    groups: dict[str, Sequence[Array | NDArray[np.intp]]] = {
        ONE_PP: (data.pp,), ONE_CONFIGURATION: (data.model, data.tp, data.pp), ONE_MODEL: (data.model,),
        ONE_BACKEND: (data.backend,),
    }  # fmt: skip
    if scheme in groups:
        codes = np.unique(np.stack(groups[scheme], axis=1), axis=0, return_inverse=True)[1].reshape(-1)
        for code in range(int(codes.max()) + 1):
            yield codes == code


def left_out(way: Callable[[Data, Data], Array], data: Data, scheme: str) -> Array:
    """Predictions (n,) of every point from the points that do not share its left-out group."""
    predicted = np.full(len(data.pp), np.nan)
    for out in leave_out(data, scheme):
        if scheme == IN_SAMPLE:
            return way(data, data)
        if not out.all():
            predicted[out] = way(data.where(~out), data.where(out))
    return predicted


def thinned(table: pd.DataFrame, most: int = MOST_MODELS) -> pd.DataFrame:
    """The table with at most that many models a backend, evenly spaced in its order; contests of more would take hours."""
    kept = []
    for _, group in table.groupby(list(BACKEND_KEY), dropna=False, sort=False):
        models = list(dict.fromkeys(group["model"]))
        chosen = {models[i] for i in np.linspace(0, len(models) - 1, min(most, len(models))).round().astype(int)}
        kept.append(group[group["model"].isin(chosen)])
    return pd.concat(kept, ignore_index=True) if kept else table


def mape(*, predicted: Array, measured: Array) -> float | None:
    """Mean absolute relative error [%] over the predicted points; None without one."""
    known = ~np.isnan(predicted)
    return float(100 * np.mean(np.abs(predicted[known] / measured[known] - 1))) if known.any() else None
