"""An engine whose truth is known: pipeline stages, queues and a scheduling overhead, measured as a real one is.

In virtual time, or over HTTP by the real client. Imports `measure`, `pipeline` and the root. It knows no GPU: it checks calib
and says nothing about silicon.
Read first: `scenarios` (which truths there are), then `engine`.
"""

from typing import TYPE_CHECKING

from calib._exports import face

if TYPE_CHECKING:
    from calib.emulator.demo import Demo as Demo, Progress as Progress, run_demo as run_demo
    from calib.emulator.scenarios import SCENARIOS as SCENARIOS, Scenario as Scenario, get_scenario as get_scenario
else:
    __getattr__, __dir__ = face(
        __name__,
        {
            "demo": "Demo Progress run_demo",
            "scenarios": "SCENARIOS Scenario get_scenario",
        },
    )
