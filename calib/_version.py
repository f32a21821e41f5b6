"""The version of calib: read by the build, written into every file that calib makes."""

from __future__ import annotations

__version__ = "0.1.0"
