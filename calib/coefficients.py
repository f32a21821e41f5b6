"""The coefficient file: what a fit publishes and a prediction model loads.

One JSON document, described by ``calib/data/coefficients-v1.schema.json``. It is strict (an unknown field, a NaN or a
wrong digest is an error), immutable (never overwritten) and self-contained (it carries the balance factors, so that a
consumer needs neither the measurements nor a latency model).

The digest is the SHA-256 of the document without ``digest`` and ``created``: UTF-8 JSON, keys sorted, no white space,
floats in their shortest form that reads back to the same double. The same inputs give the same digest at any time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from calib.errors import CoefficientFileError
from calib.names import BalanceKind, Matching, Reference, Verdict
from calib.provenance import decode_problem, read_bytes, sha256_bytes, write_new

if TYPE_CHECKING:
    from pathlib import Path

FORMAT = "calib-coefficients"
FORMAT_VERSION = 1
FILE_NAME = "coefficients-v1.json"


Upgrade = Callable[[dict[str, Any]], dict[str, Any]]
# From a format version to the next one, over the plain document. Empty while there is only one version; a released file of
# an older version stays readable by adding its step here, and stays in the tests.
UPGRADES: Mapping[int, Upgrade] = {}


class _Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, gc=False):
    """Strict, immutable, compared by value; holds no cycles, so that a large file costs no garbage collection."""


class _Header(msgspec.Struct):
    format: Any = None
    format_version: Any = None


class VersionRange(_Record, frozen=True, kw_only=True):
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


class Span(_Record, frozen=True, kw_only=True):
    """A closed range ``low..high``."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if not self.low <= self.high:
            raise ValueError(f"the range {self.low:g} to {self.high:g} is empty")

    def covers(self, value: float) -> bool:
        """Whether ``value`` lies in the range."""
        return self.low <= value <= self.high


class Domain(_Record, frozen=True, kw_only=True):
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


class Estimate(_Record, frozen=True, kw_only=True):
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


class FormTest(_Record, frozen=True, kw_only=True):
    """One test of the form against the stated measurement error; it refuses where ``p_value`` is below ``level``.

    All tests of a coefficient share a family-wise level of 1 %, so ``level`` is smaller the more of them there are.
    """

    name: str
    statistic: float
    dof: int
    p_value: float
    level: float


class Deviation(_Record, frozen=True, kw_only=True):
    """How far one (tp, pp) lies off the curve through the other levels: relative ``size`` and its ``stderr`` [1].

    ``tp`` is None where several TP degrees share the level.
    """

    tp: int | None
    pp: int
    size: float
    stderr: float
    p_value: float


class Coefficient(_Record, frozen=True, kw_only=True):
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


class BalanceFactor(_Record, frozen=True, kw_only=True):
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


class BalanceSource(_Record, frozen=True, kw_only=True):
    """Where the per-op latencies behind the balance factors come from."""

    name: str
    version: str
    system: str
    note: str
    step: BalanceKind
    partition: str


class ContestRow(_Record, frozen=True, kw_only=True):
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


class InputFile(_Record, frozen=True, kw_only=True):
    """One input, by the path inside its campaign folder and its content."""

    campaign: str
    path: str
    sha256: str


class Created(_Record, frozen=True, kw_only=True):
    """Who wrote the file and when; outside the digest."""

    at: str
    by: str


