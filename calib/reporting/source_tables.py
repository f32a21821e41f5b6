"""Tables of what went in: balance factors, findings, inputs."""

from __future__ import annotations

from calib.coefficients import CoefficientSet
from calib.measure import Finding, natural
from calib.reporting.table import CONFIGURATION, Column, Table


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
