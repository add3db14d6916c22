"""TrainFunctions: Keras' own train function and ours, made once for each model."""

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeVar, cast

import tensorflow as tf

from tfx_perf.core import errors
from tfx_perf.tf_internals.built_optimizer import build_used_optimizer
from tfx_perf.tf_internals.iterators import FitIterators, direct_iterators
from tfx_perf.training.fit.takeover import StepsOfCalls, Takeover, others_wait
from tfx_perf.training.keras_api.base_api import Function, KerasApi
from tfx_perf.training.keras_api.keras_function import KerasFunction, KerasFunctions
from tfx_perf.training.optimizations.plan import TrainingPlan
from tfx_perf.training.replicas import strategies
from tfx_perf.training.step import steps
from tfx_perf.training.step.journal import Journal
from tfx_perf.training.step.slices import slicing_obstacle
from tfx_perf.training.step.step_runner import Countdown, StepRunner, TracedSteps
from tfx_perf.training.step.steps import MultiStep


class Kept(Protocol):
    """An optimization's traced functions, for use in all runs."""

    @property
    def trace_count(self) -> int:
        """How often it was traced."""

    @property
    def trace_seconds(self) -> float:
        """Seconds that the traces took."""

    @property
    def compiled_shapes(self) -> tuple[str, ...] | None:
        """The input shapes that XLA compiled for; None without XLA."""

    @property
    def done_count(self) -> int:
        """Steps that it has run and no `MultiStep` has."""

    def retrace(self) -> None:
        """Forgets what was traced."""


KeptT = TypeVar("KeptT", bound=Kept)


