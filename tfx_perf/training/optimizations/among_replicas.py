"""AmongReplicas: what every plan has if the settings ask for it, and replicas train together."""

from typing import Any

from tfx_perf.training.optimizations.optimization import Fit, Optimization


class AmongReplicas(Optimization):
    """A setting of `distribution` with the optimization's name; None: it is off.

    No choice of the trials: plain `fit` has it, too, so that trials compare what sums alike.
    """

    off = None
    in_plain_fit = True

    def always(self, fit: Fit) -> Any:
        """Returns what the settings say, if there is something to sum."""
        is_one = fit.model.distribute_strategy.num_replicas_in_sync == 1
        return None if is_one else getattr(fit.settings.distribution, self.name)
