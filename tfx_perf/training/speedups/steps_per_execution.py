"""Several steps for one call from Python."""

from typing import TYPE_CHECKING

import pydantic

from tfx_perf.training.speedups.speedup import Fit, Speedup

if TYPE_CHECKING:
    from tfx_perf.training.speedups.plan import TrainingPlan

CALL_SECONDS = 2e-3
"""The approximate time that Python and Keras take for a call."""

_SAVED_SHARE = 0.8  # of `CALL_SECONDS`, with several steps per call


class StepsPerExecution(Speedup):
    """Steps run by one call from Python; None is Keras' `fit`.

    Python and Keras take one or two milliseconds per call, regardless of the model.
    """

    name = "steps_per_execution"
    annotation = pydantic.PositiveInt | None
    off = None
    is_never_slower = True

    def words(self, value: int) -> str:
        """Returns the beginning of a plan's description."""
        return f"{value} {'step' if value == 1 else 'steps'} per execution"

    def expected_saving_seconds(self, step_seconds: float) -> float:
        """Returns most of Python's time for a step."""
        return _SAVED_SHARE * min(step_seconds, CALL_SECONDS)

    def always(self, fit: Fit) -> int:
        """Returns the largest number that is tried."""
        return _sizes(fit)[-1]

    def plans(self, fit: Fit, base: "TrainingPlan") -> "list[TrainingPlan]":
        """Returns one plan for each number in the settings."""
        return [base.model_copy(update={self.name: size}) for size in _sizes(fit)]


def _sizes(fit: Fit) -> list[int]:
    most = fit.most_steps_per_execution
    sizes = sorted({min(size, most) for size in fit.settings.training.steps_per_execution})
    return [*(size for size in sizes if 2 * size <= sizes[-1]), sizes[-1]]  # others are as fast
