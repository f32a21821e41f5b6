"""``calib show`` and ``calib compare``: coefficient files, registries and comparisons as tables."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from calib.coefficients import CoefficientSet, Comparison, Key, Registry
from calib.files import SHORT
from calib.reporting import CONFIGURATION, Column, Table

if TYPE_CHECKING:
    from calib.judging import Recommendation


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
                "s": ", ".join(f"{n} = {v:.4f}" for n, v in zip(e.parameters, e.values, strict=True)),
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
            Column("s", "parameters [1]"), Column("interval", "95 % interval of the first [1]"), Column("dof", "dof", "int"),
            Column("domain", "domain"), Column("limit", "positive for"), Column("reasons", "why and warnings"),
        ),
        tuple(rows),
    )  # fmt: skip


def standing(c: CoefficientSet, registries: Iterable[Registry]) -> str:
    """Whether the file is released, superseded or withdrawn, by the registries that were asked."""
    lines = []
    for registry in {os.path.abspath(r.folder): r for r in registries}.values():
        if gone := registry.withdrawal(c.digest):
            lines.append(f"WITHDRAWN in {registry.folder} at {gone.at} by {gone.by}: {gone.why}")
            continue
        for e in registry.releases:
            if c.digest in (e.digest, e.candidate):
                state = "" if e in registry.current else ", superseded since"
                lines.append(f"released in {registry.folder} at {e.at} by {e.by}{state}: {e.why}")
    return "\n".join(lines) or "not released: a candidate"


def balance_rows(c: CoefficientSet) -> Table:
    """What the balance table covers, one row a model and (tp, pp)."""
    groups: dict[tuple[str, str, int, int, int, int], list[Any]] = {}
    for b in c.balance_factors:
        groups.setdefault((b.backend, b.model, b.tp, b.pp, b.isl, b.osl), []).append(b)
    rows = [
        {
            "backend": key[0], "model": key[1], "tp": key[2], "pp": key[3], "isl": key[4], "osl": key[5],
            "concurrency": ", ".join("any" if b.concurrency is None else str(b.concurrency) for b in found),
            "factor": _range([b.factor for b in found]),
            "fill": _range([b.fill for b in found if b.fill is not None]) or None,
            "status": ", ".join(dict.fromkeys(b.status for b in found)),
        }
        for key, found in groups.items()
        if key[3] > 1
    ]  # fmt: skip
    return Table(
        "balance", "Balance factors", "",
        (
            Column("backend", "backend"), Column("model", "model"), Column("tp", "TP", "int"), Column("pp", "PP", "int"),
            Column("isl", "ISL [tokens]", "int"), Column("osl", "OSL [tokens]", "int"), Column("concurrency", "C [requests]"),
            Column("factor", "balance factor [1]"), Column("fill", "fill factor [1]", "long"), Column("status", "status"),
        ),
        tuple(rows),
    )  # fmt: skip


def _range(values: list[float]) -> str:
    if not values:
        return ""
    low, high = f"{min(values):.3f}", f"{max(values):.3f}"
    return low if low == high else f"{low} to {high}"


def release_rows(registry: Registry) -> Table:
    """One row a released file: what it covers and where it stands."""
    rows = []
    for e in registry.releases:
        c = registry.load(e)
        gone = registry.withdrawal(e.digest)
        state = "withdrawn" if gone else "standing" if e in registry.current else "superseded"
        models = [f"{x.model or 'any other'} {x.verdict}" for x in c.coefficients]
        rows.append(
            {
                "digest": e.digest[:SHORT], "state": state, "reference": c.reference, "matching": c.matching, "form": c.form,
                "backend": ", ".join(sorted({f"{x.backend} {x.backend_versions.first} / {x.system}" for x in c.coefficients})),
                "models": ", ".join(models), "file": e.file,
            }
        )  # fmt: skip
    names = ("digest", "state", "reference", "matching", "form", "backend", "models", "file")
    return Table(
        "released", "Released files", "", tuple(Column(n, n) for n in names), tuple(rows), "Nothing is released."
    )


def entry_rows(registry: Registry) -> Table:
    """One row an entry: who did what, when and why."""
    rows = tuple(
        {
            "at": e.at, "by": e.by, "action": e.action, "digest": e.digest[:SHORT], "why": e.why,
            "gates": "; ".join(f"{g.name}: {g.found}" for g in e.gates), "left_out": ", ".join(e.left_out),
        }
        for e in registry.entries
    )  # fmt: skip
    columns = (
        Column("at", "at"), Column("by", "by"), Column("action", "action"), Column("digest", "digest"), Column("why", "why"),
        Column("gates", "gates", "long"), Column("left_out", "released as refused", "long"),
    )  # fmt: skip
    return Table("entries", "Registry entries", "", columns, rows, "There are no entries.")


def moved_rows(c: Comparison) -> Table:
    """Parameters that both sets have."""
    rows = tuple(
        {
            "key": _said(m.key),
            "parameter": m.parameter,
            "old": m.old,
            "new": m.new,
            "difference": m.new - m.old,
            "z": m.z,
        }
        for m in c.moved
    )
    columns = (
        Column("key", "coefficient"), Column("parameter", "parameter"), Column("old", "old [1]", "ratio4"),
        Column("new", "new [1]", "ratio4"), Column("difference", "new - old [1]", "ratio4"),
        Column("z", "combined standard errors", "points"),
    )  # fmt: skip
    empty = "No parameter can be compared." if c.same_form else "The forms differ, so parameters cannot be compared."
    return Table("moved", "What moved", "", columns, rows, empty)


def change_rows(c: Comparison) -> Table:
    """Verdicts, domains and settings that differ, and coefficients only one set has."""
    rows = [{"key": _said(x.key), "what": x.what, "old": x.old, "new": x.new} for x in c.changed]
    rows += [{"key": _said(k), "what": "coefficient", "old": "none", "new": "there"} for k in c.gained]
    rows += [{"key": _said(k), "what": "coefficient", "old": "there", "new": "none"} for k in c.lost]
    columns = (Column("key", "coefficient"), Column("what", "what"), Column("old", "old"), Column("new", "new"))
    return Table("changes", "What else changed", "", columns, tuple(rows), "Nothing else changed.")


def prediction_rows(c: Comparison) -> Table:
    """Predictions on the points both sets answer for, the largest changes first."""
    found = sorted(c.points, key=lambda p: -abs(p.change_pct))
    rows = tuple({n: getattr(p, n) for n in p.__dataclass_fields__} for p in found)
    columns = (
        *CONFIGURATION, Column("old", "old factor [1]", "ratio4"), Column("new", "new factor [1]", "ratio4"),
        Column("change_pct", "change [%]", "points"), Column("z", "combined standard errors", "points"),
    )  # fmt: skip
    note = f"{c.points_gained} points are answered for by the new set alone, {c.points_lost} by the old one alone."
    return Table("predictions", "Predictions on the common points", note, columns, rows, "No point in common.")


def _said(key: Key) -> str:
    system, backend, versions, model, precision = key
    if not system:
        return "the whole file"
    return f"{model or 'any other model'}{f' ({precision})' if precision else ''} on {backend} {versions} / {system}"


def choice_rows(r: Recommendation) -> Table:
    """The ranked configurations, each at its best concurrency."""
    apart = {True: "yes", False: "no", None: "not known"}
    rows = []
    for i, c in enumerate(r.choices, start=1):
        known = c.low == c.low
        own = c.candidate.uncalibrated
        rows.append(
            {
                "rank": i, "tp": c.candidate.tp, "pp": c.candidate.pp, "replicas": c.candidate.replicas,
                "concurrency": "its peak" if c.candidate.concurrency is None else str(c.candidate.concurrency),
                "value": c.value, "interval": f"{c.low:.0f} to {c.high:.0f}" if known else "not known",
                "per_gpu": c.value / r.question.gpus, "own": None if own is None else own * c.candidate.replicas,
                "ttft": c.candidate.ttft_ms, "tpot": c.candidate.tpot_ms, "flag": c.flag,
                "apart": "" if i == 1 else apart[c.told_apart],
            }
        )  # fmt: skip
    columns = (
        Column("rank", "rank", "int"), Column("tp", "TP", "int"), Column("pp", "PP", "int"),
        Column("replicas", "replicas", "int"), Column("concurrency", "C [requests]"),
        Column("value", "calibrated [tok/s]", "percent"),
        Column("interval", "95 % interval [tok/s]"), Column("per_gpu", "[tok/s a GPU]", "percent"),
        Column("own", "uncalibrated [tok/s]", "percent"), Column("ttft", "TTFT, not calibrated [ms]", "points"),
        Column("tpot", "TPOT, not calibrated [ms]", "points"), Column("flag", "rests on"),
        Column("apart", "told apart from the first"),
    )  # fmt: skip
    return Table("recommendation", f"{r.question.model} on {r.question.gpus} GPUs", "", columns, tuple(rows))


def left_out_rows(r: Recommendation) -> Table:
    """Candidates that could not be predicted or break a limit, counted by reason."""
    reasons: dict[tuple[str, str], int] = {}
    for candidate, why in r.left_out:
        text = re.sub(r"point 0 \([^)]*\)( \([^)]*\))?|point 0: ", "", why)
        reasons[candidate.name, text] = reasons.get((candidate.name, text), 0) + 1
    rows = tuple({"name": name, "n": n, "why": why} for (name, why), n in reasons.items())
    columns = (
        Column("name", "configuration"),
        Column("n", "concurrencies", "int"),
        Column("why", "why it is left out"),
    )
    return Table("left_out", "Left out", "", columns, rows, "Nothing was left out.")


def with_notes(table: Table) -> Table:
    """A table with its reasons and warnings in one last column, so that a terminal has room for them."""
    kept = tuple(c for c in table.columns if c.key not in ("reasons", "warnings"))
    rows = tuple(dict(r) | {"notes": "; ".join(filter(None, (r["reasons"], r["warnings"])))} for r in table.rows)
    return replace(table, columns=(*kept, Column("notes", "why and warnings", "long")), rows=rows)
