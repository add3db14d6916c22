"""All steps of a call compiled into an XLA loop."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tfx_perf.training.speedups.speedup import Fit, Speedup
from tfx_perf.training.speedups.xla import slow_on_cpus

if TYPE_CHECKING:
    from tfx_perf.training.speedups.plan import TrainingPlan
    from tfx_perf.training.speedups.train_functions import TrainFunctions
    from tfx_perf.training.step.compiled_call import CompiledCall
    from tfx_perf.training.step.step_runner import StepRunner


class XlaLoop(Speedup):
    """XLA compiles all steps of a call, updates and metrics included; see `compiled_call`."""

    name = "xla_loop"
    uses_xla = True
    is_suspect = True
    expected_share = 0.3  # of small operations; large products gain nothing
    # The time of a small model's step is that of starting its operations, most of them in the
    # update if no kernel fuses it. Measured: 0.29 µs (Nadam, 663), 0.38 µs (20 columns, 2027).
    expected_operation_seconds = 0.3e-6

    def words(self, value: bool) -> str:
        """Returns how the steps of a call are compiled."""
        return " as an XLA loop"

    def conflict(self, plan: "TrainingPlan") -> str | None:
        """Returns why other speedups of the plan cannot be combined with it."""
        others = {each.name for each in plan.speedups if not each.in_plain_fit}
        if others - {self.name, "steps_per_execution"}:
            return "xla_loop compiles whole steps, and leaves nothing to the others"
        return super().conflict(plan)

    def obstacle(self, fit: Fit) -> str | None:
        """Returns why the steps cannot be compiled together."""
        from tfx_perf.training.step import compiled_call

        model, keras_api = fit.functions.model, fit.functions.keras_api
        if fit.settings.training.gradient_checkpointing and not keras_api.splitting_obstacle(model):
            return "it keeps all activations, and `gradient_checkpointing` is asked for"
        obstacle = compiled_call.obstacle(model, keras_api, fit.dataset.element_spec)
        return obstacle or slow_on_cpus(model)

    def plans(self, fit: Fit, base: "TrainingPlan") -> "list[TrainingPlan]":
        """Returns one plan without other changes to the steps, if compilation is enabled."""
        if not fit.settings.compilation.enabled:
            return []
        update = {"steps_per_execution": base.steps_per_execution, self.name: True}
        return [base.plain.model_copy(update=update)]

    def around(
        self, runner: "StepRunner", plan: "TrainingPlan", functions: "TrainFunctions"
    ) -> "StepRunner":
        """Returns a runner of compiled calls, which leaves other steps to `runner`."""
        return self._compiled(plan, functions).around(
            runner, steps_per_execution=plan.steps_per_execution
        )

    def compiled_part(
        self, batch: Any, plan: "TrainingPlan", functions: "TrainFunctions"
    ) -> tuple[Callable[[Any], Any], Any]:
        """Returns the function of one step, and its input for a batch."""
        return self._compiled(plan, functions).one_step(batch)

    def _compiled(self, plan: "TrainingPlan", functions: "TrainFunctions") -> "CompiledCall":
        from tfx_perf.training.step.compiled_call import CompiledCall

        def make() -> CompiledCall:
            stepwise = functions.traced(plan)
            return CompiledCall(functions.model, functions.keras_api, stepwise=stepwise)

        return functions.kept(self.name, make)
