"""Runs `fit` with a plan: Keras' shell around our train and test functions."""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from tfx_perf.interception import FitCall
from tfx_perf.training import keras_line, steps
from tfx_perf.training.plan import TrainingPlan
from tfx_perf.training.timer import StepTimer
from tfx_perf.training.turns import Schedule, Turn, Turns

_ENDLESS = 10**9
_ON_TRIAL = {
    "epochs": 1,
    "initial_epoch": 0,
    "validation_data": None,
    "callbacks": None,
    "verbose": 0,
}


def length_of(data: Any, step_count: int | None) -> int | None:
    """Returns how many steps an epoch over `data` has, None if that is unknown."""
    if step_count is not None and step_count > 0:
        return step_count
    if not isinstance(data, tf.data.Dataset):
        return None
    cardinality = int(data.cardinality())
    return cardinality if cardinality >= 0 else None


def callback_list(callbacks: Any) -> list[Any]:
    """Returns what the user may have given to `fit` (None, one, several) as a new list."""
    callbacks = getattr(callbacks, "callbacks", callbacks)  # a CallbackList
    return [] if callbacks is None else list(tf.nest.flatten(callbacks))


class Loop:
    """Trains one model with any plan; compiled functions are kept between runs.

    Plans that differ only in `steps_per_call` share one traced function.

    Attributes:
        line: the model's Keras line.
    """

    def __init__(self, call: FitCall) -> None:
        """Prepares to run `call`, or variations of it."""
        self._call = call
        self._model = call.model
        self.line = keras_line.line_of(call.model)
        self._training = steps.Countdown()
        self._testing = steps.Countdown()
        self._train: dict[bool, steps.MultiStep] = {}
        self._test: steps.MultiStep | None = None

    @property
    def train_length(self) -> int | None:
        """Steps of an epoch, None if unknown."""
        arguments = self._call.arguments
        return length_of(arguments["x"], arguments["steps_per_epoch"])

    @property
    def users_steps_per_call(self) -> int:
        """The `steps_per_execution` of the user's `compile`."""
        return self.line.get_steps_per_execution(self._model)

    def observe(self) -> tuple[Any, StepTimer]:
        """Runs Keras' own `fit`, nothing replaced; returns its History and the timer."""
        return self._timed(self._call.arguments, lambda: self.users_steps_per_call)

    def fit(self, plan: TrainingPlan) -> tuple[Any, StepTimer]:
        """Runs the user's `fit` with the plan; returns its History and the timer."""
        return self._planned(plan, {})

    def try_out(
        self,
        plan: TrainingPlan,
        data: tf.data.Dataset,
        *,
        step_count: int,
        stop_when: Callable[[StepTimer], bool],
    ) -> tuple[Any, StepTimer]:
        """Trains a little, without callbacks or validation.

        Args:
            plan: how to run the steps.
            data: what to train on, in place of the user's data.
            step_count: how many steps.
            stop_when: asked after every call; True ends the training.

        Returns:
            The History, and the timer that watched.
        """
        overrides = {**_ON_TRIAL, "x": data, "steps_per_epoch": step_count}
        return self._planned(plan, overrides, stop_when=stop_when)

    def take_turns(self, schedule: Schedule, data: tf.data.Dataset) -> None:
        """Trains on endless data, in blocks, as the schedule asks; see `Turns`."""
        try:
            callback = Turns(self._model, schedule).callback(self.line.callbacks)
            overrides = {**_ON_TRIAL, "x": data, "steps_per_epoch": _ENDLESS}
            self._call.proceed(**{**overrides, "callbacks": [callback]})
        finally:
            self._model.train_function = None

    def turn(self, plan: TrainingPlan, *, iterator: Any = None) -> Turn:
        """Returns a turn with the plan, over Keras' iterator or over another one."""
        if plan.is_plain_fit:
            function, count = self._keras_functions[0], self.users_steps_per_call
        else:
            count = plan.steps_per_call
            function = functools.partial(self._train_function(plan).run, steps=count)
        if iterator is None:
            return Turn(function, count)
        return Turn(lambda _: function(iterator), count)

    def iterator_over(self, data: tf.data.Dataset) -> Any:
        """Returns the iterator that `fit` makes of the data: distributed, with class weights."""
        kept = []

        def keep(iterator: Any) -> dict[str, Any]:
            kept.append(iterator)
            return {}

        self._model.train_function = keep
        try:
            self._call.proceed(**{**_ON_TRIAL, "x": data, "steps_per_epoch": 1})
        finally:
            self._model.train_function = None
        return kept[0]

    def _planned(
        self,
        plan: TrainingPlan,
        overrides: dict[str, Any],
        *,
        stop_when: Callable[[StepTimer], bool] | None = None,
    ) -> tuple[Any, StepTimer]:
        arguments = {**self._call.arguments, **overrides}
        if plan.is_plain_fit:
            with self._installed(*self._keras_functions):
                return self._timed(arguments, lambda: self.users_steps_per_call, stop_when)
        first, last = self._counters(plan, arguments)
        arguments["callbacks"] = [first, *callback_list(arguments["callbacks"]), last]
        data = arguments["x"]
        if self.line.overcounts and arguments["steps_per_epoch"] and length_of(data, None):
            # Over endless data nothing depends on Keras' count; see eligibility.
            arguments["x"] = data.repeat()
        with self._installed(self._train_function(plan), None):
            self.line.set_steps_per_execution(self._model, plan.steps_per_call)
            return self._timed(arguments, lambda: self._training.last_call_steps, stop_when)

    def _timed(
        self,
        arguments: dict[str, Any],
        steps_in_call: Callable[[], int],
        stop_when: Callable[[StepTimer], bool] | None = None,
    ) -> tuple[Any, StepTimer]:
        timer = StepTimer(steps_in_call=steps_in_call, stop_when=stop_when)
        callbacks = callback_list(arguments["callbacks"])
        callbacks.append(timer.callback(self.line.callbacks))
        return self._call.proceed(**{**arguments, "callbacks": callbacks}), timer

    @functools.cached_property
    def _keras_functions(self) -> tuple[keras_line.Function, keras_line.Function]:
        return self.line.keras_functions(self._model)

    @contextlib.contextmanager
    def _installed(self, train_function: Any, test_function: Any) -> Iterator[None]:
        """Puts functions in the place of Keras', and afterwards lets Keras make its own."""
        model, users_steps = self._model, self.users_steps_per_call
        model.train_function, model.test_function = train_function, test_function
        try:
            yield
        finally:
            model.train_function = model.test_function = None
            self.line.set_steps_per_execution(model, users_steps)

    def _train_function(self, plan: TrainingPlan) -> steps.MultiStep:
        if plan.xla not in self._train:
            self._train[plan.xla] = steps.MultiStep(
                steps.train_step(self._model, self.line, xla=plan.xla),
                strategy=self._model.distribute_strategy,
                countdown=self._training,
                reduction=self.line.reduction,
                counter=self.line.step_counters(self._model)[0],
            )
        function = self._train[plan.xla]
        function.steps_per_call = plan.steps_per_call
        return function

    def _test_function(self, plan: TrainingPlan, arguments: dict[str, Any]) -> steps.MultiStep:
        if self._test is None:
            self._test = steps.MultiStep(
                self._model.test_step,
                strategy=self._model.distribute_strategy,
                countdown=self._testing,
                reduction=self.line.reduction,
                counter=self.line.step_counters(self._model)[1],
            )
        length = length_of(arguments["validation_data"], arguments["validation_steps"])
        # If nobody knows where to cut a call short, single steps are taken.
        self._test.steps_per_call = 1 if length is None else plan.steps_per_call
        return self._test

    def _counters(self, plan: TrainingPlan, arguments: dict[str, Any]) -> tuple[Any, Any]:
        """Returns the callbacks that tell the functions where epochs and evaluations begin.

        One stands before the user's callbacks and one behind them, so that these find the
        model as they would in plain `fit`: `evaluate` in a callback is Keras' own.
        """
        model, line = self._model, self.line
        test = self._test_function(plan, arguments)
        train_length = length_of(arguments["x"], arguments["steps_per_epoch"])
        test_length = length_of(arguments["validation_data"], arguments["validation_steps"])
        users_steps, users_test_function = self.users_steps_per_call, None

        def leave(*_: Any, **__: Any) -> None:
            line.set_steps_per_execution(model, users_steps)
            model.test_function = users_test_function

        def enter(epoch: int, logs: Any = None) -> None:
            nonlocal users_test_function
            users_test_function = model.test_function
            model.test_function = test
            line.set_steps_per_execution(model, test.steps_per_call)  # for the evaluation
            self._training.begin(train_length)

        first = line.callbacks.LambdaCallback(
            on_train_begin=leave,
            on_epoch_end=leave,
            on_test_begin=lambda logs=None: self._testing.begin(test_length),
        )
        last = line.callbacks.LambdaCallback(on_epoch_begin=enter)
        first._supports_tf_logs = last._supports_tf_logs = True
        return first, last
