"""The rules of what is noticed only when runs are put beside their baseline; those of single runs are in `calib.measure`."""

from __future__ import annotations

NO_BASELINE = "no_baseline"
NO_LATENCY = "no_latency"
NO_PP_RUN = "no_pp_run"
DATA_PARALLEL = "data_parallel"
NO_BALANCE = "no_balance_factor"
NO_MODEL = "no_model_prediction"
IMPLAUSIBLE = "implausible_efficiency"
UNKNOWN_OP = "unknown_op"

# (name, verdict, meaning)
COMPARISON_RULES = (
    (NO_BASELINE, "REJECT", "no usable TP=G/PP=1 run of the series"),
    (NO_BALANCE, "REJECT", "no per-op latencies, so no balance factor"),
    (NO_MODEL, "REJECT", "no ideal throughput of the model's own, which a model reference needs"),
    (NO_LATENCY, "REJECT", "no TTFT and ITL, which the end-effect correction needs"),
    (DATA_PARALLEL, "REJECT", "dp > 1, for which the baseline is not defined"),
    (IMPLAUSIBLE, "REJECT", "an efficiency no pipeline has"),
    (NO_PP_RUN, "WARN", "a baseline without a PP run"),
    (UNKNOWN_OP, "WARN", "an op of no known place in the pipeline"),
)
