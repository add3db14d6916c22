"""Gradients that are summed over replicas in a narrower type."""

from tfx_perf.settings.distribution import ReductionDtype
from tfx_perf.training.optimizations.among_replicas import AmongReplicas


class NarrowReduction(AmongReplicas):
    """The type in which gradients are summed over replicas; None: their own.

    See `keras_api.gradient_sum`.
    """

    name = "reduction_dtype"
    annotation = ReductionDtype | None

    def words(self, value: ReductionDtype) -> str:
        """Returns the type, and what is of it."""
        return f", gradients summed in {value}"
