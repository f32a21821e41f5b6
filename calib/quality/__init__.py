"""What a measurement is worth: named rules, each with a verdict and a reason."""

from calib.quality.screen import RULE_NAMES, RULES, screen, usable

__all__ = ["RULES", "RULE_NAMES", "screen", "usable"]
