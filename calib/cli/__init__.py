"""The command line."""

from calib.cli import (
    apply_commands,
    data_commands,
    demo_command,
    init_command,
    model_commands,
    nightly_commands,
    plan_command,
    registry_commands,
)
from calib.cli.app import app, main

__all__ = [
    "app",
    "apply_commands",
    "data_commands",
    "demo_command",
    "init_command",
    "main",
    "model_commands",
    "nightly_commands",
    "plan_command",
    "registry_commands",
]
