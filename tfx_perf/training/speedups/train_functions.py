"""TrainFunctions: Keras' own train function and ours, made once for each model."""

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from tfx_perf.core import errors
from tfx_perf.tf_internals import graphs
from tfx_perf.tf_internals.built_optimizer import build_used_optimizer
from tfx_perf.training.fit.takeover import blocking_other_threads, direct_iterators
from tfx_perf.training.keras_api.base_api import Function, KerasApi
from tfx_perf.training.keras_api.keras_function import KerasFunction, KerasFunctions
from tfx_perf.training.speedups.plan import TrainingPlan
from tfx_perf.training.step.compiled_call import CompiledCall
from tfx_perf.training.step.slices import slicing_obstacle
from tfx_perf.training.step.split_step import SplitStep
from tfx_perf.training.step.step_runner import StepRunner, TracedSteps
from tfx_perf.training.step.steps import MultiStep


class TrainFunctions:
    """The functions that may be set as `model.train_function`.

    Plans with the same `step_arguments` share one traced step; each run gets its own runner.
    """

    def __init__(self, model: Any, keras_api: KerasApi, *, renewed: Callable[[], None]) -> None:
        self.model = model
        self.keras_api = keras_api
        self._renewed = renewed
        self._made: dict[tuple[tuple[str, Any], ...], MultiStep] = {}
        self._kept: dict[str, CompiledCall] = {}
        self._plain_count = 0
        self._keras: KerasFunctions | None = None

    @property
    def are_valid(self) -> bool:
        """Whether the functions are still valid; a new `compile` would have dropped Keras' own."""
        step = self._keras and self._keras.train
        return step is not None and step.is_traceable and self.model.train_function is step.wrapped

    @property
    def keras(self) -> KerasFunctions:
        """Keras' own functions for training and evaluation."""
        if self._keras is None:
            self._keras = self.keras_api.keras_functions(self.model)
        return self._keras

    def on_trial(self) -> Callable[[], None]:
        """Prepares Keras' own functions for trials; returns a function that undoes their draws.

        If operations count draws internally, it restores the old functions, or has new ones made.
        """
        before = self._keras
        if before is not None and before.train.has_operation(graphs.hides_draws):
            self._keras = None

        def end() -> None:
            if self._keras is not None and self._keras.train.has_operation(graphs.hides_draws):
                self._keras.train.numbers.restore()
                self._keras = before
            self.model.train_function, self.model.test_function = self.keras_originals()

        return end

    @functools.cached_property
    def slicing_obstacle(self) -> str | None:
        """The reason why no batch of the model can be cut into micro-batches; None if it can."""
        return slicing_obstacle(self.model, self.keras_api)

    def of(self, plan: TrainingPlan, *, may_end: bool = False) -> StepRunner:
        """Returns a runner of a plan's steps, for one run; raises UserError if it cannot slice.

        `may_end` is for data that may end in any call; see `MultiStep.run`.
        """
        if plan.micro_batches > 1 and self.slicing_obstacle:
            raise errors.UserError(
                f"Expected a model that can train in micro-batches. Received: "
                f"micro_batches={plan.micro_batches}, but {self.slicing_obstacle}. "
                "Train with micro_batches=1."
            )
        build_used_optimizer(self.model)  # needed by parts of a step that are traced once
        runner: StepRunner = TracedSteps(
            self.traced(plan), micro_batches=plan.micro_batches, may_end=may_end
        )
        for each in plan.speedups:
            runner = each.around(runner, plan, self)
        return runner

    def traced(self, plan: TrainingPlan) -> MultiStep:
        """Returns the traced step of a plan, which it shares with others."""
        key = _key(plan)
        if key not in self._made:
            self._made[key] = self._make(plan)
        return self._made[key]

    def kept(self, name: str, make: Callable[[], CompiledCall]) -> CompiledCall:
        """Returns the traced functions of the speedup `name`; makes them the first time."""
        if name not in self._kept:
            self._kept[name] = make()
        return self._kept[name]

    def used_by(self, plan: TrainingPlan) -> MultiStep | CompiledCall | None:
        """Returns the traced functions that run a plan's steps; None before they are made."""
        if plan.is_plain_fit:
            return None
        functions = (self._kept.get(each.name) for each in plan.speedups)
        return next(filter(None, functions), None) or self._made.get(_key(plan))

    def operation_count(self, plan: TrainingPlan) -> int:
        """Returns about how many operations TensorFlow starts for a plan's step; 0 if unknown."""
        functions = None if plan.is_plain_fit else self._made.get(_key(plan))
        return 0 if functions is None else functions.operation_count

    def compiled_part(self, plan: TrainingPlan, batch: Any) -> tuple[Callable[[Any], Any], Any]:
        """Returns the part of a plan's step that XLA compiles, and its input for a batch."""
        parts = (each.compiled_part(batch, plan, self) for each in plan.speedups)
        return next(part for part in parts if part)

    def plain_step(self, iterator: Any) -> dict[str, Any]:
        """Runs one call of Keras' own function, for use while a plan is installed."""
        logs = self.keras.train(iterator)
        self._plain_count += self.keras_api.get_steps_per_execution(self.model)
        return logs

    @property
    def done_count(self) -> int:
        """Steps that the functions of plans, trials included, and `plain_step` have run."""
        return sum(each.done_count for each in self._all_traced) + self._plain_count

    @property
    def used_variables(self) -> list[tf.Variable] | None:
        """The variables that traced functions read or write; None if one does not report."""
        functions: list[MultiStep | KerasFunction] = [*self._made.values()]
        if self._keras is not None:
            functions.append(self._keras.train)
        by_function = [list(each.used_variables()) for each in functions]
        return list(itertools.chain(*by_function)) if all(by_function) else None

    @contextlib.contextmanager
    def replaced(self) -> Iterator[None]:
        """Wraps a `fit` in which functions are replaced, and called with direct iterators.

        Keras' own functions are restored afterwards, as if they had been used.
        """
        model = self.model
        try:
            with blocking_other_threads(model), direct_iterators(model, self.keras_api):
                yield
        finally:
            model.train_function, model.test_function = self.keras_originals()

    def keras_originals(self) -> tuple[Function, Function]:
        """Returns Keras' own functions for training and evaluation, to be called."""
        return self.keras.train.wrapped, self.keras.test

    def retrace(self, train: Function | None = None) -> None:
        """Makes all functions trace again, since trainable weights may have changed.

        `train` is Keras' own train function, if Keras has made a new one since.
        """
        self._keras = self.keras_api.keras_functions(self.model, train=train)
        for each in self._all_traced:
            each.retrace()
        self._renewed()

    @property
    def _all_traced(self) -> list[MultiStep | CompiledCall]:
        return [*self._made.values(), *self._kept.values()]

    def _make(self, plan: TrainingPlan) -> MultiStep:
        model, keras_api = self.model, self.keras_api
        arguments, split = plan.step_arguments, None
        if arguments or not self.slicing_obstacle:
            split = SplitStep(model, keras_api, **arguments)
        return MultiStep(model, keras_api, method="train_step", split=split)


def _key(plan: TrainingPlan) -> tuple[tuple[str, Any], ...]:
    return tuple(plan.step_arguments.items())
