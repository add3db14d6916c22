"""Gradients of which only the largest entries are sent to the other replicas."""

from tfx_perf.settings.values import Share
from tfx_perf.training.optimizations.among_replicas import AmongReplicas


class TopKReduction(AmongReplicas):
    """The share of each gradient's entries that is sent; None: all are.

    Another rounding may have another entry sent, so that plans are compared by their loss. See
    `keras_api.top_k`.
    """

    name = "top_k_ratio"
    annotation = Share | None
    changes_numbers = True

    def words(self, value: float) -> str:
        """Returns the share in percent."""
        return f", the largest {100 * value:g} % of each gradient sent"
