"""One module a tool: ``parse_*`` is pure, ``read_*`` touches the disk.

A reader turns what one file says into `ReadRun` records: the columns of the run table that the file states, in calib's
units, and facts that the screening rules look at. It never guesses what the file does not say.
"""

from calib.readers.base import ReadRun, UnreadableRun

__all__ = ["ReadRun", "UnreadableRun"]
