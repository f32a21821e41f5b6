"""Words and types that several rooms share, each written once."""

from __future__ import annotations

from typing import Any, Literal

Verdict = Literal["FIT", "WARN", "REFUSED"]
Reference = Literal["baseline", "model"]
Matching = Literal["peak", "matched"]
BalanceKind = Literal["decode", "mixed", "none"]

BACKENDS = ("vllm", "sglang", "trtllm")
BACKEND_KEY = ("system", "backend", "backend_version")  # what a pool of models has in common
IN_SAMPLE, ONE_PP = (
    "in-sample",
    "leave-one-pp-out",
)  # schemes of judging that a file, its release and its report agree on
DECIMAL = (
    r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?"  # a plain number: float() alone would take 1_000 and other scripts' digits
)


def unknown_value(value: Any) -> bool:
    """Whether a cell says nothing: None, NaN, or pandas' NA or NaT, which are known by name: a list of rules needs no frame."""
    return (
        value is None or type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, float) and value != value)
    )