class CoefficientSet(_Record, frozen=True, kw_only=True):
    """A whole coefficient file.

    ``quantity`` is what the factor multiplies: for ``reference = "baseline"`` the output throughput [tok/s] measured at
    TP=G, PP=1 on the same G GPUs, for ``reference = "model"`` the model's own ideal-PP throughput [tok/s] at (tp, pp) and
    microbatch C/pp. ``contest`` is how this form and the others predict points they have not seen.
    """

    format: Literal["calib-coefficients"]
    format_version: Literal[1]
    digest: str
    created: Created
    calib_version: str
    reference: Reference
    quantity: Literal["output_tokens_per_s"]
    matching: Matching
    form: str
    formula: str
    fill_rule: Literal["none", "linear", "occupancy"]
    error_floor: float
    balance_source: BalanceSource
    balance_factors: tuple[BalanceFactor, ...]
    coefficients: tuple[Coefficient, ...]
    pooling: Literal["none", "partial"]
    contest: tuple[ContestRow, ...]
    fallback: tuple[Literal["model", "backend", "refuse"], ...]
    inputs: tuple[InputFile, ...]
    supersedes: str | None

    def __post_init__(self) -> None:
        if not 0 < self.error_floor < 1:
            raise ValueError(f"the error floor {self.error_floor:g} is not in (0, 1)")
        seen: set[tuple[object, ...]] = set()
        for c in self.coefficients:
            key = (c.system, c.backend, c.backend_versions.first, c.backend_versions.last, c.model, c.precision)
            if key in seen:
                raise ValueError(f"two coefficients have the key {c.system}, {c.backend}, {c.model}")
            seen.add(key)

    def __repr__(self) -> str:
        return f"<CoefficientSet {self.digest[:12]}: {len(self.coefficients)} coefficients, {self.formula}>"

    def _repr_html_(self) -> str:
        from calib.display import coefficients_html  # a service that predicts shows nothing

        return coefficients_html(self)

    def content_digest(self) -> str:
        """The digest that the content has, whatever ``digest`` says."""
        return _digest({name: getattr(self, name) for name in self.__struct_fields__})

    def sealed(self) -> CoefficientSet:
        """The same content with its digest filled in.

        Raises
        ------
        CoefficientFileError
            A number is not finite.
        """
        _require_finite(msgspec.to_builtins(self), "$", None)
        return msgspec.structs.replace(self, digest=self.content_digest())

    def to_json(self) -> bytes:
        """The file's bytes: UTF-8, indented, ending in a newline."""
        return msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n"

    @classmethod
    def from_json(
        cls, data: bytes, *, file: str | Path | None = None, upgrades: Mapping[int, Upgrade] = UPGRADES
    ) -> CoefficientSet:
        """Parse and check a document; one of an older format version is upgraded step by step, its digest kept.

        Raises
        ------
        CoefficientFileError
            Not JSON, an unknown or missing field, a wrong type or version, a non-finite number, a wrong digest.
        """
        try:
            loaded = msgspec.json.decode(data, type=cls)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            # Only now, since it costs a second pass: another format, or another version?
            version = _check_header(data, file, upgrades)
            if version != FORMAT_VERSION:
                return _upgraded(data, version, upgrades, file)
            raise _invalid(error, file) from None
        _require_digest(loaded.digest, loaded.content_digest(), file)
        return loaded

    @classmethod
    def load(cls, path: str | Path) -> CoefficientSet:
        """Read and check the file at ``path``.

        Raises
        ------
        CoefficientFileError
            As `from_json`, or the file cannot be read.
        """
        return cls.from_json(read_bytes(path, kind=CoefficientFileError), file=path)

    def save(self, path: str | Path) -> bool:
        """Write the sealed file; return False where the same content is there already.

        The file appears whole or not at all, and an existing one is never replaced.

        Raises
        ------
        CoefficientFileError
            The digest is not that of the content, or another file has the name.
        OutputError
            The folder cannot be written.
        """
        from pathlib import Path

        path = Path(path)
        if self.digest != self.content_digest():
            raise CoefficientFileError("is not that of the content", field="digest", remedy="call sealed() first")
        if write_new(path, self.to_json()):
            return True
        if CoefficientSet.load(path).digest == self.digest:
            return False
        raise CoefficientFileError(
            "exists with other content, and a coefficient file is never overwritten",
            file=path,
            remedy="choose another name or folder",
        )


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a coefficient file (draft 2020-12), generated from the types above."""
    schema = msgspec.json.schema(CoefficientSet)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": FORMAT, **schema}


def _digest(content: dict[str, Any]) -> str:
    """SHA-256 of a document's content, without ``digest`` and ``created``."""
    counted = {name: value for name, value in content.items() if name not in ("digest", "created")}
    return sha256_bytes(msgspec.json.encode(counted, order="sorted"))


def _require_digest(stated: object, actual: str, file: str | Path | None) -> None:
    if stated != actual:
        raise CoefficientFileError(
            f"does not match the content, whose digest is {actual}: the file was altered",
            file=file,
            field="digest",
            value=stated,
            remedy="restore the file or write it again with `calib run`",
        )


def _upgraded(data: bytes, version: int, upgrades: Mapping[int, Upgrade], file: str | Path | None) -> CoefficientSet:
    """A document of an older version as one of today's; its digest is checked first, and stays its name."""
    content = msgspec.json.decode(data)
    _require_digest(content.get("digest"), _digest(content), file)
    while version < FORMAT_VERSION:
        content = upgrades[version](content)
        version += 1
    try:
        return msgspec.convert(content, CoefficientSet)
    except msgspec.ValidationError as error:
        raise _invalid(error, file) from None


def _invalid(error: Exception, file: str | Path | None) -> CoefficientFileError:
    problem, path = decode_problem(error)
    return CoefficientFileError(
        f"is not a valid coefficient file ({problem})",
        file=file,
        field=path or "$",
        remedy="write it again with `calib run`; coefficient files are not edited by hand",
    )


def _check_header(data: bytes, file: str | Path | None, upgrades: Mapping[int, Upgrade]) -> int:
    """The format version; says 'another format' or 'a newer version' plainly, before the types are looked at."""
    try:
        header = msgspec.json.decode(data, type=_Header)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CoefficientFileError(
            f"is not a JSON document of the coefficient format ({decode_problem(error)[0]})",
            file=file,
            remedy=f"give a {FILE_NAME} written by `calib run`",
        ) from None
    version = header.format_version
    known = (
        isinstance(version, int)
        and not isinstance(version, bool)
        and (version == FORMAT_VERSION or version in upgrades)
    )
    for field, seen, wanted, good in (
        ("format", header.format, FORMAT, header.format == FORMAT),
        ("format_version", version, FORMAT_VERSION, known),
    ):
        if not good:
            raise CoefficientFileError(
                f"must be {wanted!r} for this version of calib",
                file=file,
                field=field,
                value=seen,
                remedy=f"give a {FILE_NAME} written by `calib run`, or install the calib version that wrote it",
            )
    return int(version)


def _require_finite(value: Any, where: str, file: str | Path | None) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise CoefficientFileError("is not a finite number", file=file, field=where, value=value)
    if isinstance(value, dict):
        for key, item in value.items():
            _require_finite(item, f"{where}.{key}", file)
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            _require_finite(item, f"{where}[{index}]", file)
