"""The command line."""

from calib.cli import data_commands, init_command, model_commands, plan_command
from calib.cli.app import app, main

__all__ = ["app", "data_commands", "init_command", "main", "model_commands", "plan_command"]
