"""What can go wrong, by kind, each with the exit code the command line ends with.

Every error names the file, the field and the value that caused it and says what to do, in one sentence, so
that a nightly log line is enough to act on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Self

if TYPE_CHECKING:
    from pathlib import Path


EXIT_DONE = 0
EXIT_GATE = 1
EXIT_USAGE = 2
EXIT_DATA = 3
EXIT_INTERNAL = 4

LONGEST_PATH = 200  # characters of a path in a message


class CalibError(Exception):
    """Base of all errors that calib raises on purpose.

    Parameters
    ----------
    problem
        What is wrong, without a full stop.
    remedy
        What the reader should do about it, in the imperative, without a full stop.
    file, field, value
        Where it was found; left out of the sentence where they do not apply.
    """

    exit_code: ClassVar[int] = EXIT_DATA

    def __init__(
        self,
        problem: str,
        *,
        remedy: str | None = None,
        file: str | Path | None = None,
        field: str | None = None,
        value: object = None,
    ) -> None:
        self.problem = problem
        self.remedy = remedy
        self.file = None if file is None else printable(str(file))
        self.field = field
        self.value = value
        super().__init__(self._sentence())

    def at(self, file: str | Path) -> Self:
        """The same error with the file named, where a part that does not know the file raised it."""
        return type(self)(self.problem, remedy=self.remedy, file=file, field=self.field, value=self.value)

    def _sentence(self) -> str:
        where = self.file or ""
        if len(where) > LONGEST_PATH:
            where = "..." + where[-LONGEST_PATH:]
        if self.field is not None:
            where = f"{where}: field '{self.field}'" if where else f"field '{self.field}'"
            if self.value is not None:
                where += f" = {_clip(self.value)}"
        text = f"{where}: {self.problem}" if where else self.problem
        if self.remedy:
            text += f"; {self.remedy}"
        return " ".join(printable(text).split())


def printable(text: str) -> str:
    """Text that is safe to print: control characters and lone surrogates as escapes, so that a name cannot steer a terminal."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape", "surrogatepass").decode() for c in text
    )


def _clip(value: object, limit: int = 80) -> str:
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 3] + "..."


class UsageError(CalibError):
    """The command or the call was put wrongly."""

    exit_code = EXIT_USAGE


class MissingExtraError(UsageError):
    """An optional dependency is needed and not installed."""


class GateFailedError(CalibError):
    """The job ran, and a gate that the caller set was not met."""

    exit_code = EXIT_GATE


class CampaignError(CalibError):
    """``campaign.toml``, or a file it names, cannot be used."""


class ContradictionError(CampaignError):
    """Two sources state different values for one field."""


class UnknownTopologyError(CampaignError):
    """tp, pp, dp, GPU count, system or backend of a run is not stated anywhere."""


class SetAsideError(CampaignError):
    """``--strict``: something would have been set aside."""


class NothingToFitError(CalibError):
    """Nothing that could be fitted is left."""


class BreakdownError(CalibError):
    """A per-op latency breakdown, or the layout built from it, cannot be used."""


class CoefficientFileError(CalibError):
    """A coefficient file is unreadable, invalid, altered, or would be overwritten."""


class RegistryError(CalibError):
    """A registry of released files is torn, altered, or asked for what it does not hold."""


class OutputError(CalibError):
    """A result could not be written; nothing that existed was touched."""


class StoreError(CalibError):
    """The store cannot be read. Raw files stay the truth: it can be built again."""


class NightlyError(CalibError):
    """The nightly job's configuration, or a record of a night, cannot be used."""


class ReplayPipelineError(CalibError):
    """Engine replay was asked to run more than one pipeline stage."""


class PredictionError(CalibError):
    """A prediction was refused."""


class WithdrawnError(PredictionError):
    """The coefficient file was withdrawn."""


class NothingReleasedError(PredictionError):
    """No released file covers the question."""


class PointError(PredictionError):
    """An operating point is incomplete or not a possible one."""


class MissingConcurrencyError(PointError):
    """The coefficients of one file depend on the concurrency, and none is stated; another file's may not."""


class UnknownKeyError(PredictionError):
    """No coefficient covers this model, backend, version or system."""


class OutsideDomainError(PredictionError):
    """The point lies outside what the coefficient was fitted on."""


class RefusedCoefficientError(PredictionError):
    """The coefficient exists, and the data reject its form."""


class ReferenceMismatchError(PredictionError):
    """A coefficient would multiply a quantity it was not fitted for."""


class AlreadyAppliedError(PredictionError):
    """The input has been corrected before."""


class MissingBalanceError(PredictionError):
    """No balance factor is known for the point."""
