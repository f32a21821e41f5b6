"""How a pipeline works: stages and their balance, what fills them, and the latencies of one step that both are computed from.

Knows nothing of measurements or of coefficients; imports the root only. Latencies come from a file or from `providers`.
Read first: `layout` (where the work lies), then `steady_state` (how the pipe runs).
"""

from typing import TYPE_CHECKING

from calib._exports import face

if TYPE_CHECKING:
    from calib.pipeline.breakdown import (
        BreakdownProvider as BreakdownProvider,
        Breakdowns as Breakdowns,
        Provider as Provider,
        Step as Step,
        StepKind as StepKind,
        StepRequest as StepRequest,
    )
    from calib.pipeline.explanation import Explanation as Explanation, explain_stages as explain_stages
    from calib.pipeline.gpu import load_gpu as load_gpu
    from calib.pipeline.latency import (
        NOT_CALIBRATED as NOT_CALIBRATED,
        Latency as Latency,
        traversal_latency as traversal_latency,
    )
    from calib.pipeline.layout import (
        PARTITION_RULES as PARTITION_RULES,
        PipelineLayout as PipelineLayout,
        UnknownOpWarning as UnknownOpWarning,
    )
    from calib.pipeline.model_shape import load_shape as load_shape
    from calib.pipeline.providers.kernel_tables import AiconfiguratorProvider as AiconfiguratorProvider
    from calib.pipeline.providers.roofline import RooflineProvider as RooflineProvider
    from calib.pipeline.roofline_check import TELLING as TELLING, compare_with_roofline as compare_with_roofline
    from calib.pipeline.steady_state import (
        PipelineSteadyState as PipelineSteadyState,
        microbatch_size as microbatch_size,
    )
    from calib.pipeline.workload import (
        BALANCES as BALANCES,
        balance_factor as balance_factor,
        ideal_throughput as ideal_throughput,
        steady_state_of as steady_state_of,
    )
else:
    __getattr__, __dir__ = face(
        __name__,
        {
            "breakdown": "BreakdownProvider Breakdowns StepKind Provider Step StepRequest",
            "explanation": "Explanation explain_stages",
            "gpu": "load_gpu",
            "latency": "Latency NOT_CALIBRATED traversal_latency",
            "layout": "PARTITION_RULES PipelineLayout UnknownOpWarning",
            "model_shape": "load_shape",
            "providers.kernel_tables": "AiconfiguratorProvider",
            "providers.roofline": "RooflineProvider",
            "roofline_check": "TELLING compare_with_roofline",
            "steady_state": "PipelineSteadyState microbatch_size",
            "workload": "BALANCES balance_factor ideal_throughput steady_state_of",
        },
    )
