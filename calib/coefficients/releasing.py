"""From a candidate to a released file: the gates, and what may be left out.

A set is released with everything that is in it. A model whose form is REFUSED has to be named to be left out: it stays in the
file as refused, so that a prediction for it keeps failing with the reason, and does not quietly fall back to the backend's
pool. A set of which nothing would be left is not released.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import msgspec

from calib.coefficients.comparison import Comparison, compare
from calib.coefficients.file import CoefficientSet
from calib.coefficients.records import Coefficient
from calib.coefficients.registry import Registry, open_to_append
from calib.coefficients.registry_entries import Entry, GateResult
from calib.errors import GateFailedError, RegistryError, UsageError
from calib.files import SHORT
from calib.names import ONE_PP

MAX_ERROR_PP = 5.0
NOT_KNOWN = "not known"


def gates(
    candidate: CoefficientSet, *, leave_out: Collection[str] = (), max_error_pp: float = MAX_ERROR_PP
) -> tuple[GateResult, ...]:
    """The conditions of a release, each with its limit and what was found.

    Parameters
    ----------
    leave_out
        Models (or, for a backend's pool, backends) that may be REFUSED.
    max_error_pp
        Limit of the mean absolute error of left-out pp levels, backend by backend [percentage points of efficiency].
    """
    refused = [c for c in candidate.coefficients if c.verdict == "REFUSED"]
    # A backend's pool that is refused, since fewer than two models fit, stays so in the file: nothing is published of it.
    stray = [_name(c) for c in refused if c.model is not None and c.model not in leave_out]
    left = [c for c in candidate.coefficients if c.verdict != "REFUSED" and c.model is not None]
    return (
        GateResult(
            name="no refused coefficient", limit="0, except those left out by name",
            found=f"{len(stray)} refused ({', '.join(stray)})" if stray else "0 refused", passed=not stray,
        ),
        GateResult(
            name="something to apply", limit="at least 1 coefficient of a model",
            found=f"{len(left)} coefficients of models", passed=bool(left),
        ),
        *(_error_gate(candidate, backend, max_error_pp) for backend in dict.fromkeys(c.backend for c in left)),
        GateResult(
            name="inputs stated", limit="at least 1 input with its digest", found=f"{len(candidate.inputs)} inputs",
            passed=bool(candidate.inputs),
        ),
    )  # fmt: skip


def release(
    candidate: CoefficientSet,
    registry: str | Path,
    *,
    why: str,
    leave_out: Collection[str] = (),
    max_error_pp: float = MAX_ERROR_PP,
) -> tuple[Entry, Comparison | None]:
    """Copy a candidate into a registry; returns the entry, and the comparison with what it supersedes.

    The copy names the standing release of the same reference, matching and backends in ``supersedes``.

    Raises
    ------
    GateFailedError
        A gate is not met.
    RegistryError
        It is released or withdrawn already, or no reason is given.
    UsageError
        A name to leave out is that of no refused coefficient.
    """
    opened = open_to_append(registry)
    _require_new(opened, candidate, why)
    names = {_name(c) for c in candidate.coefficients if c.verdict == "REFUSED"}
    if unknown := sorted(set(leave_out) - names):
        known = ", ".join(sorted(names)) or "none"
        raise UsageError(f"is not refused in this file (refused: {known})", field="leave_out", value=unknown[0])
    results = gates(candidate, leave_out=leave_out, max_error_pp=max_error_pp)
    if failed := [g for g in results if not g.passed]:
        hints = {"no refused coefficient": "; name each with --leave-out to release it as refused"}
        if failed[0].found == NOT_KNOWN:
            hints[failed[0].name] = "; write the file with `calib run` or calib.coefficient_set, which measure it"
        hint = hints.get(failed[0].name, "")
        raise GateFailedError(
            f"not released, gate '{failed[0].name}': found {failed[0].found}, the limit is {failed[0].limit}{hint}"
        )
    earlier = _superseded(opened, candidate)
    released = candidate
    if earlier is not None:
        released = msgspec.structs.replace(candidate, supersedes=earlier.digest).sealed()
    entry = opened.add(released, candidate=candidate.digest, why=why, gates=results, left_out=tuple(sorted(leave_out)))
    return entry, None if earlier is None else compare(earlier, released)


def withdraw(registry: str | Path, digest: str, why: str) -> Entry:
    """Withdraw a release; from now on loading the file is an error that says why.

    Raises
    ------
    RegistryError
        No such release, withdrawn already, or no reason.
    """
    return open_to_append(registry).withdraw(digest, why)


def _require_new(registry: Registry, candidate: CoefficientSet, why: str) -> None:
    if not why.strip():
        raise RegistryError("needs a reason", field="why", value=why, remedy="say why the file is released")
    for entry in registry.releases:
        if candidate.digest in (entry.digest, entry.candidate):
            gone = registry.withdrawal(entry.digest)
            said = f"and withdrawn at {gone.at} by {gone.by}: {gone.why}" if gone else f"at {entry.at} by {entry.by}"
            raise RegistryError(
                f"was released already {said}",
                file=registry.path_of(entry), field="digest", value=candidate.digest[:SHORT],
                remedy="fit again from corrected inputs" if gone else "nothing is to be done",
            )  # fmt: skip


def _superseded(registry: Registry, candidate: CoefficientSet) -> CoefficientSet | None:
    """The newest standing release that answers the same questions and no others."""
    for entry in registry.current:
        old = registry.load(entry)
        same = (old.reference, old.matching) == (candidate.reference, candidate.matching)
        if same and _backends(old) <= _backends(candidate):
            return old
    return None


def _backends(c: CoefficientSet) -> set[tuple[str, str]]:
    return {(x.system, x.backend) for x in c.coefficients}


def _name(c: Coefficient) -> str:
    return c.model or c.backend


def _error_gate(candidate: CoefficientSet, backend: str, limit: float) -> GateResult:
    """The left-out error of this form, as the file's own contest states it."""
    scope = "partial" if candidate.pooling == "partial" else "model"
    way = (backend, candidate.form, scope, candidate.balance_source.step, ONE_PP)
    rows = [r for r in candidate.contest if (r.backend, r.form, r.scope, r.balance, r.scheme) == way]
    error = rows[0].mean_abs_error_pp if rows else None
    return GateResult(
        name=f"left-out error of {backend}",
        limit=f"{limit:g} percentage points of efficiency, mean over left-out pp levels",
        found=NOT_KNOWN if error is None else f"{error:.2f} percentage points",
        passed=error is not None and error <= limit,
    )
