"""Forward and backward pass compiled with XLA."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tfx_perf.training.speedups.speedup import Fit, Speedup

if TYPE_CHECKING:
    from tfx_perf.training.speedups.plan import TrainingPlan
    from tfx_perf.training.speedups.train_functions import TrainFunctions

_CPU_SHARE = 0.05  # the usual saving on a CPU, of a step's time
_SLOW_ON_CPUS = "Conv1D", "Conv2D", "Conv3D", "LSTM", "GRU", "RNN"  # in names of layers


def slow_on_cpus(model: Any) -> str | None:
    """Returns why XLA would slow down a model's steps if only a CPU computes, otherwise None."""
    from tfx_perf.hardware import devices
    from tfx_perf.training.keras_api.base_api import all_layers

    names = {type(layer).__name__ for layer in all_layers(model)}
    slow = sorted(name for name in names if any(part in name for part in _SLOW_ON_CPUS))
    if not (slow and devices.is_cpu_alone()):
        return None
    return f"XLA takes 4 to 22 times as long for {slow[0]} on CPUs"


class Xla(Speedup):
    """XLA compiles forward and backward pass; the optimizer stays outside.

    It fuses small operations. On CPUs this made dense layers 1.08 times as fast (AVX-512), so only
    long trainings try it there.
    """

    name = "xla"
    uses_xla = True
    may_be_slow = True
    is_suspect = True
    expected_share = 0.2  # of small operations; large products gain nothing

    def words(self, value: bool) -> str:
        """Returns its name."""
        return ", XLA"

    def obstacle(self, fit: Fit) -> str | None:
        """Returns why the step cannot be split, or would be slower."""
        model = fit.functions.model
        return fit.functions.keras_api.splitting_obstacle(model) or slow_on_cpus(model)

    def plans(self, fit: Fit, base: "TrainingPlan") -> "list[TrainingPlan]":
        """Returns one plan, if compilation is enabled."""
        if not fit.settings.compilation.enabled:
            return []
        return [base.model_copy(update={self.name: True})]

    def expected_saving_seconds(self, step_seconds: float) -> float:
        """Returns its usual saving on the devices of this process."""
        from tfx_perf.hardware import devices

        return (_CPU_SHARE if devices.is_cpu_alone() else self.expected_share) * step_seconds

    def step_arguments(self, value: bool) -> dict[str, Any]:
        """Returns whether to compile."""
        return {"xla": True}

    def compiled_part(
        self, batch: Any, plan: "TrainingPlan", functions: "TrainFunctions"
    ) -> tuple[Callable[[Any], Any], Any]:
        """Returns the function that computes the gradients."""
        from tfx_perf.training.step.split_step import SplitStep

        return SplitStep(functions.model, functions.keras_api, xla=True).gradients, batch
