"""The engine-replay boundary.

Engine replay, the event-driven kind of predictor, has neither a scheduler nor a transfer model for pipeline stages. A
requested pp would change its timing inputs and its KV capacity while it still runs one stage. So any pp other than 1 is
rejected, before KV capacity is estimated, at two places: `preflight` on the public prediction configuration, and
`materialize_role`, the one boundary through which every role comes into being. Performance models that are called on their
own keep accepting pp.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from calib.errors import ReplayPipelineError, UsageError

ROLES = ("aggregated", "prefill", "decode")
# Deployment parallelism names pp once for all roles or once a role.
_DEPLOYMENT = {"aggregated": ("pp",), "prefill": ("pp", "prefill_pp"), "decode": ("pp", "decode_pp")}

CapacityEstimator = Callable[["RoleConfig"], int]


@dataclass(frozen=True)
class RoleConfig:
    """All from which the pp of a role can come.

    Attributes
    ----------
    role
        ``aggregated``, ``prefill`` or ``decode``.
    parallelism
        Deployment parallelism: ``pp``, ``prefill_pp``, ``decode_pp`` beside tp and dp.
    arguments
        Flat legacy arguments, ``aic_pp_size`` among them, which may also stand nested under ``rank``.
    timing
        The canonical timing configuration: ``pp``, or its alias ``pp_size``.
    """

    role: str
    parallelism: Mapping[str, Any]
    arguments: Mapping[str, Any]
    timing: Mapping[str, Any]


@dataclass(frozen=True)
class Role:
    """A role that replay can run: one stage, and its KV capacity [tokens]."""

    config: RoleConfig
    kv_tokens: int


def preflight(prediction: Mapping[str, Any]) -> None:
    """Check the public prediction configuration, before its compilation estimates any capacity.

    Raises
    ------
    ReplayPipelineError
        ``workers.<role>.parallelism.pipeline`` is stated and is not 1.
    UsageError
        A section is not a table.
    """
    workers = _section(prediction, "workers", "workers")
    for role in sorted(workers):
        where = f"workers.{role}"
        parallelism = _section(_section(workers, role, where), "parallelism", f"{where}.parallelism")
        if "pipeline" in parallelism:
            _require_one(role, f"{where}.parallelism.pipeline", parallelism["pipeline"])


def materialize_role(config: RoleConfig, estimate_capacity: CapacityEstimator) -> Role:
    """Make a role, after every source of its pp was checked; only then is KV capacity estimated.

    Raises
    ------
    ReplayPipelineError
        A source states a pp other than 1.
    UsageError
        No such role, or a section is not a table.
    """
    if config.role not in ROLES:
        raise UsageError("is not a role", field="role", value=config.role, remedy=f"use one of {', '.join(ROLES)}")
    for source, value in pp_sources(config):
        _require_one(config.role, source, value)
    return Role(config, estimate_capacity(config))


def pp_sources(config: RoleConfig) -> Iterator[tuple[str, Any]]:
    """Every place that states a pp for the role, with what it states."""
    for name in _DEPLOYMENT[config.role]:
        if name in config.parallelism:
            yield f"parallelism.{name}", config.parallelism[name]
    if "aic_pp_size" in config.arguments:
        yield "aic_pp_size", config.arguments["aic_pp_size"]
    rank = _section(config.arguments, "rank", "rank")
    if "aic_pp_size" in rank:
        yield "rank.aic_pp_size", rank["aic_pp_size"]
    for name in ("pp", "pp_size"):
        if name in config.timing:
            yield f"timing.{name}", config.timing[name]


def _require_one(role: str, source: str, value: Any) -> None:
    if type(value) is not int or value != 1:  # "1", 1.0 and True are no statement of a degree either
        raise ReplayPipelineError(
            f"asks for pipeline parallelism in the {role} role, and engine replay runs one stage",
            field=source,
            value=value,
            remedy="set it to 1, or predict pp with the calibrated model (calib predict)",
        )


def _section(table: Mapping[str, Any], name: str, where: str) -> Mapping[str, Any]:
    value = table.get(name, {})
    if not isinstance(value, Mapping):
        raise UsageError("must be a table", field=where, value=value)
    return value
