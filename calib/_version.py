"""The version of calib: read by the build, written into every file that calib makes."""

__version__ = "0.1.0"