class TrainFunctions:
    """The functions that may stand in `model.train_function`.

    Plans with the same `step_arguments` share one traced step; each run gets its own runner.
    """

    def __init__(
        self,
        model: Any,
        keras_api: KerasApi,
        *,
        countdown: Countdown,
        renewed: Callable[[], None],
    ) -> None:
        self.model = model
        self.keras_api = keras_api
        self._countdown = countdown
        self._renewed = renewed
        self._made: dict[tuple[tuple[str, Any], ...], MultiStep] = {}
        self._kept: dict[str, Kept] = {}
        self._plain_count = 0
        self._keras: KerasFunctions | None = None
        self._takeover = Takeover(model, keras_api, renew=self._renew)

    @property
    def users_steps_per_call(self) -> int:
        """The `steps_per_execution` of the user's `compile`."""
        return self.keras_api.get_steps_per_execution(self.model)

    @property
    def are_valid(self) -> bool:
        """Whether the model is compiled as when they were made; `compile` drops Keras' own."""
        return self._keras is not None and self.model.train_function is self._keras.train.own

    @property
    def keras(self) -> KerasFunctions:
        """Keras' own functions for training and evaluation."""
        if self._keras is None:
            self._keras = self._takeover.keras_functions()
        return self._keras

    def on_trial(self) -> Callable[[], None]:
        """Prepares Keras' own functions for trials; returns a function that undoes their draws.

        Where operations count their draws, it puts back the old functions, or has new ones made.
        """
        before = self._keras
        if before is not None and before.train.hides_draws:
            self._keras = None

        def end() -> None:
            if self._keras is not None and self._keras.train.hides_draws:
                self._keras.train.numbers.put_back()
                self._keras = before
            self.model.train_function, self.model.test_function = self._theirs()

        return end

    @functools.cached_property
    def slicing_obstacle(self) -> str | None:
        """The reason why no batch of the model can be cut into micro-batches; None if it can."""
        return slicing_obstacle(self.model, self.keras_api)

    def of(self, plan: TrainingPlan) -> StepRunner:
        """Returns a runner of a plan's steps, for one run; raises UserError if it cannot slice."""
        return self.around(plan, self.stepwise(plan))

    def stepwise(self, plan: TrainingPlan) -> TracedSteps:
        """Returns a runner of a plan's single steps, for one run; raises UserError as `of`."""
        if plan.micro_batches > 1 and self.slicing_obstacle:
            raise errors.UserError(
                f"Expected a model that can train in micro-batches. Received: "
                f"micro_batches={plan.micro_batches}, but {self.slicing_obstacle}. "
                "Train with micro_batches=1."
            )
        build_used_optimizer(self.model)  # which parts of a step that are traced once have to know
        return TracedSteps(
            self.traced(plan),
            countdown=self._countdown,
            steps_per_call=plan.steps_per_call,
            micro_batches=plan.micro_batches,
        )

    def around(self, plan: TrainingPlan, runner: StepRunner) -> StepRunner:
        """Returns the runner of a plan's single steps with the plan's wrappers."""
        for each in plan.optimizations:
            runner = each.around(runner, plan, self)
        return runner

    def traced(self, plan: TrainingPlan) -> MultiStep:
        """Returns the traced step of a plan, which it shares with others."""
        key = _key(plan)
        if key not in self._made:
            self._made[key] = self._make(plan)
        return self._made[key]

    def kept(self, name: str, make: Callable[[], KeptT]) -> KeptT:
        """Returns the traced functions of the optimization `name`; makes them the first time."""
        if name not in self._kept:
            self._kept[name] = make()
        return cast("KeptT", self._kept[name])

    def trace_seconds(self, plan: TrainingPlan) -> float | None:
        """Returns the time to trace a plan's steps; None if they were not traced."""
        found = self._found(plan)
        return None if found is None else found.trace_seconds

    def trace_count(self, plan: TrainingPlan) -> int | None:
        """Returns how often a plan's steps were traced; None if they were not."""
        found = self._found(plan)
        return None if found is None else found.trace_count

    def operation_count(self, plan: TrainingPlan) -> int:
        """Returns about how many operations TensorFlow starts for a plan's step; 0 if unknown."""
        found = None if plan.is_plain_fit else self._made.get(_key(plan))
        return 0 if found is None else found.operation_count

    def compiled_shapes(self, plan: TrainingPlan) -> tuple[str, ...] | None:
        """Returns the input shapes that XLA compiled a plan's step for; None without XLA."""
        found = self._found(plan)
        return None if found is None else found.compiled_shapes

    def compiled_part(self, plan: TrainingPlan, batch: Any) -> tuple[Callable[[Any], Any], Any]:
        """Returns the part of a plan's step that XLA compiles, and its input for a batch."""
        parts = (each.compiled_part(batch, plan, self) for each in plan.optimizations)
        return next(part for part in parts if part)

    def plain_step(self, iterator: Any) -> dict[str, Any]:
        """Runs one call of Keras' own function, for use while a plan is installed."""
        logs = self.keras.train(iterator)
        self._plain_count += self.users_steps_per_call
        return logs

    @property
    def done_count(self) -> int:
        """Steps that the functions of plans, trials included, and `plain_step` have run."""
        own = sum(function.done_count for function in self._made.values())
        kept = sum(each.done_count for each in self._kept.values())
        return own + kept + self._plain_count

    @property
    def used_variables(self) -> list[tf.Variable] | None:
        """The variables that traced functions read or write; None if one does not tell."""
        functions: list[MultiStep | KerasFunction] = [*self._made.values()]
        if self._keras is not None:
            functions.append(self._keras.train)
        found = [list(each.used_variables()) for each in functions]
        return list(itertools.chain(*found)) if all(found) else None

    @property
    def takeover(self) -> Takeover:
        """The `Takeover` that puts functions in the place of Keras'."""
        return self._takeover

    @contextlib.contextmanager
    def installed(
        self,
        train: Any,
        test: Any,
        *,
        steps_per_call: StepsOfCalls | None = None,
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

    def count_before(self, steps: int) -> None:
        """Has Keras count steps of epochs before with those of its iterator over the data."""
        self._takeover.count_before(steps)

    @contextlib.contextmanager
    def replaced(self) -> Iterator[None]:
        """Wraps a `fit` in which functions are replaced, and called with direct iterators.

        Keras' own are in their place afterwards, as if used.
        """
        model = self.model
        before = model.train_function, model.test_function
        is_inside = self._takeover.is_installed  # of a `fit` that runs
        try:
            with (
                others_wait(model),
                direct_iterators(model.distribute_strategy),
                self._takeover.suspended(),
            ):
                yield
        finally:
            model.train_function, model.test_function = before if is_inside else self._theirs()

    def _theirs(self) -> tuple[Function, Function]:
        return self.keras.train.own, self.keras.test.own

    def retrace(self) -> None:
        """Forgets what was traced."""
        self._renew()

    def _renew(self) -> tuple[Function, Function]:
        """Has everything traced anew, since trainable weights may have changed."""
        self._keras = None
        for key, function in self._made.items():
            function.retrace(self._step(dict(key), function.journal, function.shapes))
        for kept in self._kept.values():
            kept.retrace()
        self._renewed()
        return self._theirs()

    def _found(self, plan: TrainingPlan) -> MultiStep | Kept | None:
        """Returns the traced functions of a plan, None if there are none; makes none."""
        if plan.is_plain_fit:
            return None
        kept = (self._kept.get(each.name) for each in plan.optimizations)
        return next(filter(None, kept), None) or self._made.get(_key(plan))

    def _make(self, plan: TrainingPlan) -> MultiStep:
        model, keras_api = self.model, self.keras_api
        # One of several workers cannot run a step again that the others wait in.
        is_alone = strategies.worker_count(model.distribute_strategy) == 1
        can_repeat = is_alone and not self.slicing_obstacle
        journal = Journal(model, keras_api) if can_repeat else None
        arguments = plan.step_arguments
        shapes: dict[str, None] | None = {} if arguments["xla"] else None
        return MultiStep(
            self._step(arguments, journal, shapes),
            model,
            keras_api=keras_api,
            counter=keras_api.step_counters(model).train,
            has_own_logs=keras_api.has_own_logs(model, "train_step"),
            journal=journal,
            shapes=shapes,
        )

    def _step(
        self, arguments: dict[str, Any], journal: Journal | None, shapes: dict[str, None] | None
    ) -> steps.Step:
        return steps.train_step(
            self.model,
            self.keras_api,
            **arguments,
            may_slice=not self.slicing_obstacle,
            journal=journal,
            shapes=shapes,
        )


def _key(plan: TrainingPlan) -> tuple[tuple[str, Any], ...]:
    """Returns the properties that plans with the same traced step share."""
    return tuple(plan.step_arguments.items())
