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

from calib.coefficients.records import (
    BalanceFactor,
    BalanceSource,
    Coefficient,
    ContestRow,
    Created,
    FileRecord,
    InputFile,
)
from calib.errors import CoefficientFileError
from calib.files import decode_problem, read_bytes, sha256_bytes, write_new
from calib.names import Matching, Reference

if TYPE_CHECKING:
    from pathlib import Path

FORMAT = "calib-coefficients"
FORMAT_VERSION = 1
FILE_NAME = "coefficients-v1.json"


Upgrade = Callable[[dict[str, Any]], dict[str, Any]]
# From a format version to the next one, over the plain document. Empty while there is only one version; a released file of
# an older version stays readable by adding its step here, and stays in the tests.
UPGRADES: Mapping[int, Upgrade] = {}


class _Header(msgspec.Struct):
    format: Any = None
    format_version: Any = None


class CoefficientSet(FileRecord, frozen=True, kw_only=True):
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
        from calib.coefficients.estimate_rows import ESTIMATED, domain_text, estimated_row
        from calib.notebook import LEFT, ROWS, counts_text, html_block, html_table  # a service shows nothing

        c = self
        rows = [
            (*estimated_row(x.model, x.backend, x.estimate, x), domain_text(x.domain)) for x in c.coefficients[:ROWS]
        ]
        return html_block(
            f"Coefficients {c.digest[:12]}",
            f"factor = {c.formula}; multiplies {c.quantity} [tok/s] of the {c.reference}, matching {c.matching}. "
            f"{len(c.coefficients)} coefficients: {counts_text(x.verdict for x in c.coefficients)}; "
            f"{len(c.balance_factors)} balance factors from {c.balance_source.name} {c.balance_source.version}.",
            html_table(ESTIMATED | {"why": LEFT, "holds for": LEFT}, rows, len(c.coefficients), "coefficients.coefficients"),
        )  # fmt: skip

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
