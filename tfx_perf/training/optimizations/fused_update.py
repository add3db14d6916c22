"""One kernel for the update of each variable."""

from typing import Any

from tfx_perf.training.optimizations.optimization import Fit, Optimization


class FusedUpdate(Optimization):
    """One kernel updates each variable, where TensorFlow has one; see `step.fused_update`.

    It is always on, untried: it computes the same, and is no slower beyond noise.
    """

    name = "fused_update"
    is_never_slower = True
    hoped_share = 0.05

    def words(self, value: bool) -> str:
        """Returns its name."""
        return ", fused update"

    def obstacle(self, fit: Fit) -> str | None:
        """Returns why the optimizer's own update must stay."""
        from tfx_perf.training.step import fused_update

        keras_api = fit.functions.keras_api
        reason = keras_api.splitting_obstacle(fit.functions.model)
        if not reason and not fused_update.is_possible(fit.functions.model.optimizer, keras_api):
            return "no kernel computes what the optimizer does"
        return reason

    def always(self, fit: Fit) -> bool:
        """Returns whether it is possible."""
        return self.obstacle(fit) is None

    def step_arguments(self, value: bool) -> dict[str, Any]:
        """Returns whether to fuse."""
        return {"fused_update": value}
