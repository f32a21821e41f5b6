"""Which steps a campaign needs, and all of them from one provider."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import pandas as pd

from calib.errors import CampaignError
from calib.measure.campaign.load import Campaign
from calib.measure.run_table import records
from calib.pipeline import BreakdownProvider, Breakdowns, StepKind, StepRequest


def compute_breakdowns(
    campaign: Campaign,
    provider: BreakdownProvider,
    *,
    configs: Mapping[str, str] | None = None,
    kinds: tuple[StepKind, ...] = ("decode", "mixed"),
    progress: Callable[[Iterable[StepRequest], int], Iterable[StepRequest]] | None = None,
) -> Breakdowns:
    """The steps of every configuration of a campaign and of its baselines, from ``provider``.

    Parameters
    ----------
    configs
        Model -> folder with its Hugging Face ``config.json``, for models the provider does not know.
    kinds
        Which steps; ``mixed`` ones are needed for the mixed balance and for `calib baseline`.
    progress
        Wraps the loop, e.g. with a progress bar.

    Raises
    ------
    BreakdownError
        The provider does not cover a configuration.
    CampaignError
        A run states no concurrency and ``[balance]`` assumes none for its model.
    """
    requests = [r for kind in kinds for r in _step_requests(campaign, configs or {}, kind)]
    steps = [provider.step(r) for r in (progress(requests, len(requests)) if progress else requests)]
    return Breakdowns(format="calib-breakdowns", format_version=1, provider=provider.provider, steps=tuple(steps))


def _step_requests(campaign: Campaign, configs: Mapping[str, str], kind: StepKind) -> list[StepRequest]:
    assumed = campaign.config.balance.assumed_concurrency if campaign.config.balance else {}
    columns = ["model", "backend", "system", "tp", "pp", "isl", "osl", "concurrency"]
    runs = campaign.runs[campaign.runs["dp"] == 1]
    baselines = runs.assign(tp=runs["gpus"], pp=1)  # published ratios have one too, though no row of its own
    rows = pd.concat([runs, baselines])[columns].drop_duplicates().sort_values(columns, kind="stable")
    requests = []
    for row in records(rows):
        stated = None if pd.isna(row["concurrency"]) else int(row["concurrency"])
        concurrency = stated or assumed.get(row["model"])
        if concurrency is None:
            raise CampaignError(
                f"{row['model']} states no concurrency",
                file=campaign.folder / "campaign.toml",
                field="balance.assumed_concurrency",
                remedy="state the concurrency to assume for this model",
            )
        requests.append(
            StepRequest(
                model=row["model"],
                backend=row["backend"],
                system=row["system"],
                tp=int(row["tp"]),
                pp=int(row["pp"]),
                isl=int(row["isl"]),
                osl=int(row["osl"]),
                concurrency=concurrency,
                status="computed" if stated else "assumed",
                config=configs.get(row["model"]),
                kind=kind,
            )
        )
    return requests
