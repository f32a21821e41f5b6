"""How an estimate and a domain are written in the tables of a notebook."""

from __future__ import annotations

import math
from typing import Protocol

from calib.coefficients.records import Domain, Estimate
from calib.notebook import LEFT, RIGHT, span_text

ESTIMATED = {"model": LEFT, "backend": LEFT, "estimate ± stderr [1]": LEFT, "95 % interval [1]": LEFT, "points": RIGHT,
             "dof": RIGHT, "verdict": LEFT}  # fmt: skip


class Judged(Protocol):
    """Whatever carries a verdict: a coefficient, or the fit it came from."""

    @property
    def verdict(self) -> str: ...
    @property
    def reasons(self) -> tuple[str, ...]: ...
    @property
    def warnings(self) -> tuple[str, ...]: ...


def estimated_row(model: str | None, backend: str | None, e: Estimate, judged: Judged) -> tuple[object, ...]:
    """One row of a table with the columns `ESTIMATED` and the reasons and warnings."""
    texts, spans = [], []
    for i, (name, value) in enumerate(zip(e.parameters, e.values, strict=True)):
        error = e.stderr[i] if e.stderr else None
        digits = 3 if not error else min(6, max(3, 1 - math.floor(math.log10(error))))
        texts.append(f"{name} = {value:.{digits}f}" + ("" if error is None else f" ± {error:.{digits}f}"))
        if e.interval95:
            spans.append(f"{e.interval95[i].low:.{digits}f} to {e.interval95[i].high:.{digits}f}")
    why = "; ".join((*judged.reasons, *judged.warnings))
    name = model or ("any other model" if backend else "any backend")
    return name, backend, ", ".join(texts), ", ".join(spans) or "unknown", e.n, e.dof, judged.verdict, why


def domain_text(d: Domain) -> str:
    """Where a coefficient holds, in words."""
    concurrency = (
        "not stated" if d.concurrency is None else f"{span_text(d.concurrency.low, d.concurrency.high)} requests"
    )
    return (
        f"PP {', '.join(map(str, d.pp_levels))}; TP {', '.join(map(str, d.tp))}; C {concurrency}; "
        f"ISL {span_text(d.isl.low, d.isl.high)}, OSL {span_text(d.osl.low, d.osl.high)} tokens"
    )
