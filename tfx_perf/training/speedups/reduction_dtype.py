"""Gradients that are summed over replicas in a narrower type."""

from typing import Any

from tfx_perf.config.distribution import ReductionDtype
from tfx_perf.training.speedups.speedup import Fit, Speedup


class NarrowReduction(Speedup):
    """The type in which gradients are summed over replicas; None keeps theirs.

    Trials do not choose it: Keras' `fit` uses it, too, so that trials compare equal sums.
    """

    name = "reduction_dtype"
    annotation = ReductionDtype | None
    off = None
    in_plain_fit = True

    def words(self, value: ReductionDtype) -> str:
        """Returns the type, with a remark that gradients are summed in it."""
        return f", gradients summed in {value}"

    def always(self, fit: Fit) -> Any:
        """Returns the type in the settings, if there is something to sum."""
        is_one = fit.functions.model.distribute_strategy.num_replicas_in_sync == 1
        return None if is_one else fit.settings.distribution.reduction_dtype
