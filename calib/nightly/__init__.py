"""The nightly job."""

from calib.nightly.night import Asked, Night, nightly, preview
from calib.nightly.rebuild import check, rebuild, replay
from calib.nightly.record import acknowledge

__all__ = ["Asked", "Night", "acknowledge", "check", "nightly", "preview", "rebuild", "replay"]
