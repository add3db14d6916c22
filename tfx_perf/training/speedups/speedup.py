"""The interface of one way to run training steps differently from Keras' `fit`."""

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfx_perf.config import PerfConfig
    from tfx_perf.training.speedups.plan import TrainingPlan
    from tfx_perf.training.speedups.train_functions import TrainFunctions
    from tfx_perf.training.step.step_runner import StepRunner


@dataclasses.dataclass(frozen=True)
class Fit:
    """A `fit` that plans are to be tried for."""

    functions: "TrainFunctions"  # of a built model
    dataset: Any  # that it trains on
    settings: "PerfConfig"  # `training`, `compilation`, `distribution`
    most_steps_per_execution: int = 1  # a larger number would gain nothing


class Speedup:
    """One field of a `TrainingPlan`, and everything that the field means.

    A subclass sets its name, its type and its value when off, and overrides the methods in which
    it differs from a speedup that changes nothing. Import TensorFlow only in methods, because
    records are read without it.

    Attributes:
        off: the field's value with which everything is as in Keras' `fit`.
        in_plain_fit: whether Keras' `fit` can run with it.
        uses_xla: whether XLA compiles a part of the step.
        saves_memory: whether Keras' `fit` may run out of memory without it. The reference plan
            then has it, too, if `always` asks for it.
        may_be_slow: whether trials check it step by step, because it may have to be stopped.
        is_never_slower: whether it does the same with less work. A plan with only such
            speedups may be used if turns with Keras' `fit` would cost too much.
        is_suspect: whether it alone is turned off first after a divergence.
        expected_share: the share of a step's time that it usually saves.
        expected_operation_seconds: its usual saving per operation of a step, if more in total.
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
    expected_share: ClassVar[float] = 0.0
    expected_operation_seconds: ClassVar[float] = 0.0

    def words(self, value: Any) -> str:
        """Returns its part of a plan's description, with a leading comma."""
        return f", {self.name}" if value is True else f", {self.name}={value}"

    def conflict(self, plan: "TrainingPlan") -> str | None:
        """Returns why a plan with it on is impossible, None if it is possible."""
        if plan.is_plain_fit and not self.in_plain_fit:
            return f"{self.name} needs steps_per_execution to be set"
        return None

    def obstacle(self, fit: Fit) -> str | None:
        """Returns why a `fit` cannot be run with it, None if it can."""
        return None

    def always(self, fit: Fit) -> Any:
        """Returns the value that the field has in every plan for a `fit`."""
        return self.off

    def plans(self, fit: Fit, base: "TrainingPlan") -> "list[TrainingPlan]":
        """Returns the plans that it proposes to try; `obstacle` may rule them out."""
        return []

    def expected_saving_seconds(self, step_seconds: float) -> float:
        """Returns its usual saving per step; trials may not cost more than this saves in total."""
        return self.expected_share * step_seconds

    def step_arguments(self, value: Any) -> dict[str, Any]:
        """Returns its arguments for `SplitStep` if on; plans with equal arguments share a trace."""
        return {}

    def around(
        self, runner: "StepRunner", plan: "TrainingPlan", functions: "TrainFunctions"
    ) -> "StepRunner":
        """Returns a runner with this speedup, for one run, that wraps one without it.

        `functions.kept` keeps traced functions between runs.
        """
        return runner

    def compiled_part(
        self, batch: Any, plan: "TrainingPlan", functions: "TrainFunctions"
    ) -> "tuple[Callable[[Any], Any], Any] | None":
        """Returns the part of a step that XLA compiles and its input for a batch, or None."""
        return None

    def environment(self) -> Mapping[str, str]:
        """Returns the environment variables that a process needs for a plan with it on."""
        return {}

    def users_choice(self) -> str | None:
        """Returns the user's setting of it in the environment; None if no variable controls it."""
        return None
