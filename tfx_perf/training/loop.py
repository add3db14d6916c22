"""Runs `fit` with a plan: Keras' shell around our train and test functions."""

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfx_perf import blank
from tfx_perf.interception import FitCall
from tfx_perf.memory import batches
from tfx_perf.training.direct_iterators import FitIterators
from tfx_perf.training.epochs import Epochs
from tfx_perf.training.first_batch import FirstBatch
from tfx_perf.training.fit_arguments import callback_list, in_given, is_container, length_of
from tfx_perf.training.lines import keras_line
from tfx_perf.training.lines.base_line import Function
from tfx_perf.training.plan import PLAIN_FIT, TrainingPlan
from tfx_perf.training.recovery.blow_up import Examination
from tfx_perf.training.recovery.guard import Guard, Run, Steps
from tfx_perf.training.recovery.random_layers import SaveableRandomLayers
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
        first_batch: that a training of this model took.
        timer: watches the `fit` that runs, or watched the last one; None before.
    """

    def __init__(self, call: FitCall) -> None:
        """Prepares to run `call`, or variations of it."""
        self._call = call
        self._model = call.model
        self.line = keras_line.line_of(call.model)
        self._epochs = Epochs(self._model, self.line)
        self._functions = TrainFunctions(
            call.model,
            self.line,
            countdown=self._epochs.training,
            renewed=self._epochs.retrace,
        )
        self.oom_guard: OomGuard | None = None
        self.speed_watch: SpeedWatch | None = None
        self.plan = PLAIN_FIT
        self.timer: StepTimer | None = None
        self.first_batch = FirstBatch()
        self._saveable = SaveableRandomLayers(call.model)

    def goes_on_with(self, call: FitCall) -> bool:
        """Takes over another `fit` of the model, if what is traced still holds; returns whether."""
        if call.model is not self._model or not self._functions.are_valid:
            return False
        same = batches.spec_of(call), batches.declared_batch_size(call)
        if same != (batches.spec_of(self._call), batches.declared_batch_size(self._call)):
            self.first_batch = FirstBatch()
        self._call = call
        self.oom_guard = self.speed_watch = self.timer = None
        self.plan = PLAIN_FIT
        return True

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

    def prepare(self, plan: TrainingPlan = PLAIN_FIT) -> None:
        """Traces a plan's steps, so that every variable is there; nothing is trained or read.

        Raises:
            TypeError: the data are of a kind that cannot be made up.
        """
        iterator = self.iterator_over(
            blank.blank(self.element_spec, open_size=self._replica_count)
        )
        if plan.is_plain_fit or not self._model.built:
            self._functions.keras[0].trace(iterator)
        if not plan.is_plain_fit:
            with self._random_layers(plan):
                self._functions.of(plan.stepwise).trace(iterator)

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
        examination: Examination | None = None,
        promise: Promise | None = None,
        data: tf.data.Dataset | None = None,
    ) -> tuple[Any, StepTimer]:
        """Runs the user's `fit` with the plan.

        Args:
            plan: how to run the steps.
            guard: saves and watches the training.
            examination: looks into the steps, if the plan is plain `fit` and there is a guard.
            promise: what the plan must keep; None if nothing is known.
            data: what to train on in the place of the user's, which have been read from.

        Returns:
            The History, and the timer that watched.
        """
        self.oom_guard = self.speed_watch = None
        self.plan = plan
        if guard is None:
            return self._planned(plan, {}, survives_oom=True, promise=promise)
        arguments = self._call.arguments
        callbacks = [guard.callback(), *callback_list(arguments["callbacks"])]
        overrides = {"callbacks": callbacks, "initial_epoch": guard.initial_epoch}
        if data is not None:
            overrides["x"] = data
        with guard.running(), self._random_layers(plan):
            if plan.is_plain_fit:
                return self._plain(guard, overrides, examination=examination)
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
            with self._random_layers(plan):
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
            function: Callable[..., Any] = self._functions.keras[0]
            count = self.users_steps_per_call
        else:
            count = plan.steps_per_call or 1
            function = functools.partial(self._functions.set_to(plan).run, steps=count)
        if iterator is None:
            return Turn(function, count)
        return Turn(lambda _: function(iterator), count)

    def iterator_over(self, data: tf.data.Dataset) -> Any:
        """Returns the iterator that `fit` makes of the data: distributed, with class weights."""
        def leave(iterator: Any) -> None:
            raise _IteratorMadeError(iterator)

        before = getattr(self._model, "history", None)
        with self._functions.replaced():
            self._model.train_function = leave
            try:
                self._call.proceed(**{**_ON_TRIAL, "x": data, "steps_per_epoch": 1})
            except _IteratorMadeError as made:
                self._model.history = before
                return made.iterator

    def _plain(
        self, guard: Guard, overrides: dict[str, Any], *, examination: Examination | None
    ) -> tuple[Any, StepTimer]:
        """Runs plain `fit` with a guard around Keras' train function."""
        per_call, countdown = self.users_steps_per_call, self._epochs.training
        # Keras 3 runs whole calls, whatever is left of the epoch.
        length = None if self.line.overcounts else self.train_length
        callbacks = [self._epochs.counting(length), *overrides["callbacks"]]
        train, test = self._functions.keras

        def own(iterator: Any) -> Any:  # made anew if a callback asks for it
            return self._functions.keras[0](iterator)

        run = examination.around(own) if examination else lambda iterator, steps: own(iterator)
        run = self.first_batch.around(run, whole=per_call)
        arguments = {**self._call.arguments, **overrides, "callbacks": callbacks}
        self._make_endless(arguments)
        return self._timed(
            (guard.around(run, lambda: countdown.take(per_call), traced=train), test),
            lambda: guard.last_call_steps,
            arguments=arguments,
            history=guard.history,
            iterators=guard.iterators,
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
        if not self._model.built:
            self.prepare()  # what can be done with a step depends on the model's variables
        first, last = self._epochs.switching(arguments, steps_per_call=plan.steps_per_call or 1)
        arguments["callbacks"] = [first, *callback_list(arguments["callbacks"]), last]
        self._make_endless(arguments)
        function, stepwise = self._functions.set_to(plan), self._functions.set_to(plan.stepwise)
        run, users_steps = stepwise.run, self.users_steps_per_call
        per_call = plan.steps_per_call or 1
        if _may_run_out(arguments):
            per_call = min(per_call, -(-arguments["steps_per_epoch"] // 2))  # see `_with_logs`

        def take() -> int:
            # A callback had `fit` stop before the call: Keras runs one of the user's length.
            stops = self._model.stop_training
            return self._epochs.training.take(users_steps if stops else per_call)

        if survives_oom and stepwise.journal is not None:
            self.oom_guard = OomGuard(stepwise, self._model)
            run = self.oom_guard.run
        if plan.xla_call:
            run = functools.partial(function.run, stepwise=run)
        if promise is not None and self.users_steps_per_call == 1:
            self.speed_watch = SpeedWatch(run, self._functions.plain_step(), promise=promise)
            run = self.speed_watch.run
        if _may_run_out(arguments):
            run = self._with_logs(run)
        if self._replica_count == 1:
            run = self.first_batch.around(run)
        steps_in_call, history = lambda: self._epochs.training.last_call_steps, None
        train, iterators = _unguarded(run, take, traced=stepwise), None
        if guard is not None:
            train = guard.around(run, take, traced=stepwise)
            steps_in_call, history = lambda: guard.last_call_steps, guard.history
            iterators = guard.iterators
        return self._timed(
            (train, None),
            steps_in_call,
            arguments=arguments,
            history=history,
            iterators=iterators,
            stop_when=stop_when,
            steps_per_call=per_call,
        )

    @property
    def _replica_count(self) -> int:
        return self._model.distribute_strategy.num_replicas_in_sync

    def _random_layers(self, plan: TrainingPlan) -> contextlib.AbstractContextManager[None]:
        """Returns the context for a plan's steps.

        In plain `fit` the masks are what the user's seed makes of them.
        """
        return contextlib.nullcontext() if plan.is_plain_fit else self._saveable.installed()

    def _with_logs(self, run: Run) -> Run:
        """Has the first call of an epoch return logs if the data end in it: Keras needs some.

        It is the next call that ends the epoch.
        """
        countdown, has_ended = self._epochs.training, False

        def to_the_end(iterator: Any, steps: int) -> dict[str, Any]:
            nonlocal has_ended
            if has_ended:
                has_ended = False
                raise tf.errors.OutOfRangeError(None, None, "End of sequence")
            if countdown.call_count > 1 or steps == 1:
                return run(iterator, steps)
            before = int(self._model.optimizer.iterations.numpy())
            logs = run(iterator, 1)
            try:
                return run(iterator, steps - 1)
            except tf.errors.OutOfRangeError:
                has_ended = True
                countdown.last_call_steps = int(self._model.optimizer.iterations.numpy()) - before
                return logs  # in which Keras puts the metrics' results

        return to_the_end

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
        iterators: FitIterators | None = None,
        stop_when: Callable[[StepTimer], bool] = lambda timer: False,
        steps_per_call: int | None = None,
    ) -> tuple[Any, StepTimer]:
        """Runs `fit` with functions in the place of Keras'; returns its History and the timer."""
        self.timer = timer = StepTimer(steps_in_call=steps_in_call)
        train, test = functions
        train = timer.around(train, model=self._model, stop_when=stop_when)
        with self._functions.installed(
            train, test, steps_per_call=steps_per_call, iterators=iterators
        ):
            callback = timer.epochs_callback(self.line.callbacks)
            return self._proceed(arguments, callback, history=history), timer

    def _proceed(self, arguments: dict[str, Any], callback: Any, *, history: Any = None) -> Any:
        callbacks = [*callback_list(arguments["callbacks"]), callback]
        given = self._call.arguments["callbacks"]
        if history is not None and history not in callbacks and not is_container(given):
            callbacks.append(history)
        with in_given(given, callbacks, model=self._model) as used:
            return self._call.proceed(**{**arguments, "callbacks": used})


class _IteratorMadeError(Exception):
    """Leaves a `fit` that has made its iterator."""

    def __init__(self, iterator: Any) -> None:
        super().__init__()
        self.iterator = iterator


def _unguarded(run: Run, take: Callable[[], int], *, traced: Steps) -> Function:
    """Returns a train function for Keras: every variable is there before the first step."""
    is_first = True

    def call(iterator: Any) -> Any:
        nonlocal is_first
        if is_first:
            traced.trace(iterator)
        is_first = False
        return run(iterator, take())

    return call


def _may_run_out(arguments: dict[str, Any]) -> bool:
    """Whether the data may end in the middle of an epoch, where nobody knows their length."""
    steps, data = arguments["steps_per_epoch"], arguments["x"]
    return bool(steps) and data.cardinality() == tf.data.UNKNOWN_CARDINALITY
