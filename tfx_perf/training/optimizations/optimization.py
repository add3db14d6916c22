"""The interface of one way to run training steps otherwise than Keras' `fit` does."""

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfx_perf.config import PerfConfig
    from tfx_perf.training.loop import Loop
    from tfx_perf.training.plan import TrainingPlan
    from tfx_perf.training.step.step_runner import StepRunner
    from tfx_perf.training.train_functions import TrainFunctions


@dataclasses.dataclass(frozen=True)
class Fit:
    """A `fit` that plans are to be tried for.

    Attributes:
        model: compiled and built.
        loop: what would run the plans.
        settings: the sections `training`, `compilation` and `distribution`.
        most_steps_per_call: more would gain nothing.
    """

    model: Any
    loop: "Loop"
    settings: "PerfConfig"
    most_steps_per_call: int = 1


@dataclasses.dataclass(frozen=True)
class OutOfMemory:
    """A step that ran out of memory and cannot go on from where it is.

    Attributes:
        users_steps_per_call: the `steps_per_execution` of the user's `compile`.
        failed_slices: the number of slices of the batch, if only another plan can have more: the
            optimizer had begun to apply the gradient, or other workers wait in the step.
    """

    users_steps_per_call: int
    failed_slices: int | None = None


class Optimization:
    """One field of a `TrainingPlan`, and everything that the field means.

    A subclass says its name, type and value where it is off, and overrides what it does
    otherwise than an optimization that changes nothing. TensorFlow may be imported in methods
    only: records are read without it.

    Attributes:
        name: of the plan's field.
        annotation: the type of the field.
        off: the field's value where everything stays as in Keras' own `fit`.
        in_plain_fit: whether Keras' own `fit` can run with it.
        uses_xla: whether XLA compiles a part of the step.
        saves_memory: whether there may not be enough memory for plain `fit`. What plans are
            compared with then has it, too, if `always` asks for it.
        may_be_slow: whether trials check it step by step, because it may have to be stopped.
        is_never_slower: whether it does the same with less work, so that a plan of such
            optimizations alone may be used where turns with plain `fit` would cost too much.
        is_suspect: whether it is the first to be left out, alone, after a blow-up.
        hoped_share: of a step's time, what it usually saves.
        hoped_operation_seconds: what it usually saves for each operation of a step, if that is
            more.
    """

    name: ClassVar[str]
    annotation: ClassVar[Any] = bool
    off: ClassVar[Any] = False
    in_plain_fit: ClassVar[bool] = False
    uses_xla: ClassVar[bool] = False
    saves_memory: ClassVar[bool] = False
    may_be_slow: ClassVar[bool] = False
    is_never_slower: ClassVar[bool] = False
    is_suspect: ClassVar[bool] = False
    hoped_share: ClassVar[float] = 0.0
    hoped_operation_seconds: ClassVar[float] = 0.0

    def words(self, value: Any) -> str:
        """Returns how the description of a plan goes on, comma included."""
        return f", {self.name}" if value is True else f", {self.name}={value}"

    def conflict(self, plan: "TrainingPlan") -> str | None:
        """Returns why a plan in which it is on cannot be, None if it can."""
        if plan.is_plain_fit and not self.in_plain_fit:
            return f"steps_per_call is needed to change anything else, such as {self.name}"
        return None

    def obstacle(self, fit: Fit) -> str | None:
        """Returns why a `fit` cannot be run with it, None if it can."""
        return None

    def always(self, fit: Fit) -> Any:
        """Returns the value that the field has in every plan for a `fit`."""
        return self.off

    def plans(self, fit: Fit, base: "TrainingPlan") -> "list[TrainingPlan]":
        """Returns the plans that it proposes to try; what `obstacle` says rules them out."""
        return []

    def hoped_saving_seconds(self, step_seconds: float) -> float:
        """Returns what a step may become shorter by with it, as it usually does.

        Trials go by it: what a training saves at most is what they may cost.
        """
        return self.hoped_share * step_seconds

    def step_arguments(self, value: Any) -> dict[str, Any]:
        """Returns arguments of `steps.train_step`, by which a traced step is known."""
        return {}

    def around(
        self, runner: "StepRunner", plan: "TrainingPlan", functions: "TrainFunctions"
    ) -> "StepRunner":
        """Returns what runs the steps of a plan in which it is on, for one run.

        Args:
            runner: runs them without it.
            plan: the plan.
            functions: the model's; `functions.kept` keeps from run to run what is traced.
        """
        return runner

    def compiled_part(
        self, batch: Any, plan: "TrainingPlan", functions: "TrainFunctions"
    ) -> "tuple[Callable[[Any], Any], Any] | None":
        """Returns what XLA compiles of a step, and the batch as that takes it; None: nothing."""
        return None

    def smaller(self, value: Any, error: OutOfMemory) -> Any:
        """Returns the value of the field with which a step may have enough memory.

        Args:
            value: with which there was not enough; `off` where it was off.
            error: what happened.
        """
        return value

    def environment(self) -> Mapping[str, str]:
        """Returns the variables that a process needs for a plan in which it is on."""
        return {}

    def users_choice(self) -> str | None:
        """Returns what the user's environment decides about it; None if nothing can."""
        return None
