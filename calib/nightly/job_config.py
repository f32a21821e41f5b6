"""The nightly job's configuration: one TOML file, typed and checked."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import msgspec

from calib.coefficients import FORMS
from calib.errors import NightlyError, UsageError
from calib.files import not_valid, read_bytes
from calib.fitting import SMALLEST_FLOOR
from calib.names import BalanceKind, Matching, Reference
from calib.nightly.alarms.monitor import Limits
from calib.workflow import Options


class _Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    pass


class FitSection(_Section, frozen=True, kw_only=True):
    """``[fit]``: how campaigns are fitted, as the options of ``calib run``."""

    matching: Matching | None = None
    form: str = "log2"
    error_floor: float = 0.02
    balance: BalanceKind = "decode"
    reference: Reference = "baseline"
    pooling: Literal["none", "partial"] = "none"

    def options(self) -> Options:
        """As `calib.workflow` takes them."""
        return Options(
            matching=self.matching, form=self.form, error_floor=self.error_floor, balance=self.balance,
            reference=self.reference, pooling=self.pooling,
        )  # fmt: skip


class Config(_Section, frozen=True, kw_only=True):
    """A nightly configuration. Paths are relative to its file; ``results`` may be URLs that fsspec knows."""

    format_version: Literal[1] = 1
    name: str
    results: tuple[str, ...]
    store: str = "store"
    out: str = "nights"
    registry: str | None = None
    figures: bool = True
    fit: FitSection = FitSection()
    alarms: Limits = Limits()


SETTINGS = ("fit", "alarms")  # the parts that another night follows from


def read_config(path: Path) -> Config:
    """Read and check a configuration.

    Raises
    ------
    NightlyError
        Unreadable, not TOML, an unknown field, a value that cannot be.
    """
    data = read_bytes(path, kind=NightlyError, limit=2**20)
    try:
        config = msgspec.toml.decode(data, type=Config)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
        remedy = "correct it; the README's section 'Every night' shows one"
        raise not_valid(error, "a valid nightly configuration", kind=NightlyError, file=path, remedy=remedy) from None
    _check(config, path)
    return config


def _check(config: Config, path: Path) -> None:
    def wrong(field: str, value: object, problem: str) -> NightlyError:
        return NightlyError(problem, file=path, field=field, value=value, remedy="correct it")

    if not config.results:
        raise wrong("results", [], "names no folder of results")
    if len(set(config.results)) < len(config.results):
        raise wrong("results", list(config.results), "names a folder twice")
    if config.fit.form not in FORMS:
        raise wrong("fit.form", config.fit.form, f"is not one of {', '.join(FORMS)}")
    if not SMALLEST_FLOOR <= config.fit.error_floor < 1:
        raise wrong("fit.error_floor", config.fit.error_floor, f"is not between {SMALLEST_FLOOR:g} and 1")
    for name in Limits.__struct_fields__:
        value = getattr(config.alarms, name)
        if not value >= 0 or (name in _POSITIVE and value == 0):
            raise wrong(f"alarms.{name}", value, "is not a positive number")
        if name == "changepoint_nights" and value < FEWEST:
            raise wrong(f"alarms.{name}", value, f"is below {FEWEST}, and fewer nights cannot show a change")
        if value >= 1e6:
            raise wrong(f"alarms.{name}", value, "is out of range")


def check_folders(config: Config, base: Path, path: Path) -> None:
    """Raise where folders are one, or lie inside one another: what one of them may clear, another would lose.

    Raises
    ------
    NightlyError
        With both.
    """
    named = [("store", config.store), ("out", config.out)]
    named += [("results", s) for s in config.results if "://" not in s]
    seen: list[tuple[str, str, Path]] = []
    for field, value in named:
        if not value.strip() or "\0" in value:
            raise NightlyError("is no name of a folder", file=path, field=field, value=value, remedy="correct it")
        folder = Path(os.path.realpath(base / value))
        for other, text, there in seen:
            if folder == there or there in folder.parents or folder in there.parents:
                raise NightlyError(
                    f"overlaps {other} = {text!r}",
                    file=path,
                    field=field,
                    value=value,
                    remedy="give each a folder of its own",
                )
        seen.append((field, value, folder))
    if config.registry is not None:
        registry = base / config.registry
        if "\0" in config.registry or (registry.exists() and not registry.is_dir()):
            raise NightlyError(
                "is no folder", file=path, field="registry", value=config.registry, remedy="name the registry's folder"
            )


_POSITIVE = ("standard_errors", "family_nights", "coverage_nights")
FEWEST = 4  # nights that can show a change point: two levels of two


def default_config() -> Path:
    """The file that ``calib ack`` and ``calib store`` look for in the current folder.

    Raises
    ------
    UsageError
        It is not there.
    """
    path = Path("nightly.toml")
    if not path.is_file():
        raise UsageError("there is no nightly.toml here", remedy="give the configuration with --config FILE")
    return path
