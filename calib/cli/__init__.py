"""The command line."""

from calib.cli import (
    apply_commands,
    data_commands,
    model_commands,
    nightly_commands,
    plan_command,
    registry_commands,
)
from calib.cli.app import app, main

__all__ = [
    "app", "apply_commands", "data_commands", "main", "model_commands", "nightly_commands", "plan_command",
    "registry_commands",
]  # fmt: skip
