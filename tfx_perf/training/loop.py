"""Runs `fit` with a plan: Keras' shell around our train and test functions."""

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfx_perf.interception import FitCall
from tfx_perf.training.epochs import Epochs
from tfx_perf.training.fit_arguments import callback_list, length_of
from tfx_perf.training.lines import keras_line
from tfx_perf.training.lines.base_line import Function
from tfx_perf.training.plan import PLAIN_FIT, TrainingPlan
from tfx_perf.training.recovery.guard import Guard, Run
from tfx_perf.training.speed_watch import Promise, SpeedWatch
from tfx_perf.training.step.oom_guard import OomGuard
from tfx_perf.training.timer import StepTimer
from tfx_perf.training.train_functions import TrainFunctions
from tfx_perf.training.trials.turns import Schedule, Turn, Turns

_ENDLESS = 10**9
_ON_TRIAL = {
    "epochs": 1,
    "initial_epoch": 0,
    "validation_data": None,
    "callbacks": None,
    "verbose": 0,
}


class Loop:
    """Trains one model with any plan; compiled functions are kept between runs.

    Attributes:
        line: the model's Keras line.
        oom_guard: of the last `fit`; None if it ran without one.
        speed_watch: likewise.
        plan: of the last `fit`, plain before.
        timer: watches the `fit` that runs, or watched the last one; None before.
    """

    def __init__(self, call: FitCall) -> None:
        """Prepares to run `call`, or variations of it."""
        self._call = call
        self._model = call.model
        self.line = keras_line.line_of(call.model)
        self._epochs = Epochs(self._model, self.line)
        self._functions = TrainFunctions(
            call.model, self.line, countdown=self._epochs.training
        )
        self.oom_guard: OomGuard | None = None
        self.speed_watch: SpeedWatch | None = None
        self.plan = PLAIN_FIT
        self.timer: StepTimer | None = None

    @property
    def train_length(self) -> int | None:
        """Steps of an epoch, None if unknown."""
        arguments = self._call.arguments
        return length_of(arguments["x"], arguments["steps_per_epoch"])

    @property
    def total_length(self) -> int | None:
        """Steps of the whole `fit`, None if unknown."""
        arguments, length = self._call.arguments, self.train_length
        return length and length * (arguments["epochs"] - arguments["initial_epoch"])

    @property
    def users_steps_per_call(self) -> int:
        """The `steps_per_execution` of the user's `compile`."""
        return self._functions.users_steps_per_call

    def trace_count(self, plan: TrainingPlan) -> int | None:
        """Returns how often a plan's steps were traced; None for plain `fit`."""
        return None if plan.is_plain_fit else self._functions.of(plan).trace_count

    @property
    def functions(self) -> TrainFunctions:
        """What was traced and compiled."""
        return self._functions

    @property
    def element_spec(self) -> Any:
        """Of the training data."""
        return self._call.arguments["x"].element_spec

    def observe(self) -> tuple[Any, StepTimer]:
        """Runs Keras' own `fit`, nothing replaced; returns its History and the timer."""
        self.timer = timer = StepTimer(steps_in_call=lambda: self.users_steps_per_call)
        callback = timer.batches_callback(self.line.callbacks)
        return self._proceed(self._call.arguments, callback), timer

    def fit(
        self,
        plan: TrainingPlan,
        *,
        guard: Guard | None = None,
        run: Run | None = None,
        promise: Promise | None = None,
    ) -> tuple[Any, StepTimer]:
        """Runs the user's `fit` with the plan.

        Args:
            plan: how to run the steps.
            guard: saves and watches the training.
            run: runs the steps in the place of Keras' own function, if the plan is plain `fit`.
            promise: what the plan must keep; None if nothing is known.

        Returns:
            The History, and the timer that watched.
        """
        self.oom_guard = self.speed_watch = None
        self.plan = plan
        if guard is None:
            return self._planned(plan, {}, survives_oom=True, promise=promise)
        arguments = self._call.arguments
        first, last = guard.callbacks()
        callbacks = [first, *callback_list(arguments["callbacks"]), last]
        overrides = {"callbacks": callbacks, "initial_epoch": guard.initial_epoch}
        with guard.running():
            if plan.is_plain_fit:
                return self._plain(guard, overrides, run=run)
            return self._planned(
                plan, overrides, survives_oom=True, guard=guard, promise=promise
            )

    def try_out(
        self,
        plan: TrainingPlan,
        data: tf.data.Dataset,
        *,
        step_count: int,
        epochs: int = 1,
        stop_when: Callable[[StepTimer], bool],
    ) -> tuple[Any, StepTimer]:
        """Trains a little, without callbacks or validation.

        Args:
            plan: how to run the steps.
            data: what to train on, in place of the user's data.
            step_count: how many steps in an epoch.
            epochs: how many epochs.
            stop_when: asked after every call; True ends the training.

        Returns:
            The History, and the timer that watched.
        """
        overrides = {**_ON_TRIAL, "x": data, "steps_per_epoch": step_count, "epochs": epochs}
        try:
            return self._planned(plan, overrides, stop_when=stop_when)
        finally:
            self.timer = None  # a trial is none of the training's steps

    def take_turns(self, schedule: Schedule, data: tf.data.Dataset) -> None:
        """Trains on endless data, in blocks, as the schedule asks; see `Turns`."""
        with self._functions.replaced():
            callback = Turns(self._model, schedule).callback(self.line.callbacks)
            overrides = {**_ON_TRIAL, "x": data, "steps_per_epoch": _ENDLESS}
            self._call.proceed(**{**overrides, "callbacks": [callback]})

    def turn(self, plan: TrainingPlan, *, iterator: Any = None) -> Turn:
        """Returns a turn with the plan, over Keras' iterator or over another one."""
        if plan.is_plain_fit:
            function, count = self._functions.keras[0], self.users_steps_per_call
        else:
            count = plan.steps_per_call
            function = functools.partial(self._functions.of(plan).run, steps=count)
        if iterator is None:
            return Turn(function, count)
        return Turn(lambda _: function(iterator), count)

    def iterator_over(self, data: tf.data.Dataset) -> Any:
        """Returns the iterator that `fit` makes of the data: distributed, with class weights."""
        kept = []

        def keep(iterator: Any) -> dict[str, Any]:
            kept.append(iterator)
            return {}

        with self._functions.replaced():
            self._model.train_function = keep
            self._call.proceed(**{**_ON_TRIAL, "x": data, "steps_per_epoch": 1})
        return kept[0]

    def _plain(
        self, guard: Guard, overrides: dict[str, Any], *, run: Run | None
    ) -> tuple[Any, StepTimer]:
        """Runs plain `fit` with a guard around Keras' train function."""
        per_call, countdown = self.users_steps_per_call, self._epochs.training
        # Keras 3 runs whole calls, whatever is left of the epoch.
        length = None if self.line.overcounts else self.train_length
        callbacks = [self._epochs.counting(length), *overrides["callbacks"]]
        train, test = self._functions.keras
        run = run or (lambda iterator, steps: train(iterator))
        arguments = {**self._call.arguments, **overrides, "callbacks": callbacks}
        self._make_endless(arguments)
        return self._timed(
            (guard.around(run, lambda: countdown.take(per_call)), test),
            lambda: guard.last_call_steps,
            arguments=arguments,
            history=guard.history,
        )

    def _planned(
        self,
        plan: TrainingPlan,
        overrides: dict[str, Any],
        *,
        stop_when: Callable[[StepTimer], bool] = lambda timer: False,
        survives_oom: bool = False,
        guard: Guard | None = None,
        promise: Promise | None = None,
    ) -> tuple[Any, StepTimer]:
        arguments = {**self._call.arguments, **overrides}
        if plan.is_plain_fit:
            return self._timed(
                self._functions.keras,
                lambda: self.users_steps_per_call,
                arguments=arguments,
                stop_when=stop_when,
            )
        first, last = self._epochs.switching(arguments, steps_per_call=plan.steps_per_call)
        arguments["callbacks"] = [first, *callback_list(arguments["callbacks"]), last]
        self._make_endless(arguments)
        function, stepwise = self._functions.of(plan), self._functions.of(plan.stepwise)
        run, take = stepwise.run, function.take
        if survives_oom and stepwise.journal is not None:
            self.oom_guard = OomGuard(stepwise, self._model)
            run = self.oom_guard.run
        if plan.xla_call:
            run = functools.partial(function.run, stepwise=run)
        if promise is not None and self.users_steps_per_call == 1:
            self.speed_watch = SpeedWatch(run, self._functions.plain_step(), promise=promise)
            run = self.speed_watch.run
        steps_in_call, history = lambda: self._epochs.training.last_call_steps, None
        function = functools.partial(_call, run, take)
        if guard is not None:
            function = guard.around(run, take)
            steps_in_call, history = lambda: guard.last_call_steps, guard.history
        return self._timed(
            (function, None),
            steps_in_call,
            arguments=arguments,
            history=history,
            stop_when=stop_when,
            steps_per_call=plan.steps_per_call,
        )

    def _make_endless(self, arguments: dict[str, Any]) -> None:
        """Has nothing depend on how Keras 3 counts the steps of finite data; see eligibility."""
        data = arguments["x"]
        if self.line.overcounts and arguments["steps_per_epoch"] and length_of(data, None):
            arguments["x"] = data.repeat()

    def _timed(
        self,
        functions: tuple[Function, Function | None],
        steps_in_call: Callable[[], int],
        *,
        arguments: dict[str, Any],
        history: Any = None,
        stop_when: Callable[[StepTimer], bool] = lambda timer: False,
        steps_per_call: int | None = None,
    ) -> tuple[Any, StepTimer]:
        """Runs `fit` with functions in the place of Keras'; returns its History and the timer."""
        self.timer = timer = StepTimer(steps_in_call=steps_in_call)
        train, test = functions
        train = timer.around(train, model=self._model, stop_when=stop_when)
        with self._functions.installed(train, test):
            if steps_per_call is not None:
                self.line.set_steps_per_execution(self._model, steps_per_call)
            callback = timer.epochs_callback(self.line.callbacks)
            return self._proceed(arguments, callback, history=history), timer

    def _proceed(self, arguments: dict[str, Any], callback: Any, *, history: Any = None) -> Any:
        callbacks = [*callback_list(arguments["callbacks"]), callback]
        if history is not None and history not in callbacks:
            callbacks.append(history)
        return self._call.proceed(**{**arguments, "callbacks": callbacks})


def _call(run: Run, take: Callable[[], int], iterator: Any) -> dict[str, Any]:
    """Has the signature of Keras' train function."""
    return run(iterator, take())
