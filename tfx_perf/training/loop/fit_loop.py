"""Runs `fit` with a plan: Keras' own `fit` calls our train and test functions."""

import contextlib
import dataclasses
import functools
import logging
from collections.abc import Callable
from typing import Any, Protocol

import tensorflow as tf

from tfx_perf.config import PerfConfig
from tfx_perf.core.interception import FitCall
from tfx_perf.memory import batches
from tfx_perf.tf_internals import autograph, datasets
from tfx_perf.tf_internals.built_optimizer import build_before_trace
from tfx_perf.tf_internals.iterators import FitIterators
from tfx_perf.training.fit import callback_hooks
from tfx_perf.training.fit.callback_hooks import EarlyCallbacks
from tfx_perf.training.fit.epochs import StepCounts, TestFunction
from tfx_perf.training.fit.fit_arguments import (
    callback_list,
    certain_length,
    in_given,
    is_container,
    length_of,
    may_run_out,
)
from tfx_perf.training.fit.takeover import Takeover
from tfx_perf.training.fit.timer import StepTimer, TimedFit
from tfx_perf.training.keras_api import either_keras
from tfx_perf.training.keras_api.base_api import all_layers
from tfx_perf.training.keras_api.random_layers import SaveableRandomLayers
from tfx_perf.training.loop.fit_steps import (
    CountedSteps,
    FirstBatch,
    KerasFallback,
    KerasSteps,
    NotingFirstBatch,
    StepFunction,
    UnknownLengthEpochs,
)
from tfx_perf.training.loop.turns import Schedule, Turn, Turns
from tfx_perf.training.measuring.communication import CommunicationMeter
from tfx_perf.training.recovery.divergence import NumericsCheck
from tfx_perf.training.recovery.guard import Guard
from tfx_perf.training.replicas.sync import Sync
from tfx_perf.training.speedups.plan import PLAIN_FIT, TrainingPlan
from tfx_perf.training.speedups.speedup import Fit
from tfx_perf.training.speedups.train_functions import TrainFunctions
from tfx_perf.training.step.step_runner import EpochStepCounter, StepRunner

_LOGGER = logging.getLogger(__name__)

_ENDLESS = 10**9
_USUAL_LENGTH = 500  # steps of an epoch of unknown length: neither nothing nor much is tried
_ON_TRIAL = {
    "epochs": 1,
    "initial_epoch": 0,
    "validation_data": None,
    "callbacks": None,
    "verbose": 0,
}


@dataclasses.dataclass(frozen=True)
class _Run:
    """How to run one `fit`; see `FitLoop.fit` and `try_out` for `guard` to `stop_when`."""

    plan: TrainingPlan
    guard: Guard | None = None
    numerics_check: NumericsCheck | None = None
    plain_step_seconds: float | None = None
    stop_when: Callable[[StepTimer], bool] = lambda timer: False
    early_callbacks: EarlyCallbacks | None = None


@dataclasses.dataclass(frozen=True)
class FitResult:
    """How a training ended."""

    history: Any
    timer: StepTimer  # of the steps since the last resumption or rollback
    plan: TrainingPlan  # the plan used at the end
    notes: tuple[str, ...] = ()  # events, one sentence each
    resumed_step: int | None = None  # where another process stopped; None if it began here
    checkpoint_time_seconds: float = 0.0  # for saving, in total
    oom_count: int = 0  # steps that ran out of memory


class FitGuard(Protocol):
    """Runs and saves a `fit`: `Recovery`, or `AsynchronousFit` with parameter servers."""

    oom_count: int

    @property
    def step(self) -> int | None:
        """The number of steps done before it resumes; None if it starts from the beginning."""

    @property
    def plan(self) -> TrainingPlan | None:
        """The plan that it resumes with; None if it starts from the beginning."""

    def fit(self, plan: TrainingPlan, *, plain_step_seconds: float | None) -> FitResult:
        """Trains to the end."""


