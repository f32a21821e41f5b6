"""What a person should be told of a night: coefficients that moved, errors that grew, coverage and verdicts that changed."""

from calib.alarms.changepoints import change_points
from calib.alarms.gates import Alarm, Lost, compare_stream, describe, lost_coverage, scope_of
from calib.alarms.monitor import Limits, Monitor, Verdicts, family_limit, mape_rise, mape_stderr
from calib.alarms.series import Level, Measured, Move, follow, together

__all__ = [
    "Alarm", "Level", "Limits", "Lost", "Measured", "Monitor", "Move", "Verdicts", "change_points", "compare_stream",
    "describe", "family_limit", "follow", "lost_coverage", "mape_rise", "mape_stderr", "scope_of", "together",
]  # fmt: skip
