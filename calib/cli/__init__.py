"""The command line."""

from calib.cli import data_commands, model_commands
from calib.cli.app import app, main

__all__ = ["app", "data_commands", "main", "model_commands"]