class FitLoop:
    """Trains one model with any plan; compiled functions are kept between runs."""

    def __init__(self, call: FitCall, *, observer: CommunicationMeter | None = None) -> None:
        self._call, self._observer = call, observer
        self._model = call.model
        self.keras_api = either_keras.api_of(call.model)
        self.sync = Sync(call.model.distribute_strategy)
        # Keras 3 counts the step that finds the end of the data as one of the epoch's.
        self._countdown = EpochStepCounter(extra_steps=int(self.keras_api.overcounts))
        self._test_function = TestFunction(self._model, self.keras_api)
        self.functions = TrainFunctions(
            call.model, self.keras_api, renewed=self._test_function.retrace
        )
        self.speed_watch: KerasFallback | None = None
        self.plan = PLAIN_FIT  # the plan of the last `fit`
        self.timer: StepTimer | None = None  # of the running or last `fit`
        self.first_batch = FirstBatch()
        self.trace_error: Exception | None = None  # raised by tracing Keras' own step
        self.single_steps_note: str | None = None  # why the last `fit` left its plan's calls
        self._tester: TestFunction | None = None  # of the running `fit`
        self._saveable = SaveableRandomLayers(call.model)
        self._takeover: Takeover  # of the running `fit`
        self.early_callbacks: EarlyCallbacks | None = None

    def reuse_for(self, call: FitCall) -> bool:
        """Switches to another `fit` of the model if traces stay valid; returns whether it did."""
        if call.model is not self._model or not self.functions.are_valid:
            return False
        same = batches.spec_of(call), batches.declared_batch_size(call)
        if same != (batches.spec_of(self._call), batches.declared_batch_size(self._call)):
            self.first_batch = FirstBatch()
        self._call = call
        self.speed_watch = self.timer = self.single_steps_note = None
        self.early_callbacks = self.trace_error = None
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
    def likely_train_length(self) -> int:
        """Steps of an epoch, guessed if unknown."""
        length = self.train_length
        return _USUAL_LENGTH if length is None else length

    @property
    def likely_total_length(self) -> int:
        """Steps of the whole `fit`, guessed if unknown."""
        arguments = self._call.arguments
        return self.likely_train_length * (arguments["epochs"] - arguments["initial_epoch"])

    @property
    def users_steps_per_execution(self) -> int:
        """The `steps_per_execution` of the user's `compile`."""
        return self.keras_api.get_steps_per_execution(self._model)

    def trace_count(self, plan: TrainingPlan) -> int | None:
        """Returns how often a plan's steps were traced; None for Keras' `fit`."""
        functions = self.functions.used_by(plan)
        return None if functions is None else functions.trace_count

    @property
    def element_spec(self) -> Any:
        """The element spec of the training data."""
        return self._call.arguments["x"].element_spec

    def described(self, settings: PerfConfig, *, most_steps_per_execution: int = 1) -> Fit:
        """Returns the description of the `fit` that speedups use."""
        data = self._call.arguments["x"]
        return Fit(self.functions, data, settings, most_steps_per_execution)

    def prepare(self, plan: TrainingPlan = PLAIN_FIT) -> None:
        """Traces steps, creating all variables; raises TypeError if it cannot make up a batch."""
        build_before_trace(self._model)
        iterator = self.iterator_over(
            datasets.blank(self.element_spec, open_size=self._replica_count)
        )
        if plan.is_plain_fit or not self._is_built:
            try:
                self.functions.keras.train.trace(iterator)
            except Exception as error:
                if not autograph.asks_for_conversion(error):
                    self.trace_error = self.trace_error or error
                raise
        if not plan.is_plain_fit:
            with self._random_layers(plan):
                self._steps_of(plan).trace(iterator)

    def measure_only(self) -> TimedFit:
        """Runs Keras' `fit` without replacing any function of the model."""
        self.timer = timer = StepTimer(observer=self._observer)
        steps = self.users_steps_per_execution
        with timer.observing(self.keras_api, steps_per_execution=steps) as callback:
            given = self._call.arguments["callbacks"]
            callbacks = [*callback_list(given), callback]
            with in_given(given, callbacks, model=self._model) as used:
                return TimedFit(self._call.proceed(callbacks=used), timer)

    def fit(
        self,
        plan: TrainingPlan,
        *,
        guard: Guard | None = None,
        numerics_check: NumericsCheck | None = None,
        plain_step_seconds: float | None = None,
        data: tf.data.Dataset | None = None,
    ) -> TimedFit:
        """Runs the user's `fit` with the plan.

        It drops a plan that is clearly slower than `plain_step_seconds`, unless it saves memory.
        `numerics_check` looks for NaN in a guarded run of Keras' `fit`. `data` replaces a user's
        dataset that has been read from.
        """
        self.speed_watch = self.single_steps_note = None
        self.plan = plan
        run = _Run(
            plan,
            guard=guard,
            numerics_check=numerics_check,
            plain_step_seconds=plain_step_seconds,
            early_callbacks=self.early_callbacks,
        )
        self.early_callbacks = None
        if guard is None:
            return self._run(run, {})
        arguments = self._call.arguments
        callbacks = [guard.callback(), *callback_list(arguments["callbacks"])]
        overrides = {"callbacks": callbacks, "initial_epoch": guard.initial_epoch}
        if data is not None:
            overrides["x"] = data
        with guard.running(), self._random_layers(plan):
            return self._run(run, overrides)

    def try_out(
        self,
        plan: TrainingPlan,
        data: tf.data.Dataset,
        *,
        step_count: int,
        epochs: int = 1,
        stop_when: Callable[[StepTimer], bool] = lambda timer: False,
    ) -> TimedFit:
        """Trains briefly, without callbacks or validation; stops when `stop_when` is true."""
        overrides = {**_ON_TRIAL, "x": data, "steps_per_epoch": step_count, "epochs": epochs}
        try:
            with self._random_layers(plan), self.keras_api.from_first_epoch(self._model):
                return self._run(_Run(plan, stop_when=stop_when), overrides)
        finally:
            self.timer = None  # it does not time the training's steps

    def take_turns(self, schedule: Schedule, data: tf.data.Dataset) -> None:
        """Trains on endless data in the blocks that the schedule requests; see `Turns`."""
        with self.functions.replaced(), self.keras_api.from_first_epoch(self._model):
            callback = Turns(self._model, schedule, sync=self.sync).callback(self.keras_api)
            overrides = {**_ON_TRIAL, "x": data, "steps_per_epoch": _ENDLESS}
            self._call.proceed(**{**overrides, "callbacks": [callback]})

    def turn(self, plan: TrainingPlan, *, iterator: Any = None) -> Turn:
        """Returns a turn with the plan, over Keras' iterator or the given one."""
        if plan.is_plain_fit:
            function: Callable[..., Any] = self.functions.keras.train
            count = self.users_steps_per_execution
        else:
            count = plan.steps_per_execution
            function = functools.partial(self._steps_of(plan).run, steps=count)
        if iterator is None:
            return Turn(function, count)
        return Turn(lambda _: function(iterator), count)

    def iterator_over(self, data: tf.data.Dataset) -> Any:
        """Returns the iterator that `fit` makes from the data: distributed, with class weights."""

        def leave(iterator: Any) -> None:
            raise _IteratorMadeError(iterator)

        before = getattr(self._model, "history", None)
        with self.functions.replaced(), self.keras_api.from_first_epoch(self._model):
            self._model.train_function = leave
            try:
                self._call.proceed(**{**_ON_TRIAL, "x": data, "steps_per_epoch": 1})
            except _IteratorMadeError as made:
                self._model.history = before
                return made.iterator

    def _run(self, run: _Run, overrides: dict[str, Any]) -> TimedFit:
        plan, guard = run.plan, run.guard
        arguments = self._arguments(run, overrides)
        self.timer = timer = StepTimer(observer=self._observer)
        if not plan.is_plain_fit:
            self._count_steps(run, arguments, timer=timer)
        planned_steps = None if plan.is_plain_fit else _steps_per_execution(plan, arguments)
        self._takeover = Takeover(
            self._model,
            self.keras_api,
            self._step_function(run, arguments, planned_steps=planned_steps, timer=timer),
            self._tester,
            keras_originals=self.functions.keras_originals,
            renew=self.functions.retrace,
            steps_per_execution=planned_steps,
            iterators=FitIterators() if guard is None else guard.iterators,
            countdown=self._countdown,
        )
        try:
            with self._takeover.installed():
                return TimedFit(self._proceed(run, arguments, timer), timer)
        finally:  # it keeps iterators, their cache files and the guard's checkpoint alive
            del self._takeover

    def _step_function(
        self, run: _Run, arguments: dict[str, Any], *, planned_steps: int | None, timer: StepTimer
    ) -> StepFunction:
        guard, model, users_steps = run.guard, self._model, self.users_steps_per_execution
        runner, countdown = self._runner(run, arguments), self._countdown
        before_first: Callable[[Any], None] | None = None
        if guard is not None:

            def before_first(iterator: Any) -> None:
                self._takeover.count_before(guard.begin(iterator, runner))

        elif planned_steps is None:
            countdown = EpochStepCounter()  # no callback starts it
        else:
            before_first = runner.trace  # which creates all variables

        def steps_per_execution() -> int:
            # If a callback stops `fit` before any call, Keras still runs a call of `users_steps`.
            if planned_steps is None or model.stop_training or self.single_steps_note:
                return users_steps
            return planned_steps

        return StepFunction(
            runner,
            model,
            countdown=countdown,
            steps_per_execution=steps_per_execution,
            timer=timer,
            guard=guard,
            before_first=before_first,
            stop_when=run.stop_when,
        )

    def _steps_of(self, plan: TrainingPlan) -> StepRunner:
        return self.functions.of(plan, may_end=may_run_out(self._call.arguments))

    def _runner(self, run: _Run, arguments: dict[str, Any]) -> StepRunner:
        """Returns the runner of a call's steps; later wrappers enclose earlier ones."""
        plan, functions = run.plan, self.functions
        users_steps = self.users_steps_per_execution
        runner: StepRunner
        if plan.is_plain_fit:
            runner = KerasSteps(functions, numerics_check=run.numerics_check)
            counts = self.keras_api.optimizer_counts_steps(self._model)
            if run.guard is not None and users_steps > 1 and counts:
                runner = CountedSteps(runner, countdown=self._countdown, model=self._model)
        else:
            runner = self._steps_of(plan)
            # Where the data end, Keras' own steps do not tell how many of a call have run.
            may_be_plain = users_steps == 1 and not may_run_out(arguments)
            may_be_plain = may_be_plain and not any(each.saves_memory for each in plan.speedups)
            if run.plain_step_seconds is not None and may_be_plain:
                runner = self.speed_watch = KerasFallback(
                    runner, functions.plain_step, plain_step_seconds=run.plain_step_seconds
                )
        is_tried = plan.is_plain_fit and run.guard is None
        if self._replica_count == 1 and not self.first_batch.is_over and not is_tried:
            whole = users_steps if plan.is_plain_fit else 1
            runner = NotingFirstBatch(runner, self.first_batch, whole=whole)
        if not plan.is_plain_fit and may_run_out(arguments):
            runner = UnknownLengthEpochs(runner, functions, countdown=self._countdown)
        return runner

    def _arguments(self, run: _Run, overrides: dict[str, Any]) -> dict[str, Any]:
        """Returns `fit`'s arguments with our changes, and callbacks that start our step counts."""
        plan = run.plan
        self._tester = None
        arguments = {**self._call.arguments, **overrides}
        if plan.is_plain_fit and run.guard is None:
            return arguments
        if plan.is_plain_fit:
            length, batches = self.train_length, length_of(arguments["x"], None)
            if self.keras_api.overcounts and length != batches:
                length = None  # Keras 3 runs whole calls even past an epoch's end
        else:
            if not self._is_built:
                self.prepare()  # how a step can be changed depends on the variables
            if arguments["validation_data"] is not None:
                self._tester = self._test_function
                self._tester.begin_fit(arguments, most_steps_per_execution=plan.steps_per_execution)
            length = overrides.get("steps_per_epoch", self.train_length)
        self._countdown.first_length = None
        begin_epoch = self.keras_api.callback(
            on_epoch_begin=lambda epoch, logs=None: self._countdown.begin(length)
        )
        arguments["callbacks"] = [*callback_list(arguments["callbacks"]), begin_epoch]
        if not plan.is_plain_fit and self.hooks_obstacle is None:
            look = self.keras_api.callback(on_epoch_begin=self._check_hooks)
            arguments["callbacks"].append(look)
        self._repeat_finite_data(arguments)
        return arguments

    def _count_steps(self, run: _Run, arguments: dict[str, Any], *, timer: StepTimer) -> None:
        guard = run.guard
        counts = StepCounts(
            self._model,
            self.keras_api,
            recorded=lambda: timer.step_count if guard is None else guard.run_count,
            computed=None if may_run_out(arguments) else lambda: self.functions.done_count,
            others_calls=lambda: self._takeover.others_calls,
            length=certain_length(arguments),
        )
        if guard is not None:
            guard.counts = counts
        make = self.keras_api.callback
        # Counts from after the user's `on_epoch_begin` hooks to before the `on_epoch_end` hooks.
        check = make(
            on_test_begin=lambda logs=None: counts.check(is_end=True),
            on_epoch_end=lambda epoch, logs=None: counts.check(is_end=True),
        )
        begin = make(on_epoch_begin=lambda epoch, logs=None: counts.begin())
        arguments["callbacks"] = [check, *arguments["callbacks"], begin]

    @property
    def hooks_obstacle(self) -> str | None:
        """Why a callback needs every batch; None if none does."""
        return callback_hooks.obstacle(self._call.arguments["callbacks"], self.keras_api.callbacks)

    def _check_hooks(self, epoch: int, logs: Any = None) -> None:
        """Switches to the user's steps per execution if a callback that was added needs them."""
        if self.single_steps_note is not None:
            return
        reason = self.hooks_obstacle
        if reason is not None:
            how = f"steps per execution as compiled from epoch {epoch + 1} on"
            self.single_steps_note = f"{how}, since {reason}"
            _LOGGER.warning("Training with %s.", self.single_steps_note)
            self._takeover.count_single_steps()
            if self._tester is not None:
                self._tester.steps_per_execution = self.users_steps_per_execution

    @property
    def _is_built(self) -> bool:
        """Whether all variables exist; some layers may be called only in training."""
        return all(layer.built for layer in all_layers(self._model))

    @property
    def _replica_count(self) -> int:
        return self._model.distribute_strategy.num_replicas_in_sync

    def _random_layers(self, plan: TrainingPlan) -> contextlib.AbstractContextManager[None]:
        """Returns the context of a plan's steps; Keras' own steps keep the user's seeded masks."""
        return contextlib.nullcontext() if plan.is_plain_fit else self._saveable.installed()

    def _repeat_finite_data(self, arguments: dict[str, Any]) -> None:
        """Keeps results independent of how Keras 3 counts steps of finite data; see eligibility."""
        data, steps = arguments["x"], arguments["steps_per_epoch"]
        batches = length_of(data, None)
        # If every epoch is the whole dataset, each one has its own iterator, with which seeded
        # operations restart their draws.
        if self.keras_api.overcounts and steps and batches and batches != steps:
            arguments["x"] = data.repeat()

    def _proceed(self, run: _Run, arguments: dict[str, Any], timer: StepTimer) -> Any:
        history = None if run.guard is None else run.guard.history
        begin_epoch = self.keras_api.callback(on_epoch_begin=timer.on_epoch_begin)
        callbacks = [*callback_list(arguments["callbacks"]), begin_epoch]
        given = self._call.arguments["callbacks"]
        if history is not None and history not in callbacks and not is_container(given):
            callbacks.append(history)
        with in_given(given, callbacks, model=self._model) as used:
            container = self._takeover.container(used, arguments, early=run.early_callbacks)
            return self._call.proceed(**{**arguments, "callbacks": container})


class _IteratorMadeError(Exception):
    """Raised to leave `fit` once it has made its iterator."""

    def __init__(self, iterator: Any) -> None:
        super().__init__()
        self.iterator = iterator


def _steps_per_execution(plan: TrainingPlan, arguments: dict[str, Any]) -> int:
    """Returns the steps per call: in two calls per epoch at least, if the data may run out."""
    steps = arguments["steps_per_epoch"]
    if steps and may_run_out(arguments):
        return min(plan.steps_per_execution, -(-steps // 2))
    return plan.steps_per_execution
