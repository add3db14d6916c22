"""Activations that are computed again in the backward pass."""

from typing import Annotated, Any, Literal

import pydantic

from tfx_perf.training.optimizations.optimization import Fit, Optimization


class Recompute(Optimization):
    """The number of segments of the forward pass whose activations are computed again.

    `auto` is the number with the least estimated memory; None keeps all activations. It takes
    time and saves memory, so that the settings decide; see `step.recompute`.
    """

    name = "recompute"
    annotation = Annotated[int, pydantic.Field(ge=2)] | Literal["auto"] | None
    off = None
    saves_memory = True

    def words(self, value: int | str) -> str:
        """Returns its name and the segments."""
        return f", recompute ({'auto' if value == 'auto' else f'{value} segments'})"

    def obstacle(self, fit: Fit) -> str | None:
        """Returns why the step cannot be split."""
        return fit.functions.keras_api.splitting_obstacle(fit.functions.model)

    def always(self, fit: Fit) -> int | str | None:
        """Returns what the settings say, where it is possible."""
        wanted = fit.settings.training.recompute
        return wanted if wanted and not self.obstacle(fit) else None

    def step_arguments(self, value: int | str | None) -> dict[str, Any]:
        """Returns the segments."""
        return {"recompute": value}
