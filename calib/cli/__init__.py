"""The command line: thin. One module for each group of commands; results on stdout, the rest on stderr.

Imports every package, inside the commands, so that each loads only what it needs.
Read first: `app` (the program and its exit codes), then `run_commands`.
"""

# isort: off
# In the order in which help lists the commands.
from calib.cli import (
    run_commands,
    registry_commands,
    predict_command,
    apply_command,
    recommend_command,
    data_commands,
    demo_command,
    init_command,
    model_commands,
    nightly_commands,
    plan_command,
)
# isort: on

from calib.cli.app import app, main

__all__ = [
    "app",
    "apply_command",
    "data_commands",
    "demo_command",
    "init_command",
    "main",
    "model_commands",
    "nightly_commands",
    "plan_command",
    "predict_command",
    "recommend_command",
    "registry_commands",
    "run_commands",
]
