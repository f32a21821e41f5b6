"""What was measured: benchmark files to a run table that can be trusted.

`readers` know the files of each tool, `campaign` what campaign.toml says and how a run gets its topology, `screening` the rules
that warn about a run or set it aside, `draft` writes a campaign.toml. Imports `coefficients` and `pipeline` and the root.
Read first: `campaign.load` (a folder to a Campaign), then `screening.run_rules`.
"""

from typing import TYPE_CHECKING

from calib._exports import face

if TYPE_CHECKING:
    from calib.measure.campaign.config import (
        CONFIG_NAME as CONFIG_NAME,
        CampaignConfig as CampaignConfig,
        EngineFlag as EngineFlag,
        parse_config as parse_config,
    )
    from calib.measure.campaign.folder import (
        covered_units as covered_units,
        inside as inside,
        read_all as read_all,
        uncovered as uncovered,
    )
    from calib.measure.campaign.load import Campaign as Campaign, read_campaign as read_campaign
    from calib.measure.campaign.published import published_files as published_files, read_published as read_published
    from calib.measure.campaign.reading import (
        ReadUnits as ReadUnits,
        Runs as Runs,
        companions as companions,
        read_unit as read_unit,
        read_units as read_units,
    )
    from calib.measure.campaign.topology import identify as identify, where_is as where_is
    from calib.measure.columns import (
        COUNTS as COUNTS,
        MEASURES as MEASURES,
        RUN_COLUMNS as RUN_COLUMNS,
        SERIES as SERIES,
    )
    from calib.measure.draft.infer import (
        Draft as Draft,
        draft_campaign as draft_campaign,
        init_campaign as init_campaign,
    )
    from calib.measure.findings import Finding as Finding, describe_run as describe_run
    from calib.measure.needed_steps import compute_breakdowns as compute_breakdowns
    from calib.measure.readers.hints import Hint as Hint
    from calib.measure.readers.read_run import ReadRun as ReadRun, UnreadableRun as UnreadableRun
    from calib.measure.run_table import natural as natural, natural_key as natural_key, records as records
    from calib.measure.screening.catalogue import RULES as RULES
    from calib.measure.screening.screen import screen as screen, usable as usable
    from calib.measure.shipped import (
        DEFAULT_CAMPAIGN as DEFAULT_CAMPAIGN,
        find_campaign as find_campaign,
        load_campaign as load_campaign,
        shipped_breakdowns as shipped_breakdowns,
        shipped_campaigns as shipped_campaigns,
    )
else:
    __getattr__, __dir__ = face(
        __name__,
        {
            "campaign.config": "CONFIG_NAME CampaignConfig EngineFlag parse_config",
            "campaign.folder": "covered_units inside read_all uncovered",
            "campaign.load": "Campaign read_campaign",
            "campaign.published": "published_files read_published",
            "campaign.reading": "ReadUnits Runs companions read_unit read_units",
            "campaign.topology": "identify where_is",
            "draft.infer": "Draft draft_campaign init_campaign",
            "findings": "Finding describe_run",
            "needed_steps": "compute_breakdowns",
            "readers.hints": "Hint",
            "readers.read_run": "ReadRun UnreadableRun",
            "columns": "COUNTS MEASURES RUN_COLUMNS SERIES",
            "run_table": "natural natural_key records",
            "screening.catalogue": "RULES",
            "screening.screen": "screen usable",
            "shipped": "DEFAULT_CAMPAIGN find_campaign load_campaign shipped_breakdowns shipped_campaigns",
        },
    )
