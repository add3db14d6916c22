"""TrainFunctions: Keras' own train function and ours, made once for each model."""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

from tfx_perf import errors
from tfx_perf.training.direct_iterators import direct_iterators
from tfx_perf.training.lines.base_line import Function, KerasLine
from tfx_perf.training.plan import TrainingPlan
from tfx_perf.training.step import steps
from tfx_perf.training.step.compiled_call import CompiledCall
from tfx_perf.training.step.input_shapes import InputShapes
from tfx_perf.training.step.journal import Journal
from tfx_perf.training.step.slicing_obstacle import slicing_obstacle
from tfx_perf.training.step.split_step import SplitStep


class TrainFunctions:
    """The functions that may stand in `model.train_function`.

    Plans that differ only in `steps_per_call` and `micro_batches` share one traced function.
    """

    def __init__(self, model: Any, line: KerasLine, *, countdown: steps.Countdown) -> None:
        """Makes none yet.

        Args:
            model: a compiled model.
            line: the model's.
            countdown: says how many steps the epoch still has.
        """
        self._model = model
        self._line = line
        self._countdown = countdown
        self._made: dict[TrainingPlan, steps.MultiStep] = {}
        self._shapes: dict[TrainingPlan, InputShapes] = {}
        self._compiled: CompiledCall | None = None

    @property
    def users_steps_per_call(self) -> int:
        """The `steps_per_execution` of the user's `compile`, or of the plan that is installed."""
        return self._line.get_steps_per_execution(self._model)

    @functools.cached_property
    def keras(self) -> tuple[Function, Function]:
        """Keras' own functions for training and evaluation."""
        return self._line.keras_functions(self._model)

    @functools.cached_property
    def _slicing_obstacle(self) -> str | None:
        return slicing_obstacle(self._model, self._line)

    def of(self, plan: TrainingPlan) -> steps.MultiStep | CompiledCall:
        """Returns the function that runs a plan's steps.

        Raises:
            UserError: the model cannot be trained in micro-batches.
        """
        if plan.xla_call:
            stepwise = self.of(plan.stepwise)
            if self._compiled is None:
                self._compiled = CompiledCall(self._model, self._line, stepwise=stepwise)
            self._compiled.steps_per_call = plan.steps_per_call
            return self._compiled
        if plan.micro_batches > 1 and self._slicing_obstacle:
            raise errors.UserError(
                f"Expected a model that can train in micro-batches. Received: "
                f"micro_batches={plan.micro_batches}, but {self._slicing_obstacle}. "
                "Train with micro_batches=1."
            )
        traced = _traced(plan)
        if traced not in self._made:
            self._made[traced] = self._make(traced)
        function = self._made[traced]
        function.steps_per_call = plan.steps_per_call
        function.micro_batches = plan.micro_batches
        return function

    def trace_seconds(self, plan: TrainingPlan) -> float | None:
        """Returns what tracing a plan's steps took; None for plain `fit`."""
        return None if plan.is_plain_fit else self.of(plan).trace_seconds

    def compiled_shapes(self, plan: TrainingPlan) -> tuple[str, ...] | None:
        """Returns the input shapes that XLA compiled a plan's step for; None without XLA."""
        shapes = self._compiled and self._compiled.shapes
        if not plan.xla_call:
            shapes = self._shapes.get(_traced(plan))
        return shapes and shapes.found()

    def compiled_part(self, plan: TrainingPlan, batch: Any) -> tuple[Callable[[Any], Any], Any]:
        """Returns what XLA compiles of a plan's step, and the batch as that function takes it.

        Args:
            plan: one that uses XLA.
            batch: one element of the training data.
        """
        if plan.xla_call:
            return self.of(plan).one_step(batch)
        return SplitStep(self._model, self._line, xla=True).gradients, batch

    def plain_step(self) -> Function:
        """Returns Keras' own step for use while a plan is installed; the user's is one a call."""
        train, traced = self.keras[0], False

        def step(iterator: Any) -> dict[str, Any]:
            nonlocal traced
            if traced:
                return train(iterator)
            traced = True  # in here; from then on the number of steps is part of the graph
            planned = self.users_steps_per_call
            self._line.set_steps_per_execution(self._model, 1)
            try:
                return train(iterator)
            finally:
                self._line.set_steps_per_execution(self._model, planned)

        return step

    @contextlib.contextmanager
    def installed(self, train_function: Any, test_function: Any) -> Iterator[None]:
        """Puts functions in the place of Keras'; see `replaced`."""
        model, users_steps = self._model, self.users_steps_per_call
        with self.replaced():
            model.train_function, model.test_function = train_function, test_function
            try:
                yield
            finally:
                self._line.set_steps_per_execution(model, users_steps)

    @contextlib.contextmanager
    def replaced(self) -> Iterator[None]:
        """Wraps a `fit` with functions in the place of Keras'.

        They are called with direct iterators. Afterwards Keras makes its own functions.
        """
        model = self._model
        try:
            with direct_iterators(model.distribute_strategy):
                yield
        finally:
            model.train_function = model.test_function = None

    def _make(self, plan: TrainingPlan) -> steps.MultiStep:
        model, line = self._model, self._line
        journal = None if self._slicing_obstacle else Journal(model, line)
        if plan.xla:
            self._shapes[plan] = InputShapes()
        step = steps.train_step(
            model,
            line,
            xla=plan.xla,
            fused_update=plan.fused_update,
            recompute=plan.recompute,
            journal=journal,
            shapes=self._shapes.get(plan),
        )
        return steps.MultiStep(
            step,
            strategy=model.distribute_strategy,
            countdown=self._countdown,
            reduction=line.reduction,
            counter=line.step_counters(model)[0],
            journal=journal,
        )


def _traced(plan: TrainingPlan) -> TrainingPlan:
    """Returns what the plans that share a traced function have in common."""
    return plan.model_copy(update={"steps_per_call": 1, "micro_batches": 1})
