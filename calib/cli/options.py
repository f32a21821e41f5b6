"""The options that several commands share, each written once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from calib.errors import UsageError

if TYPE_CHECKING:
    from calib.workflow import Options

    pass
    pass


CampaignArg = Annotated[
    str,
    typer.Argument(metavar="[CAMPAIGN]", help="A folder with a campaign.toml, or the name of a shipped campaign."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="JSON on stdout, in full precision.")]
StrictOption = Annotated[bool, typer.Option("--strict", help="Stop with exit 3 where anything would be set aside.")]
MatchingOption = Annotated[
    str | None,
    typer.Option(
        "--matching",
        help="'peak' (each side at its best concurrency) or 'matched'; the campaign's own if left out.",
    ),
]
FloorOption = Annotated[
    float, typer.Option("--error-floor", help="Relative error of a throughput below which none is believed.")
]
BalanceOption = Annotated[
    str,
    typer.Option("--balance", help="Balance of 'decode' steps, of the workload's 'mixed' steps, or 'none' (1)."),
]
FormOption = Annotated[
    str,
    typer.Option(
        "--form", help="Residual form: log2, power, hyperbolic, log2_concurrency, or free (one value a pp level)."
    ),
]
ReferenceOption = Annotated[
    str,
    typer.Option(
        "--reference",
        help="What the coefficients multiply: the measured TP=G/PP1 'baseline', or the 'model's own ideal throughput.",
    ),
]
PoolingOption = Annotated[
    str, typer.Option("--pooling", help="'none', or 'partial': each model drawn towards the others of its backend.")
]
DEFAULT = "h200-vllm-pp"


def run_options(
    matching: str | None,
    error_floor: float,
    strict: bool,
    balance: str,
    form: str = "log2",
    reference: str = "baseline",
    pooling: str = "none",
) -> Options:
    from calib.coefficients import FORMS
    from calib.workflow import Options

    allowed = {
        "--matching": (matching, (None, "peak", "matched")),
        "--balance": (balance, ("decode", "mixed", "none")),
        "--form": (form, tuple(FORMS)),
        "--reference": (reference, ("baseline", "model")),
        "--pooling": (pooling, ("none", "partial")),
    }
    for option, (value, known) in allowed.items():
        if value not in known:
            names = ", ".join(f"'{k}'" for k in known if k)
            raise UsageError(f"must be one of {names}", field=option, value=value)
    return Options(
        matching=matching, form=form, error_floor=error_floor, balance=balance, strict=strict,  # type: ignore[arg-type]
        reference=reference, pooling=pooling,  # type: ignore[arg-type]
    )  # fmt: skip


FileOption = Annotated[
    Path | None, typer.Option("--coefficients", help="A coefficient file; the newest released one that covers it if left out.")
]  # fmt: skip
RefusedOption = Annotated[
    list[str] | None, typer.Option("--allow-refused", help="Apply this model's coefficient although the data reject its form.")
]  # fmt: skip
ExtrapolateOption = Annotated[
    list[str] | None,
    typer.Option("--extrapolate", help="A field that may lie outside the domain, with a wider interval: 'all', or "
                 "backend_version, tp, pp, gpus, isl, osl, concurrency; may be repeated."),
]  # fmt: skip
NoCorrectionOption = Annotated[
    bool, typer.Option("--no-correction", help="Turn correction off: figures as they come in.")
]
EngineOption = Annotated[
    str | None,
    typer.Option("--engine", help="'aiconfigurator' (extra 'aic'): take ideal throughput and stages from it."),
]
ConfigOption = Annotated[
    Path | None, typer.Option("--model-config", help="Folder with the model's config.json, for --engine.")
]
PartitionOption = Annotated[
    str | None, typer.Option(help="For --engine: how layers are split, even or vllm; the backend's own if left out.")
]

RegistryOption = Annotated[
    Path | None,
    typer.Option("--registry", envvar="CALIB_REGISTRY", help="Folder of released files; to read, the shipped one if left out."),
]  # fmt: skip
