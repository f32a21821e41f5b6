"""``campaign.toml``: what result files do not know, typed and checked."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from calib.errors import CampaignError
from calib.files import decode_problem
from calib.measure.columns import IDENTITY, LARGEST_COUNT
from calib.names import Matching
from calib.pipeline import PARTITION_RULES

CONFIG_NAME = "campaign.toml"
# Flags that change what PP costs; a difference between a PP run and its baseline is not the pipeline's doing.
ENGINE_FLAGS = (
    "max_num_seqs", "chunked_prefill", "async_scheduling", "executor", "cuda_graph_sizes", "dummy_weights",
)  # fmt: skip
EngineFlag = str | int | float | bool | tuple[int, ...]


class _Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    pass


class Stated(_Section, frozen=True, kw_only=True):
    """What ``campaign.toml`` may state about runs; everything optional."""

    model: str | None = None
    precision: str | None = None
    backend: str | None = None
    backend_version: str | None = None
    system: str | None = None
    gpus: int | None = None
    tp: int | None = None
    pp: int | None = None
    dp: int | None = None
    replicas: int | None = None
    isl: int | None = None
    osl: int | None = None
    concurrency: int | None = None
    tool: str | None = None
    tool_version: str | None = None

    def given(self) -> dict[str, object]:
        """The fields that are stated."""
        return {k: v for k in Stated.__struct_fields__ if (v := getattr(self, k)) is not None}


class StatedFolder(Stated, frozen=True, kw_only=True):
    """Result folders or files of any tool that calib reads. ``{tp}`` and the like stand for the numbers in their names."""

    folder: str
    engine: dict[str, EngineFlag] = {}


class StatedTable(_Section, frozen=True, kw_only=True):
    """A CSV table of figures. ``columns`` maps its names to those of the run table, ``ignore`` lists the rest."""

    file: str
    columns: dict[str, str] = {}
    ignore: tuple[str, ...] = ()


class Balance(_Section, frozen=True, kw_only=True):
    """Where the balance factors come from."""

    file: str
    partition: str = "even"
    assumed_concurrency: dict[str, int] = {}


class Disputed(_Section, frozen=True, kw_only=True):
    """A label about which sources disagree: what is used, what else was claimed, and by whom."""

    field: str
    used: str
    claimed: str
    by: str


class Published(_Section, frozen=True, kw_only=True):
    """Figures others published for the same campaign, shown beside calib's own.

    ``uncalibrated`` is what the uncalibrated model predicts for each configuration at its own optimum concurrency.
    """

    note: str
    decomposition: str | None = None
    coefficients: str | None = None
    accuracy: str | None = None
    uncalibrated: str | None = None


class CampaignConfig(_Section, frozen=True, kw_only=True):
    """``campaign.toml``.

    ``sweep`` is the lowest and the highest concurrency that the campaign claims, held against its runs; ``aliases`` maps the
    model names that tools write to the one name of the campaign, ``model_sizes_b`` a model to its size in billions of
    parameters, a covariate of the pool.
    """

    format_version: Literal[1]
    name: str
    title: str
    source: str
    matching: Matching
    sweep: tuple[int, int] | None = None
    defaults: Stated = Stated()
    aliases: dict[str, str] = {}
    model_sizes_b: dict[str, float] = {}
    engine: dict[str, EngineFlag] = {}
    tables: tuple[StatedTable, ...] = ()
    runs: tuple[StatedFolder, ...] = ()
    balance: Balance | None = None
    disputed: tuple[Disputed, ...] = ()
    published: Published | None = None
    limits: dict[str, float] = {}


def parse_config(data: bytes, *, file: str | Path) -> CampaignConfig:
    """``campaign.toml`` from its bytes.

    Raises
    ------
    CampaignError
        Not TOML, an unknown or missing field, a wrong type, a count below 1, an unknown backend.
    """
    try:
        config = msgspec.toml.decode(data, type=CampaignConfig)
    except msgspec.ValidationError as error:
        problem, path = decode_problem(error)
        raise CampaignError(
            f"does not follow the format ({problem})",
            file=file,
            field=path.removeprefix("$.") or None,
            remedy="correct it; the README lists every field",
        ) from None
    except (msgspec.DecodeError, ValueError, RecursionError) as error:  # ValueError: a number of 5,000 digits
        raise CampaignError(
            f"is not TOML ({decode_problem(error)[0]})", file=file, remedy="correct the syntax"
        ) from None
    for stated in (config.defaults, *config.runs):
        _check_stated(stated, file)
    if config.balance and config.balance.partition not in PARTITION_RULES:
        raise CampaignError(
            "is not a known partition rule", file=file, field="balance.partition", value=config.balance.partition,
            remedy=f"use one of {', '.join(PARTITION_RULES)}",
        )  # fmt: skip
    _check_texts(config, file)
    if not config.tables and not config.runs:
        raise CampaignError("names no results", file=file, remedy="add [[tables]] or [[runs]]")
    return config


def _check_stated(stated: Stated, file: str | Path) -> None:
    for name, value in stated.given().items():
        if isinstance(value, str) and (not value or value != value.strip()):
            raise CampaignError(
                "is empty or has spaces around it",
                file=file,
                field=name,
                value=value,
                remedy="correct it or leave it out",
            )
        if isinstance(value, int) and not 1 <= value <= LARGEST_COUNT:
            raise CampaignError(
                f"must be at least 1 and at most {LARGEST_COUNT}", file=file, field=name, value=value,
                remedy="correct it or leave it out",
            )  # fmt: skip


def _check_texts(config: CampaignConfig, file: str | Path) -> None:
    for flags in (config.engine, *(run.engine for run in config.runs)):
        if unknown := sorted(set(flags) - set(ENGINE_FLAGS)):
            raise CampaignError(
                "is not an engine flag that is compared", file=file, field=f"engine.{unknown[0]}",
                remedy=f"use one of {', '.join(ENGINE_FLAGS)}; degrees are fields of the run",
            )  # fmt: skip
    if empty := [k for k, v in config.aliases.items() if not v.strip() or not v.isprintable()]:
        raise CampaignError("is no name", file=file, field=f"aliases.{empty[0]}", remedy="name the model")
    for model, size in config.model_sizes_b.items():
        if not 0 < size < 1e6:
            raise CampaignError(
                "is not a size in billions of parameters", file=file, field=f"model_sizes_b.{model}", value=size,
                remedy="correct it or leave it out",
            )  # fmt: skip
    if not config.name.strip():
        raise CampaignError("is empty", file=file, field="name", remedy="name the campaign")
    for i, dispute in enumerate(config.disputed):
        if dispute.field not in IDENTITY:
            raise CampaignError(
                "is not a field of a run", file=file, field=f"disputed[{i}].field", value=dispute.field,
                remedy=f"use one of {', '.join(IDENTITY)}",
            )  # fmt: skip
    for model, concurrency in (config.balance.assumed_concurrency if config.balance else {}).items():
        if concurrency < 1:
            raise CampaignError(
                "must be at least 1", file=file, field=f"balance.assumed_concurrency.{model}", value=concurrency,
                remedy="state the requests in flight to assume",
            )  # fmt: skip
