"""Which runs to measure next: those that narrow the interval of a chosen ``s`` most per GPU-hour.

What a campaign on G GPUs cannot tell apart is the change of TP degree and the pipeline: every (tp, pp) with ``tp*pp = G`` has one
TP degree a pp level. The planner therefore carries an unknown TP deviation ``d_tp`` beside ``s``::

    efficiency(tp, pp) = explained * (f(pp) + d_tp * f(pp)) * (1 + e) / (1 + e0)       e ~ sigma, e0 ~ sigma0 shared
    d_tp ~ N(0, tp_spread)

A run of TP=k/PP=1 on k GPUs observes ``d_k`` directly. Campaigns are drawn from the fitted model and refitted, all at once, and
the spread of the estimates about the truth is the error that is reported. ``tp_spread`` is what the model's own TP scaling is off
by at the lowest concurrency, where scheduling does not show (``reference = "model"``), or what the caller states.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from calib.arrays import Array
from calib.coefficients import LOG2
from calib.errors import CalibError, UsageError
from calib.fitting import FitResult, SeriesFit, decompose, solve_gls
from calib.pipeline import microbatch_size

ASSUMED_SPREAD = 0.05  # of TP scaling, where the campaign cannot tell [1]
DETECTION = 3.5  # combined standard errors from which a moved coefficient is an alarm
DRAWS = 4000
MOST_REPEATS = 64


@dataclass(frozen=True)
class PlanOptions:
    """What the planner assumes: minutes a run takes with its start-up, runs a candidate adds, simulated campaigns, seed."""

    repeats: int = 1
    run_minutes: float = 10.0
    tp_spread: float | None = None
    drift: float | None = None
    power: float = 0.95
    draws: int = DRAWS
    seed: int = 0

    def __post_init__(self) -> None:
        for name, value, good in (
            ("repeats", self.repeats, 1 <= self.repeats <= MOST_REPEATS),
            ("run_minutes", self.run_minutes, 0 < self.run_minutes < math.inf),
            ("tp_spread", self.tp_spread, self.tp_spread is None or 0 <= self.tp_spread < 1),
            ("drift", self.drift, self.drift is None or 0 < abs(self.drift) < 1),
            ("power", self.power, 0.5 <= self.power < 1),
            ("draws", self.draws, self.draws >= 100),
        ):
            if not good:
                raise UsageError("is out of range", field=name, value=value, remedy="see the docstring of PlanOptions")


@dataclass(frozen=True)
class Plan:
    """The candidates, best first, and how many repeats find a drift.

    ``candidates``: one row a candidate with ``model, backend, tp, pp, gpus, concurrency, repeats, gpu_hours`` [h],
    ``half_width_before`` and ``half_width_after``, 1.96 standard errors of s [1] by the stated errors (the published interval is
    another: it has Student's t and the scatter seen), and ``narrowing_per_gpu_hour`` [1/h].
    ``repeats_for_drift``: nights' worth of every (tp, pp) and of the baseline until a change of ``drift`` in s is more than
    `DETECTION` combined standard errors with probability ``power``; None where `MOST_REPEATS` are not enough.
    """

    series: SeriesFit
    candidates: pd.DataFrame
    tp_spread: float
    spread_from: str
    drift: float
    power: float
    repeats_for_drift: int | None
    options: PlanOptions


@dataclass(frozen=True)
class _Design:
    """What has been measured: levels (n,), their TP, relative errors, the baseline's, and direct TP observations."""

    x: Array
    tp: Array
    own: Array
    shared: float
    alone: tuple[tuple[int, float], ...] = ()  # (tp, relative error) of TP=k/PP=1 runs on k GPUs


def plan_runs(fit: FitResult, *, model: str, backend: str | None = None, options: PlanOptions | None = None) -> Plan:
    """Candidates for the next runs of one model's series, ranked, and the repeats a drift needs.

    Raises
    ------
    UsageError
        No such series, several, or another form than log2.
    """
    options = options or PlanOptions()
    series = _series(fit, model, backend)
    spread, origin = _tp_spread(fit, series, options)
    s = series.estimate.values[0]
    now = _design(series)
    before = _error(now, s, spread, options)
    rows = []
    for what, gpus, tp, pp, after in _candidates(now, series, options.repeats):
        hours = gpus * options.repeats * options.run_minutes / 60.0
        error = _error(after, s, spread, options)
        rows.append(
            {
                "what": what, "model": model, "backend": series.key["backend"], "tp": tp, "pp": pp, "gpus": gpus,
                "concurrency": _concurrency(series, tp, pp, gpus), "repeats": options.repeats, "gpu_hours": hours,
                "half_width_before": 1.96 * before, "half_width_after": 1.96 * error,
                "narrowing_per_gpu_hour": 1.96 * (before - error) / hours,
            }
        )  # fmt: skip
    table = pd.DataFrame(rows).sort_values("narrowing_per_gpu_hour", ascending=False, kind="stable", ignore_index=True)
    drift = options.drift if options.drift is not None else 0.1 * s
    found = repeats_for_drift(now, s, drift, options)
    return Plan(series, table, spread, origin, drift, options.power, found, options)


def _series(fit: FitResult, model: str, backend: str | None) -> SeriesFit:
    if fit.form.name != LOG2.name:
        raise UsageError("can be planned for only with the form log2", field="form", value=fit.form.name)
    found = [s for s in fit.series if s.key["model"] == model and backend in (None, s.key["backend"])]
    if len(found) != 1:
        known = ", ".join(sorted({f"{s.key['model']} on {s.key['backend']}" for s in fit.series}))
        raise UsageError(
            f"names {len(found)} series of the campaign", field="model", value=model, remedy=f"name one of {known}"
        )
    return found[0]


def _design(series: SeriesFit) -> _Design:
    """The series as it was measured: at the highest concurrency that all levels share, else each level at its own highest."""
    points = series.points
    if points["concurrency"].notna().all() and points.duplicated("pp").any():
        shared = points.groupby("concurrency")["pp"].nunique()
        shared = shared[shared == points["pp"].nunique()]
        if len(shared):
            points = points[points["concurrency"] == shared.index.max()]
        else:
            points = points.sort_values("concurrency").groupby("pp", sort=True).tail(1).sort_values("pp")
    return _Design(
        np.log2(points["pp"].to_numpy(dtype=np.float64)),
        points["tp"].to_numpy(dtype=np.float64),
        points["rel_error"].to_numpy(dtype=np.float64),
        float(points["baseline_rel_error"].max()),
    )


def _concurrency(series: SeriesFit, tp: int, pp: int, gpus: int) -> int | None:
    """The concurrency of the series; on one stage's GPUs alone, that of one stage's microbatch, ``ceil(C/pp)``."""
    alone = gpus < int(series.points["gpus"].iloc[0])
    stages = int(series.points["gpus"].iloc[0]) // tp if alone else pp
    at = series.points[series.points["pp"] == stages] if stages > 1 else series.points
    c = (at["concurrency"] if stages > 1 else at["baseline_concurrency"]).dropna()
    if not len(c):
        return None
    return microbatch_size(int(c.max()), stages) if alone else int(c.max())


def _candidates(now: _Design, series: SeriesFit, repeats: int) -> Sequence[tuple[str, int, int, int, _Design]]:
    """(what, GPUs, tp, pp, the design with it) of everything that can be measured next."""
    gpus = int(series.points["gpus"].iloc[0])
    more = 1.0 / math.sqrt(1 + repeats)
    found = [("baseline again", gpus, gpus, 1, replace(now, shared=now.shared * more))]
    for i in range(len(now.x)):
        own = now.own.copy()
        own[i] *= more
        tp, pp = int(now.tp[i]), round(2 ** now.x[i])
        found.append(("configuration again", gpus, tp, pp, replace(now, own=own)))
    for tp in sorted({int(t) for t in now.tp}, reverse=True):
        error = float(np.mean(now.own)) / math.sqrt(repeats)
        alone = replace(now, alone=(*now.alone, (tp, error)))
        found.append((f"TP scaling alone, on {tp} GPU{'s' if tp > 1 else ''}", tp, tp, 1, alone))
    return found


def _tp_spread(fit: FitResult, series: SeriesFit, options: PlanOptions) -> tuple[float, str]:
    """How far TP scaling may be off [1], and where that is known from."""
    if options.tp_spread is not None:
        return options.tp_spread, "stated"
    try:
        table = decompose(fit.decomposition.campaign, matching="matched", reference="model").table
    except CalibError:
        table = pd.DataFrame()
    if len(table):
        own = table[(table["model"] == series.key["model"]) & (table["backend"] == series.key["backend"])]
        low = own[own["concurrency"] == own["concurrency"].min()]
        if len(low):
            off = float(np.sqrt(np.mean(np.log(low["residual"]) ** 2)))
            c = int(low["concurrency"].iloc[0])
            return min(off, 0.99), f"the model's own TP scaling is off by this at C={c} (root mean square)"
    return ASSUMED_SPREAD, "assumed: the campaign has no steps of the model that would tell"


def _error(design: _Design, s: float, spread: float, options: PlanOptions, shift: float = 0.0) -> float:
    """Standard deviation of the estimate about the truth over simulated campaigns [1]."""
    estimates = _simulate(design, s + shift, spread, options)
    return float(np.sqrt(np.mean((estimates - (s + shift)) ** 2)))


def _simulate(design: _Design, s: float, spread: float, options: PlanOptions) -> Array:
    """Estimates of s (draws,) from as many campaigns, each with its own TP deviations and measurement errors."""
    rng = np.random.default_rng(options.seed)  # the same draws for every candidate: differences are not noise
    n, levels = len(design.x), sorted({int(t) for t in design.tp})
    f = LOG2.residual(2**design.x, [s])
    index = np.array([levels.index(int(t)) for t in design.tp])
    draws = options.draws
    d = spread * rng.standard_normal((draws, len(levels)))
    base = design.shared * rng.standard_normal((draws, 1))
    own = design.own * rng.standard_normal((draws, n))
    y = f * (1 + d[:, index]) * (1 + own) / (1 + base)
    alone = [levels.index(tp) for tp, _ in design.alone]
    errors = np.array([e for _, e in design.alone])
    direct = d[:, alone] + errors * rng.standard_normal((draws, len(alone))) - base
    # Unknown: s and the deviations. Rows: the efficiencies, the direct observations, and what is known beforehand.
    k = len(levels) if spread > 0 else 0
    rows = np.zeros((n + len(alone) + k, 1 + k))
    rows[:n, 0] = -design.x
    if k:
        rows[np.arange(n), 1 + index] = f
        rows[n + np.arange(len(alone)), 1 + np.array(alone, dtype=int)] = 1.0
        rows[n + len(alone) :, 1:] = np.eye(k)
    v = np.zeros((len(rows), len(rows)))
    shared = np.concatenate([design.shared * f, np.full(len(alone), design.shared), np.zeros(k)])
    v += np.outer(shared, shared)
    v[np.arange(len(rows)), np.arange(len(rows))] += np.concatenate(
        [(design.own * f) ** 2, errors**2, np.full(k, spread**2)]
    )
    observed = np.concatenate([y - 1.0, direct, np.zeros((draws, k))], axis=1)
    if not k:
        rows, v, observed = rows[:n], v[:n, :n], observed[:, :n]
    return solve_gls(np.broadcast_to(rows, (draws, *rows.shape)), observed, v).values[:, 0]


def repeats_for_drift(design: _Design, s: float, drift: float, options: PlanOptions) -> int | None:
    """The fewest repeats of every run with which a change of ``drift`` in s is seen with the asked-for probability.

    Both nights have that many; TP deviations are the same on both and cancel.
    """
    for n in range(1, MOST_REPEATS + 1):
        finer = replace(design, own=design.own / math.sqrt(n), shared=design.shared / math.sqrt(n))
        before = _simulate(finer, s, 0.0, options)
        after = _simulate(finer, s + drift, 0.0, replace(options, seed=options.seed + 1))
        error = math.hypot(float(np.std(before)), float(np.std(after)))
        if np.mean(np.abs(after - before) > DETECTION * error) >= options.power:
            return n
    return None
