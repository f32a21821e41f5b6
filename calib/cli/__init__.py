"""The command line."""

from calib.cli.app import app, main

__all__ = ["app", "main"]
