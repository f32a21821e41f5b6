"""Tables of the fitted coefficients, over all and concurrency by concurrency."""

from __future__ import annotations

from typing import Any

from calib.fitting import FitResult, SeriesFit
from calib.reporting.table import Column, Table, parameter_text


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
