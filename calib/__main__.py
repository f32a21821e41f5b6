"""``python -m calib``."""

from __future__ import annotations

from calib.cli import main

main()
