"""The speedups, by the name of the plan's field that turns them on."""

from tfx_perf.training.speedups.fused_update import FusedUpdate
from tfx_perf.training.speedups.gradient_checkpointing import GradientCheckpointing
from tfx_perf.training.speedups.micro_batches import MicroBatches
from tfx_perf.training.speedups.onednn import OneDnn
from tfx_perf.training.speedups.precision import Precision
from tfx_perf.training.speedups.reduction_dtype import NarrowReduction
from tfx_perf.training.speedups.speedup import Speedup
from tfx_perf.training.speedups.steps_per_execution import StepsPerExecution
from tfx_perf.training.speedups.xla import Xla
from tfx_perf.training.speedups.xla_loop import XlaLoop

# In the order of the fields in files. `TrainingPlan` reads it once, when it is imported.
SPEEDUPS: dict[str, Speedup] = {
    kind.name: kind()
    for kind in (
        StepsPerExecution,
        Xla,
        MicroBatches,
        FusedUpdate,
        GradientCheckpointing,
        Precision,
        XlaLoop,
        OneDnn,
        NarrowReduction,
    )
}

__all__ = ["SPEEDUPS", "Speedup"]
