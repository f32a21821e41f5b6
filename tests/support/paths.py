"""Where the tests' own files are."""

from __future__ import annotations

import os
from pathlib import Path

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
DATA = TESTS / "data"
SHARED = Path(os.environ.get("CALIB_SHARED", ROOT.parent / "shared"))
