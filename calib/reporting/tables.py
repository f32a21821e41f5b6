"""What the report shows, as tables whose columns know their unit and how they are written."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from calib.campaign import Campaign, Finding
from calib.coefficients import CoefficientSet
from calib.efficiency import Decomposition
from calib.fitting import FitResult, SeriesFit
from calib.names import IN_SAMPLE
from calib.reporting.before_after_table import before_after_tables
from calib.reporting.fit_tables import (
    contest_tables,
    decision_tables,
    deviation_tables,
    log_share_tables,
    throughput_tables,
)
from calib.reporting.model_tables import physics_tables, roofline_tables, sensitivity_tables
from calib.reporting.published import published_tables
from calib.reporting.table import CONFIGURATION, Column, Table, number, parameter_text, varying
from calib.residual import LOG2
from calib.schema import natural, records
from calib.validation import FLAT, PER_BACKEND, PER_MODEL, UNWEIGHTED, Accuracy
from calib.views import Prediction, prediction


@dataclass(frozen=True)
class ReportData:
    """Everything a report is made from."""

    campaign: Campaign
    decomposition: Decomposition
    fit: FitResult
    coefficients: CoefficientSet
    accuracy: Accuracy
    findings: tuple[Finding, ...]
    sensitivity: tuple[Mapping[str, Any], ...] = ()
    physics: tuple[Mapping[str, Any], ...] = ()
    everywhere: Prediction | None = None
    model: FitResult | None = None
    changes: str = ""
    drawn: dict[str, bytes] = field(default_factory=dict, repr=False)

    @functools.cached_property
    def shown(self) -> Prediction:
        """What the coefficients predict of their own points."""
        return prediction(self.fit, self.coefficients)

    @functools.cached_property
    def tables(self) -> dict[str, Table]:
        """All tables by name, in the order they are shown."""
        return report_tables(self)


def report_tables(data: ReportData) -> dict[str, Table]:
    """All tables of the report by name, in the order they are shown."""
    tables = [
        observed_table(data.decomposition),
        decomposition_table(data.decomposition),
        coefficient_table(data.fit),
        *concurrency_tables(data.fit),
        *deviation_tables(data.fit),
        *log_share_tables(data.model),
        accuracy_table(data.accuracy, data.fit),
        *contest_tables(data.coefficients.contest),
        *decision_tables(data.decomposition),
        *throughput_tables(data.shown, data.everywhere),
        *published_tables(data.campaign, data.decomposition, data.fit, data.accuracy),
        predicted_table(data.accuracy),
        *before_after_tables(data.campaign),
        *sensitivity_tables(data.sensitivity),
        *physics_tables(data.physics),
        balance_table(data.coefficients),
        *roofline_tables(data.campaign),
        quality_table(data.findings),
        provenance_table(data.coefficients),
    ]
    return {t.name: t for t in tables}


def observed_table(decomposition: Decomposition) -> Table:
    """Observed efficiency, one row a series and concurrency, one column a pp."""
    table = decomposition.table
    levels = sorted({int(p) for p in table["pp"]})
    rows: list[dict[str, Any]] = []
    more = tuple(c for c in varying(table) if c.key != "backend_version")
    keys = ["backend", "backend_version", "model", *(c.key for c in more)]
    if decomposition.matching == "matched":
        keys.append("concurrency")
    for key, group in table.groupby(keys, dropna=False, sort=False):
        row: dict[str, Any] = dict(zip(keys, key, strict=True))
        for r in records(group):
            row[f"pp{int(r['pp'])}"] = r["efficiency"]
        if decomposition.matching == "peak":
            row["concurrency"] = _peaks(group)
        rows.append(row)
    peak = decomposition.matching == "peak"
    how = "each side at its best concurrency" if peak else "the same concurrency on both sides"
    return Table(
        name="observed",
        title="Observed efficiency",
        note=f"Output throughput per GPU over that of TP{_gpus(table)}/PP1 in the same campaign, {how}. 1 is no loss.",
        columns=(
            Column("backend", "backend"),
            Column("backend_version", "version"),
            Column("model", "model"),
            *more,
            Column(
                "concurrency",
                "peak C (PP1 / PP>1) [requests]" if peak else "C [requests]",
                "text" if peak else "int",
            ),
            *(Column(f"pp{level}", f"PP={level} [1]", "ratio") for level in levels),
        ),
        rows=tuple(rows),
        empty="No efficiency could be formed.",
    )


def _gpus(table: pd.DataFrame) -> str:
    return "/".join(str(g) for g in sorted(set(table["gpus"]))) or "G"


def _peaks(group: pd.DataFrame) -> str:
    own = [number(c, "int") for c in group.sort_values("pp")["concurrency"]]
    base = sorted({number(c, "int") for c in group["baseline_concurrency"]})
    if set(own) | set(base) == {""}:
        return "not stated"
    return f"{'/'.join(base)} / {', '.join(own)}"


def decomposition_table(decomposition: Decomposition) -> Table:
    """What imbalance explains of the penalty and what is left to scheduling, one row a point."""
    rows = records(decomposition.table)
    return Table(
        name="decomposition",
        title="Where the throughput goes",
        note=(
            "Total penalty = balance share + scheduling share, in percentage points (pp) of the baseline's throughput. The "
            "scheduling share also holds the change of TP degree and the pipe fill: no run on fewer GPUs separates them. "
            "A negative share is a gain."
        ),
        columns=(
            *CONFIGURATION,
            Column("efficiency", "efficiency [1]", "ratio"),
            Column("total_penalty_pp", "total penalty [pp]", "points"),
            Column("balance_share_pp", "balance share [pp]", "points"),
            Column("scheduling_share_pp", "scheduling share [pp]", "points"),
            Column("balance_share_of_total_pct", "balance of total [%]", "percent"),
            Column("balance_factor", "balance factor [1]", "ratio"),
            Column("balance_status", "balance is"),
            Column("residual", "residual [1]", "ratio"),
        ),
        rows=tuple(rows),
        empty="No efficiency could be decomposed.",
    )


def coefficient_table(fit: FitResult) -> Table:
    """``s`` per model and backend with its interval and verdict."""
    rows = [_coefficient_row(s, s.key["model"] or "") for s in fit.series]
    rows += [_coefficient_row(s, "(backend, any model)") for s in fit.pools]
    rows += [_coefficient_row(s, "(flat c, without balance)") | {"verdict": "-", "reasons": ""} for s in fit.flat]
    return Table(
        name="coefficients",
        title=f"Coefficients of {fit.form.formula}",
        note=(
            "FIT: the form describes the points within their measurement error. WARN: it could not be tested, or has no "
            "interval. REFUSED: the data reject the form, and a predictor will not apply it. The interval is 95 %, from the t "
            "distribution with the degrees of freedom shown. For a backend it is that of a model not measured."
        ),
        columns=(
            Column("backend", "backend"),
            Column("model", "model"),
            Column("verdict", "verdict", "verdict"),
            Column("s", "estimate ± standard error [1]"),
            Column("interval", "95 % interval [1]"),
            Column("n", "points", "int"),
            Column("dof", "dof", "int"),
            Column("p_value", "p of the form", "p"),
            Column("reasons", "why", "long"),
            Column("warnings", "warnings beside it", "long"),
        ),
        rows=tuple(rows),
        empty="Nothing was fitted.",
    )


def _coefficient_row(s: SeriesFit, label: str) -> dict[str, Any]:
    e = s.estimate
    value, error = e.values[0], e.stderr[0] if e.stderr else None
    interval = e.interval95[0] if e.interval95 else None
    spans = [f"{x.low:.3f} to {x.high:.3f}" for x in e.interval95 or ()]
    return {
        "backend": s.key["backend"],
        "model": label,
        "verdict": s.verdict,
        "s": parameter_text(e),
        "interval": "; ".join(spans) or "unknown",
        "n": e.n,
        "dof": e.dof,
        "p_value": None if s.form_test is None else s.form_test.p_value,
        "reasons": "; ".join(s.reasons),
        "warnings": "; ".join(s.warnings),
        "value": value,
        "stderr": error,
        "low95": None if interval is None else interval.low,
        "high95": None if interval is None else interval.high,
    }


def concurrency_tables(fit: FitResult) -> list[Table]:
    """``s`` of every concurrency on its own, where a matched campaign has several."""
    rows = [
        {
            "backend": s.key["backend"],
            "model": s.key["model"],
            "concurrency": f.concurrency,
            "s": float(f.curve.values[0]),
            "p_value": f.p_value,
            "verdict": f.verdict()[0],
            "reasons": "; ".join(f.verdict()[1]),
        }
        for s in fit.series
        for f in s.by_concurrency
    ]
    if not rows:
        return []
    return [
        Table(
            name="by_concurrency",
            title="The same coefficient at each concurrency",
            note="A stable s is no proof of the form: p is the probability of points this far from the curve by chance.",
            columns=(
                Column("backend", "backend"),
                Column("model", "model"),
                Column("concurrency", "C [requests]", "int"),
                Column("s", f"{fit.form.parameters[0] if fit.form.parameters else 'residual'} [1]", "ratio"),
                Column("p_value", "p of the form", "p"),
                Column("verdict", "verdict", "verdict"),
                Column("reasons", "why", "long"),
            ),
            rows=tuple(rows),
        )
    ]


def accuracy_table(accuracy: Accuracy, fit: FitResult) -> Table:
    """Mean and worst error of each approach, in sample and left out."""
    names = _approaches(fit)
    return Table(
        name="accuracy",
        title="How wrong the prediction is",
        note=(
            "Absolute error of the predicted efficiency in percentage points (pp), over points. Left out: each pp level is "
            "predicted from a fit to the other levels. Refused coefficients are included, to show why they are."
        ),
        columns=(
            Column("backend", "backend"),
            Column("approach", "approach"),
            Column("scheme", "scheme"),
            Column("mean_abs_error_pp", "mean error [pp]", "points"),
            Column("max_abs_error_pp", "worst error [pp]", "points"),
            Column("worst_point", "worst at"),
            Column("coverage", "predicted points"),
        ),
        rows=tuple(
            r | {"coverage": f"{r['predicted']} of {r['points']}", "approach": names.get(r["approach"], r["approach"])}
            for r in records(accuracy.summary)
        ),
        empty="Nothing could be predicted.",
    )


def _approaches(fit: FitResult) -> dict[str, str]:
    """The approaches in the words of the form and reference that were really fitted; the names speak of the published ones."""
    if fit.form.name == LOG2.name and fit.decomposition.reference == "baseline":
        return {}
    explained = "balance" if fit.decomposition.reference == "baseline" else "K * balance * fill"
    own = f"{explained} * ({fit.form.formula})"
    names = {PER_MODEL: f"{own}, each model its own", PER_BACKEND: f"{own}, one for the backend"}
    names[UNWEIGHTED] = f"{explained} * ({LOG2.formula}), each model its own, plain least squares"
    if fit.form.name != LOG2.name and not fit.form.needs_concurrency:
        names[FLAT] = f"{fit.form.formula}, no balance"
    return names


def predicted_table(accuracy: Accuracy) -> Table:
    """Measured and predicted efficiency of every point, per-model coefficients."""
    points = accuracy.points[accuracy.points["approach"] == PER_MODEL]
    more = varying(points)
    keys = ["backend", "model", *(c.key for c in more), "tp", "pp", "concurrency"]
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for r in records(points):
        row = rows.setdefault(tuple(str(r[k]) for k in keys), {k: r[k] for k in keys} | {"measured": r["measured"]})
        left = r["scheme"] != IN_SAMPLE
        row["left_out" if left else "predicted"] = r["predicted"]
        row["left_out_error_pp" if left else "error_pp"] = r["error_pp"]
    return Table(
        name="predicted",
        title="Measured and predicted efficiency",
        note="Each model by its own coefficient. Error = predicted - measured, in percentage points (pp).",
        columns=(
            *CONFIGURATION[:2],
            *more,
            *CONFIGURATION[2:],
            Column("measured", "measured [1]", "ratio"),
            Column("predicted", "predicted [1]", "ratio"),
            Column("error_pp", "error [pp]", "points"),
            Column("left_out", "left out [1]", "ratio"),
            Column("left_out_error_pp", "its error [pp]", "points"),
        ),
        rows=tuple(rows.values()),
    )


def balance_table(coefficients: CoefficientSet) -> Table:
    """The balance factors the coefficients were fitted with, and their source."""
    source = coefficients.balance_source
    rows = [
        {
            "backend": b.backend, "model": b.model, "tp": b.tp, "pp": b.pp, "concurrency": b.concurrency,
            "factor": b.factor, "status": b.status,
        }
        for b in sorted(coefficients.balance_factors, key=lambda b: (b.backend, natural(b.model), b.pp, b.concurrency or 0))
        if b.fitted
    ]  # fmt: skip
    return Table(
        name="balance",
        title="Balance factors",
        note=(
            f"From {source.name} {source.version} for {source.system}: {source.note}. Balance of {source.step} steps, layers by "
            f"the rule '{source.partition}'."
        ),
        columns=(
            *CONFIGURATION,
            Column("factor", "balance factor [1]", "ratio4"),
            Column("status", "is"),
        ),
        rows=tuple(rows),
    )


def quality_table(findings: tuple[Finding, ...], *, grouped: bool = True) -> Table:
    """What was set aside or warned about, and by which rule; ``grouped``, the same reason at many runs is one row."""
    same: dict[tuple[object, ...], list[Finding]] = {}
    for i, f in enumerate(sorted(findings, key=lambda f: (f.verdict, f.rule))):
        same.setdefault((f.verdict, f.rule, f.reason) if grouped else (i,), []).append(f)
    rows = [
        {
            "verdict": f[0].verdict, "rule": f[0].rule, "runs": len(f), "reason": f[0].reason, "limit": f[0].limit,
            "subject": f[0].subject + (f" and {len(f) - 1} more" if len(f) > 1 else ""),
            "source": f[0].source_file + (f":{f[0].source_row}" if f[0].source_row else ""),
            "subjects": "; ".join(x.subject for x in f),
        }
        for f in same.values()
    ]  # fmt: skip
    return Table(
        name="quality",
        title="What the measurements are worth",
        note=(
            "REJECT: set aside, not used. CORRECTED: a figure was mended. WARN: used, and the warning travels with the "
            "coefficient. INFO: could not be assessed."
        ),
        columns=(
            Column("verdict", "verdict", "verdict"),
            Column("rule", "rule"),
            Column("runs", "runs", "int"),
            Column("subject", "run or series"),
            Column("reason", "reason", "long"),
            Column("limit", "limit", "plain"),
            Column("source", "source"),
        ),
        rows=tuple(rows),
        empty="Nothing was set aside, and there is nothing to warn about.",
    )


def provenance_table(coefficients: CoefficientSet) -> Table:
    """The inputs by content."""
    return Table(
        name="inputs",
        title="Inputs",
        note=f"calib {coefficients.calib_version}; digest of the coefficients {coefficients.digest}.",
        columns=(Column("campaign", "campaign"), Column("path", "file"), Column("sha256", "SHA-256")),
        rows=tuple({"campaign": i.campaign, "path": i.path, "sha256": i.sha256} for i in coefficients.inputs),
    )
