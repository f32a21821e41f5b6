"""The night: new results every night against what is released, with a store of what was read and alarms at a known level.

Sub-packages `store` (Parquet and DuckDB, may be deleted at any time) and `alarms` (statistics over the nights).
Imports `workflow` and what lies below it.
Read first: `night` (step by step), then `alarm_decisions` (what becomes an alarm).
"""

from typing import TYPE_CHECKING

from calib._exports import face

if TYPE_CHECKING:
    from calib.nightly.dry_run import preview as preview
    from calib.nightly.job_config import default_config as default_config
    from calib.nightly.night import Night as Night, run_night as run_night
    from calib.nightly.outputs import render_pager as render_pager, summary as summary
    from calib.nightly.record import acknowledge as acknowledge
    from calib.nightly.recovery import (
        check_night_store as check_night_store,
        rebuild_store as rebuild_store,
        replay_night as replay_night,
    )
    from calib.nightly.setup import Asked as Asked, job_folders as job_folders
    from calib.nightly.store.reader import open_store as open_store
else:
    __getattr__, __dir__ = face(
        __name__,
        {
            "job_config": "default_config",
            "dry_run": "preview",
            "night": "Night run_night",
            "outputs": "render_pager summary",
            "record": "acknowledge",
            "recovery": "check_night_store rebuild_store replay_night",
            "setup": "Asked job_folders",
            "store.reader": "open_store",
        },
    )
