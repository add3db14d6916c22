"""Gradients of which only the largest entries are sent to the other replicas."""

from tfx_perf.settings.values import Share
from tfx_perf.training.optimizations.optimization import Fit, Optimization


class TopKReduction(Optimization):
    """The share of each gradient's entries that is sent; None: all are.

    No choice of the trials, as `NarrowReduction`. Another rounding may have another entry sent, so
    that plans are compared by their loss. See `keras_api.top_k`.
    """

    name = "top_k_ratio"
    annotation = Share | None
    off = None
    in_plain_fit = True
    changes_numbers = True

    def words(self, value: float) -> str:
        """Returns the share in percent."""
        return f", the largest {100 * value:g} % of each gradient sent"

    def always(self, fit: Fit) -> float | None:
        """Returns what the settings say, if there is something to sum."""
        is_one = fit.model.distribute_strategy.num_replicas_in_sync == 1
        return None if is_one else fit.settings.distribution.top_k_ratio
