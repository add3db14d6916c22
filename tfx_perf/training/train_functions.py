"""TrainFunctions: Keras' own train function and ours, made once for each model."""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

from tfx_perf import errors
from tfx_perf.training.direct_iterators import FitIterators, direct_iterators
from tfx_perf.training.lines.base_line import Function, KerasLine
from tfx_perf.training.lines.keras_function import KerasFunction
from tfx_perf.training.plan import TrainingPlan
from tfx_perf.training.step import steps
from tfx_perf.training.step.compiled_call import CompiledCall
from tfx_perf.training.step.input_shapes import InputShapes
from tfx_perf.training.step.journal import Journal
from tfx_perf.training.step.slicing_obstacle import slicing_obstacle
from tfx_perf.training.step.split_step import SplitStep
from tfx_perf.training.takeover import Takeover


class TrainFunctions:
    """The functions that may stand in `model.train_function`.

    Plans that differ only in `steps_per_call` and `micro_batches` share one traced function.
    """

    def __init__(
        self,
        model: Any,
        line: KerasLine,
        *,
        countdown: steps.Countdown,
        renewed: Callable[[], None],
    ) -> None:
        """Makes none yet.

        Args:
            model: a compiled model.
            line: the model's.
            countdown: says how many steps the epoch still has.
            renewed: is called when they must be traced anew.
        """
        self._model = model
        self._line = line
        self._countdown = countdown
        self._renewed = renewed
        self._made: dict[TrainingPlan, steps.MultiStep] = {}
        self._shapes: dict[TrainingPlan, InputShapes] = {}
        self._compiled: CompiledCall | None = None
        self._keras: tuple[KerasFunction, KerasFunction] | None = None
        self._takeover = Takeover(model, line, renew=self._renew)

    @property
    def users_steps_per_call(self) -> int:
        """The `steps_per_execution` of the user's `compile`, or of the plan that is installed."""
        return self._line.get_steps_per_execution(self._model)

    @property
    def are_valid(self) -> bool:
        """Whether the model is compiled as it was when they were made.

        `compile` takes Keras' own away.
        """
        return self._keras is not None and self._model.train_function is self._keras[0].own

    @property
    def keras(self) -> tuple[KerasFunction, KerasFunction]:
        """Keras' own functions for training and evaluation."""
        if self._keras is None:
            with self._takeover.suspended():
                self._keras = self._line.keras_functions(self._model)
        return self._keras

    @functools.cached_property
    def slicing_obstacle(self) -> str | None:
        """Why no batch of the model can be cut into micro-batches; None if it can."""
        return slicing_obstacle(self._model, self._line)

    def of(self, plan: TrainingPlan) -> Any:  # CompiledCall with `xla_call`, else MultiStep
        """Returns the function that runs a plan's steps, as it was left."""
        if plan.xla_call:
            if self._compiled is None:
                stepwise = self.of(plan.stepwise)
                self._compiled = CompiledCall(self._model, self._line, stepwise=stepwise)
            return self._compiled
        traced = _traced(plan)
        if traced not in self._made:
            self._made[traced] = self._make(traced)
        return self._made[traced]

    def set_to(self, plan: TrainingPlan) -> Any:  # as `of`
        """Returns the function that runs a plan's steps, with the plan's numbers of them.

        Raises:
            UserError: the model cannot be trained in micro-batches.
        """
        if plan.micro_batches > 1 and self.slicing_obstacle:
            raise errors.UserError(
                f"Expected a model that can train in micro-batches. Received: "
                f"micro_batches={plan.micro_batches}, but {self.slicing_obstacle}. "
                "Train with micro_batches=1."
            )
        function = self.of(plan)
        function.steps_per_call = plan.steps_per_call
        if not plan.xla_call:
            function.micro_batches = plan.micro_batches
        return function

    def trace_seconds(self, plan: TrainingPlan) -> float | None:
        """Returns what tracing a plan's steps took; None for plain `fit`."""
        return None if plan.is_plain_fit else self.of(plan).trace_seconds

    def compiled_shapes(self, plan: TrainingPlan) -> tuple[str, ...] | None:
        """Returns the input shapes that XLA compiled a plan's step for; None without XLA."""
        shapes = self._compiled.shapes if self._compiled else None
        if not plan.xla_call:
            shapes = self._shapes.get(_traced(plan))
        return shapes.found() if shapes else None

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
        traced: Any = None

        def step(iterator: Any) -> dict[str, Any]:
            nonlocal traced
            train = self.keras[0]
            if train is traced:
                return train(iterator)
            traced = train  # in here; from then on the number of steps is part of the graph
            planned = self.users_steps_per_call
            self._line.set_steps_per_execution(self._model, 1)
            try:
                return train(iterator)
            finally:
                self._line.set_steps_per_execution(self._model, planned)

        return step

    @contextlib.contextmanager
    def installed(
        self,
        train: Any,
        test: Any,
        *,
        steps_per_call: int | None = None,
        iterators: FitIterators | None = None,
    ) -> Iterator[None]:
        """Puts functions in the place of Keras' while a `fit` runs; see `Takeover`."""
        with self._takeover.installed(
            train,
            test,
            theirs=self._theirs(),
            steps_per_call=steps_per_call,
            iterators=iterators,
        ):
            yield

    @contextlib.contextmanager
    def replaced(self) -> Iterator[None]:
        """Wraps a `fit` without callbacks that may have other functions put in by anybody.

        They are called with direct iterators. Afterwards Keras' own are in their place, as if
        they had been used.
        """
        model = self._model
        try:
            with direct_iterators(model.distribute_strategy):
                yield
        finally:
            model.train_function, model.test_function = self._theirs()

    def _theirs(self) -> tuple[Function, Function]:
        """Returns Keras' own functions as Keras made them."""
        train, test = self.keras
        return train.own, test.own

    def _renew(self) -> tuple[Function, Function]:
        """Has everything be traced anew, for what can be trained may have changed."""
        self._keras = None
        for plan, function in self._made.items():
            function.retrace(self._step(plan, function.journal))
        if self._compiled is not None:
            self._compiled.retrace()
        self._renewed()
        return self._theirs()

    def _make(self, plan: TrainingPlan) -> steps.MultiStep:
        model, line = self._model, self._line
        journal = None if self.slicing_obstacle else Journal(model, line)
        if plan.xla:
            self._shapes[plan] = InputShapes()
        return steps.MultiStep(
            self._step(plan, journal),
            strategy=model.distribute_strategy,
            countdown=self._countdown,
            reduction=line.reduction,
            counter=line.step_counters(model)[0],
            journal=journal,
        )

    def _step(self, plan: TrainingPlan, journal: Journal | None) -> steps.Step:
        return steps.train_step(
            self._model,
            self._line,
            xla=plan.xla,
            fused_update=plan.fused_update,
            recompute=plan.recompute,
            journal=journal,
            shapes=self._shapes.get(plan),
        )


def _traced(plan: TrainingPlan) -> TrainingPlan:
    """Returns what the plans that share a traced function have in common."""
    return plan.model_copy(update={"steps_per_call": 1, "micro_batches": 1})
