"""What a coefficient file is made of: strict, immutable records, compared by value."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from calib.names import BalanceKind, Verdict


class FileRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, gc=False):
    """Strict, immutable, compared by value; holds no cycles, so that a large file costs no garbage collection."""


class VersionRange(FileRecord, frozen=True, kw_only=True):
    """Engine versions a coefficient was measured with, both ends included (PEP 440 order)."""

    first: str
    last: str

    def covers(self, version: str) -> bool:
        """Whether ``version`` lies in the range; only an exact match where a version cannot be ordered."""
        if version in (self.first, self.last):
            return True
        if self.first == self.last:
            return False
        from packaging.version import InvalidVersion, Version  # only a true range pays for the import

        try:
            return Version(self.first) <= Version(version) <= Version(self.last)
        except InvalidVersion:
            return False


class Span(FileRecord, frozen=True, kw_only=True):
    """A closed range ``low..high``."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if not self.low <= self.high:
            raise ValueError(f"the range {self.low:g} to {self.high:g} is empty")

    def covers(self, value: float) -> bool:
        """Whether ``value`` lies in the range."""
        return self.low <= value <= self.high


class Domain(FileRecord, frozen=True, kw_only=True):
    """Where a coefficient was fitted; outside it a prediction is refused.

    ``concurrency`` [requests in flight] is None where the campaign does not state one. ``isl`` and ``osl`` are in
    tokens, ``pp`` in stages, ``tp`` and ``gpus`` list the values that occurred.
    """

    gpus: tuple[int, ...]
    tp: tuple[int, ...]
    pp: Span
    pp_levels: tuple[int, ...]
    concurrency: Span | None
    isl: Span
    osl: Span


class Estimate(FileRecord, frozen=True, kw_only=True):
    """Fitted parameters with all that is needed to judge them.

    ``covariance`` is row-major, one row a parameter. ``stderr``, ``covariance``, ``interval95`` and ``t_quantile`` are
    None where there are too few points for an interval: an unknown error is not a small one. ``t_quantile`` is the normal one
    where ``dof`` is 0 and only the stated errors are known. ``scatter`` is the relative standard deviation [1] of one new
    efficiency about the curve.
    """

    parameters: tuple[str, ...]
    values: tuple[float, ...]
    stderr: tuple[float, ...] | None
    covariance: tuple[tuple[float, ...], ...] | None
    interval95: tuple[Span, ...] | None
    t_quantile: float | None
    scatter: float | None
    dof: int
    n: int

    def __post_init__(self) -> None:
        k = len(self.parameters)
        sized: tuple[tuple[Any, ...] | None, ...] = (
            self.values,
            self.stderr,
            self.covariance,
            self.interval95,
        )
        rows = self.covariance or ()
        if k == 0 or any(len(x) != k for x in (*sized, *rows) if x is not None):
            raise ValueError(f"an estimate of {k} parameters has entries of another number")


class FormTest(FileRecord, frozen=True, kw_only=True):
    """One test of the form against the stated measurement error; it refuses where ``p_value`` is below ``level``.

    All tests of a coefficient share a family-wise level of 1 %, so ``level`` is smaller the more of them there are.
    """

    name: str
    statistic: float
    dof: int
    p_value: float
    level: float


class Deviation(FileRecord, frozen=True, kw_only=True):
    """How far one (tp, pp) lies off the curve through the other levels: relative ``size`` and its ``stderr`` [1].

    ``tp`` is None where several TP degrees share the level.
    """

    tp: int | None
    pp: int
    size: float
    stderr: float
    p_value: float


class Coefficient(FileRecord, frozen=True, kw_only=True):
    """One published coefficient. ``model`` is None for a backend pool, which serves models without their own."""

    system: str
    backend: str
    backend_versions: VersionRange
    model: str | None
    precision: str | None
    estimate: Estimate
    domain: Domain
    positivity_limit_pp: float | None
    form_test: FormTest | None
    detectors: tuple[FormTest, ...]  # every comparison that could refuse the form
    deviations: tuple[Deviation, ...]  # of each (tp, pp) from the curve through the others
    verdict: Verdict
    reasons: tuple[str, ...]
    warnings: tuple[str, ...]
    models: tuple[str, ...]  # whose points it was fitted on


class BalanceFactor(FileRecord, frozen=True, kw_only=True):
    """The balance factor of one configuration.

    ``concurrency`` is None where it holds for any or for an unstated one. ``status`` says how it came to be known:
    ``computed`` for this very configuration, ``assumed`` concurrency, or ``derived`` from another configuration.
    ``fitted`` marks the entries a coefficient was fitted with. ``fill`` is the fill factor [1] by the file's fill rule, None
    where that is ``none``.
    """

    system: str
    backend: str
    model: str
    tp: int
    pp: int
    isl: int
    osl: int
    concurrency: int | None
    factor: float
    fill: float | None
    status: Literal["computed", "assumed", "derived", "never measured"]
    fitted: bool

    def __post_init__(self) -> None:
        for name, value in (("balance", self.factor), ("fill", self.fill)):
            if value is not None and not 0 < value <= 1:
                raise ValueError(f"the {name} factor {value:g} is not in (0, 1]")


class BalanceSource(FileRecord, frozen=True, kw_only=True):
    """Where the per-op latencies behind the balance factors come from."""

    name: str
    version: str
    system: str
    note: str
    step: BalanceKind
    partition: str


class ContestRow(FileRecord, frozen=True, kw_only=True):
    """How one way to fit predicts points it has not seen: the forms that were tried, the winner and the losers.

    ``scope`` is ``model`` (each its own), ``partial`` (partially pooled) or ``backend`` (one for all); ``balance`` the balance
    it was fitted with; ``scheme`` what was left out. ``mape_pct`` [%] and ``mean_abs_error_pp`` [percentage points] are of
    efficiency, over ``predicted`` of ``points`` points; ``chi_square_2k`` is chi-square + 2 parameters, in sample.
    """

    backend: str
    form: str
    scope: Literal["model", "partial", "backend", "nested"]
    balance: BalanceKind
    scheme: str
    points: int
    predicted: int
    mape_pct: float | None
    mean_abs_error_pp: float | None
    max_abs_error_pp: float | None
    worst_point: str
    chi_square_2k: float | None
    winner: bool


class InputFile(FileRecord, frozen=True, kw_only=True):
    """One input, by the path inside its campaign folder and its content."""

    campaign: str
    path: str
    sha256: str


class Created(FileRecord, frozen=True, kw_only=True):
    """Who wrote the file and when; outside the digest."""

    at: str
    by: str
