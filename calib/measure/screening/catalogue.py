"""Every rule there is, in the order in which they are listed; nothing is read or judged here, so listing them is quick."""

from __future__ import annotations

from calib.measure.screening.rule import NONE, Rule, SeriesRule
from calib.measure.screening.run_rules import RUN_RULES
from calib.measure.screening.series_rules import CAMPAIGN_RULES, SERIES_RULES

DISPUTED = SeriesRule("disputed_label", "WARN", "sources disagree about a label", NONE, lambda *_: ())
RULES: tuple[Rule | SeriesRule, ...] = (*RUN_RULES, *SERIES_RULES, *CAMPAIGN_RULES, DISPUTED)
RULE_NAMES = tuple(r.name for r in RULES)
