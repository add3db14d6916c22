"""The optimizations by the plan's field that says whether they are on."""

from tfx_perf.training.optimizations.fused_update import FusedUpdate
from tfx_perf.training.optimizations.gradient_checkpointing import GradientCheckpointing
from tfx_perf.training.optimizations.micro_batches import MicroBatches
from tfx_perf.training.optimizations.onednn import OneDnn
from tfx_perf.training.optimizations.optimization import Optimization
from tfx_perf.training.optimizations.precision import Precision
from tfx_perf.training.optimizations.reduction_dtype import NarrowReduction
from tfx_perf.training.optimizations.steps_per_execution import StepsPerCall
from tfx_perf.training.optimizations.xla import Xla
from tfx_perf.training.optimizations.xla_loop import XlaLoop

# In the order of the fields in files. `TrainingPlan` reads it once, when it is imported.
OPTIMIZATIONS: dict[str, Optimization] = {
    kind.name: kind()
    for kind in (
        StepsPerCall,
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

__all__ = ["OPTIMIZATIONS", "Optimization"]
