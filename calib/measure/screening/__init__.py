"""The named rules that warn about a run or set it aside: `run_rules` of one run, `series_rules` of runs beside each other."""
