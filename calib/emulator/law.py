"""The truth of an emulated engine: what scheduling leaves of the throughput, by pp and load.

Each law gives the residual [1] that calib fits: throughput over that of TP=G/PP=1, divided by the balance factor. The engine
turns it into time. On every visit of a microbatch to a stage the scheduler takes

    overhead = cycle * max(0, (1 - links)/residual - 1)       cycle = max_i(t_i + hop_i) of that microbatch [ms]

so that a full pipe loses to scheduling and to its links together what the law says. ``links`` is the share of the step that
transfers take: the balance factor counts them among the work that is to be shared out, and a TP=G engine has none, so that a
pipe without any overhead has the residual ``1 - links``. A *constant* cost per microbatch and stage would not do: it gives the
hyperbolic form, ``1/(1 + k*(pp-1))``, since the cycle shrinks with pp and the cost does not.
"""

from __future__ import annotations

import math

import msgspec

from calib.errors import UsageError


class _Law(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="law"):
    """``load`` is the number of requests in the engine, waiting ones left out."""


class Log2Law(_Law, frozen=True, tag="log2"):
    """``1 - (s + u*log2(load))*log2(pp)``: the published form, with an overhead that grows with load where u > 0."""

    s: float
    u: float = 0.0

    @property
    def words(self) -> str:
        """The law for a reader."""
        return f"1 - {self.s:g}*log2(pp)" if not self.u else f"1 - ({self.s:g} + {self.u:g}*log2(C))*log2(pp)"

    def residual(self, pp: int, load: int) -> float:
        """The residual [1] at ``pp`` stages and ``load`` requests."""
        return 1.0 - (self.s + self.u * math.log2(max(1, load))) * math.log2(pp)


class HyperbolicLaw(_Law, frozen=True, tag="hyperbolic"):
    """``1/(1 + k*(pp-1))``: a constant cost per microbatch and stage, k of the cycle."""

    k: float

    @property
    def words(self) -> str:
        """The law for a reader."""
        return f"1/(1 + {self.k:g}*(pp-1))"

    def residual(self, pp: int, load: int) -> float:  # noqa: ARG002
        """The residual [1] at ``pp`` stages and ``load`` requests."""
        return 1.0 / (1.0 + self.k * (pp - 1))


class PowerLaw(_Law, frozen=True, tag="power"):
    """``pp**-a``."""

    a: float

    @property
    def words(self) -> str:
        """The law for a reader."""
        return f"pp**-{self.a:g}"

    def residual(self, pp: int, load: int) -> float:  # noqa: ARG002
        """The residual [1] at ``pp`` stages and ``load`` requests."""
        return float(pp**-self.a)


class Levels(_Law, frozen=True, tag="levels"):
    """A residual stated for every pp, for a cliff at one of them, say."""

    at: dict[int, float]

    @property
    def words(self) -> str:
        """The law for a reader."""
        return ", ".join(f"{value:g} at PP={pp}" for pp, value in self.at.items())

    def residual(self, pp: int, load: int) -> float:  # noqa: ARG002
        """The residual [1] at ``pp`` stages and ``load`` requests."""
        return 1.0 if pp == 1 else self.at[pp]


class FromLoad(_Law, frozen=True, tag="from_load"):
    """One law ``below`` a load of ``requests`` and another from there on: a saturation that sets in."""

    requests: int
    below: Law
    above: Law

    @property
    def words(self) -> str:
        """The law for a reader."""
        return f"{self.below.words} below {self.requests} requests, {self.above.words} from there on"

    def residual(self, pp: int, load: int) -> float:
        """The residual [1] at ``pp`` stages and ``load`` requests."""
        return (self.above if load >= self.requests else self.below).residual(pp, load)


Law = Log2Law | HyperbolicLaw | PowerLaw | Levels | FromLoad


def checked_residual(law: Law, pp: int, load: int) -> float:
    """The residual [1] of a law, exactly 1 at pp = 1.

    Raises
    ------
    UsageError
        It is not in (0, 1], or the law states none for this pp: no engine runs like that.
    """
    try:
        value = 1.0 if pp == 1 else law.residual(pp, load)
    except KeyError:
        raise UsageError("has no residual in the law", field="pp", value=pp, remedy="state one") from None
    if not 0.0 < value <= 1.0:
        raise UsageError(
            f"gives a residual of {value:.3g} at pp = {pp} and {load} requests, which is not in (0, 1]",
            field="law", value=type(law).__name__, remedy="make the overhead smaller",
        )  # fmt: skip
    return value
