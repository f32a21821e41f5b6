"""A campaign by its name or folder, read and screened; the campaigns that come with calib."""

from __future__ import annotations

import contextlib
from pathlib import Path

from calib.errors import CampaignError
from calib.files import PACKAGE
from calib.measure.campaign.load import Campaign, read_campaign
from calib.measure.screening.screen import screen
from calib.pipeline import Breakdowns

DEFAULT_CAMPAIGN = "h200-vllm-pp"


def shipped_campaigns() -> dict[str, Path]:
    """The campaigns that come with calib, by name: from the wheel, or from the repository it is installed from."""
    package = Path(PACKAGE)
    for root in (package / "_measurements", package.parent / "measurements"):
        if root.is_dir():
            return {p.name: p for p in sorted(root.iterdir()) if (p / "campaign.toml").is_file()}
    return {}


def find_campaign(name_or_folder: str | Path) -> Path:
    """A folder that exists, else the shipped campaign of that name.

    Raises
    ------
    CampaignError
        Neither is there.
    """
    name, shipped = str(name_or_folder), shipped_campaigns()
    with contextlib.suppress(OSError, ValueError):  # a name too long, or with a NUL, is no folder
        if name and Path(name).is_dir():
            return Path(name)
    if name in shipped:
        return shipped[name]
    raise CampaignError(
        "is neither a folder nor a shipped campaign",
        file=name or "''",
        remedy=f"give a folder, or one of {', '.join(shipped)}",
    )


def load_campaign(
    name_or_folder: str | Path = DEFAULT_CAMPAIGN, *, breakdowns: bool = True, strict: bool = False
) -> Campaign:
    """Read and screen a campaign: a folder with a ``campaign.toml``, or the name of a shipped one.

    Without its breakdown file where ``breakdowns`` is False, as long as there is none. ``strict`` turns warnings into
    rejections.

    Raises
    ------
    CampaignError, ContradictionError, UnknownTopologyError, BreakdownError
        See `calib.measure.campaign.load.read_campaign`.
    """
    return screen(read_campaign(find_campaign(name_or_folder), breakdowns=breakdowns), strict=strict)


def shipped_breakdowns() -> list[Breakdowns]:
    """The breakdowns of the shipped campaigns, for configurations that need no computing."""
    loaded = (read_campaign(folder).breakdowns for folder in shipped_campaigns().values())
    return [b for b in loaded if b is not None]
