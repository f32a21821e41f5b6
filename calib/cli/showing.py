"""``calib show``: a coefficient file as a table."""

from __future__ import annotations

from calib.coefficients import CoefficientSet
from calib.reporting.table import Column, Table


def header(c: CoefficientSet) -> str:
    """What the file is, in a few lines."""
    source = c.balance_source
    return "\n".join(
        (
            f"coefficients {c.digest}",
            f"factor = {c.formula}; multiplies {c.quantity} [tok/s] of the {c.reference} (matching {c.matching})",
            f"balance from {source.name} {source.version} for {source.system}, {source.step} step, rule '{source.partition}', "
            f"{len(c.balance_factors)} configurations",
            f"calib {c.calib_version}, written {c.created.at} by {c.created.by}, supersedes {c.supersedes or 'nothing'}",
        )
    )


def coefficient_rows(c: CoefficientSet) -> Table:
    """One row a coefficient: estimate, interval, domain, verdict."""
    rows = []
    for item in c.coefficients:
        e, d = item.estimate, item.domain
        interval = e.interval95[0] if e.interval95 else None
        concurrency = "not stated" if d.concurrency is None else f"{d.concurrency.low:g} to {d.concurrency.high:g}"
        rows.append(
            {
                "key": f"{item.backend} {item.backend_versions.first} / {item.system}",
                "model": item.model or "(any model)",
                "verdict": item.verdict,
                "s": e.values[0],
                "interval": "unknown" if interval is None else f"{interval.low:.3f} to {interval.high:.3f}",
                "dof": e.dof,
                "domain": f"PP {', '.join(map(str, d.pp_levels))}; TP {', '.join(map(str, d.tp))}; C {concurrency}; "
                f"ISL {d.isl.low:g} to {d.isl.high:g}; OSL {d.osl.low:g} to {d.osl.high:g}",
                "limit": "none" if item.positivity_limit_pp is None else f"pp < {item.positivity_limit_pp:.1f}",
                "reasons": "; ".join((*item.reasons, *item.warnings)),
            }
        )
    return Table(
        "show", "Coefficients", "",
        (
            Column("key", "key"), Column("model", "model"), Column("verdict", "verdict", "verdict"),
            Column("s", "s [1]", "ratio"), Column("interval", "95 % interval [1]"), Column("dof", "dof", "int"),
            Column("domain", "domain"), Column("limit", "positive for"), Column("reasons", "why and warnings"),
        ),
        tuple(rows),
    )  # fmt: skip
