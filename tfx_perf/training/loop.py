"""Runs `fit` with a plan: Keras' shell around our train and test functions."""

import contextlib
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from tfx_perf.interception import FitCall
from tfx_perf.training import keras_line, steps
from tfx_perf.training.plan import TrainingPlan
from tfx_perf.training.timer import StepTimer


def length_of(data: Any, step_count: int | None) -> int | None:
    """Returns how many steps an epoch over `data` has, None if that is unknown."""
    if step_count is not None and step_count > 0:
        return step_count
    if not isinstance(data, tf.data.Dataset):
        return None
    cardinality = int(data.cardinality())
    return cardinality if cardinality >= 0 else None


class Loop:
    """Trains one model with any plan; compiled functions are kept between runs.

    Plans that differ only in `steps_per_call` share one traced function.
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
        self._keras_functions: tuple[Any, Any] | None = None

    def fit(
        self, plan: TrainingPlan, *, deadline: float | None = None, **overrides: Any
    ) -> tuple[Any, StepTimer]:
        """Runs `fit` with the plan.

        Args:
            plan: how to run the steps.
            deadline: when to give up, on `time.perf_counter`'s clock.
            **overrides: arguments of `fit` to replace.

        Returns:
            The History, and the timer that watched.

        Raises:
            TooSlowError: the deadline passed.
        """
        arguments = {**self._call.arguments, **overrides}
        callbacks = list(arguments["callbacks"] or ())
        if plan.is_plain_fit:
            shell = self._quickly_traced()
            timer = StepTimer(
                steps_in_call=lambda: self.line.get_steps_per_execution(self._model),
                deadline=deadline,
            )
        else:
            shell = self._installed(plan)
            timer = StepTimer(
                steps_in_call=lambda: self._training.last_call_steps, deadline=deadline
            )
            callbacks.insert(0, self._counter(plan, arguments))
        callbacks.append(timer.callback(self.line.callbacks))
        with shell:
            return self._call.proceed(**{**overrides, "callbacks": callbacks}), timer

    def observe(self) -> tuple[Any, StepTimer]:
        """Runs Keras' own `fit`, nothing replaced, and only times it."""
        timer = StepTimer(steps_in_call=lambda: self.line.get_steps_per_execution(self._model))
        callbacks = [*(self._call.arguments["callbacks"] or ()), timer.callback(self.line.callbacks)]
        return self._call.proceed(callbacks=callbacks), timer

    @contextlib.contextmanager
    def _quickly_traced(self) -> Iterator[None]:
        """Lets Keras build and keep its own functions, traced without AutoGraph."""
        model = self._model
        with self.line.without_autograph():
            if self._keras_functions:
                model.train_function, model.test_function = self._keras_functions
            try:
                yield
                self._keras_functions = model.train_function, model.test_function
            finally:
                model.train_function = model.test_function = None

    @contextlib.contextmanager
    def _installed(self, plan: TrainingPlan) -> Iterator[None]:
        """Puts our functions in the place of Keras'."""
        model = self._model
        users_steps = self.line.get_steps_per_execution(model)
        model.train_function = self._train_function(plan)
        model.test_function = self._test_function(plan)
        self.line.set_steps_per_execution(model, plan.steps_per_call)
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
                counter=self.line.step_counters(self._model)[0],
            )
        function = self._train[plan.xla]
        function.steps_per_call = plan.steps_per_call
        return function

    def _test_function(self, plan: TrainingPlan) -> steps.MultiStep:
        if self._test is None:
            self._test = steps.MultiStep(
                self._model.test_step,
                strategy=self._model.distribute_strategy,
                countdown=self._testing,
                counter=self.line.step_counters(self._model)[1],
            )
        self._test.steps_per_call = plan.steps_per_call
        return self._test

    def _counter(self, plan: TrainingPlan, arguments: dict[str, Any]) -> Any:
        """Returns the callback that tells the functions where epochs and evaluations begin."""
        train_length = length_of(arguments["x"], arguments["steps_per_epoch"])
        validation = arguments["validation_data"]
        test_length = length_of(validation, arguments["validation_steps"])
        if test_length is None:  # nobody knows where to cut a call short, so take single steps
            self._test_function(plan).steps_per_call = 1

        def on_train_begin(logs: Any = None) -> None:
            test_steps = self._test_function(plan).steps_per_call if test_length else 1
            self.line.set_steps_per_execution(self._model, test_steps)

        callback = self.line.callbacks.LambdaCallback(
            on_train_begin=on_train_begin,
            on_epoch_begin=lambda epoch, logs=None: self._training.begin(train_length),
        )
        callback.on_test_begin = lambda logs=None: self._testing.begin(test_length)
        callback._supports_tf_logs = True
        return callback
