"""The command line."""

from calib.cli import model_commands
from calib.cli.app import app, main

__all__ = ["app", "main", "model_commands"]
