"""The pipeline model: where the work lives (layout), how the pipe runs (steady state), what a step costs (breakdown)."""

from calib.stages.breakdown import Breakdowns, Step
from calib.stages.layout import PipelineLayout, UnknownOpWarning, partition_layers
from calib.stages.steady_state import PipelineSteadyState

__all__ = [
    "Breakdowns",
    "PipelineLayout",
    "PipelineSteadyState",
    "Step",
    "UnknownOpWarning",
    "partition_layers",
]
