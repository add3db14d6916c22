"""TrainingSession: runs the user's `fit` with the best measured plan."""

import contextlib
import dataclasses
import functools
import logging
import pathlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from tfx_perf import config
from tfx_perf.config.distribution import DistributionSettings
from tfx_perf.core import console, errors, formatting, workers
from tfx_perf.core.interception import FitCall
from tfx_perf.hardware import energy
from tfx_perf.training import ended_training
from tfx_perf.training.fit import callback_hooks
from tfx_perf.training.fit_recovery import Recovery
from tfx_perf.training.keras_api import array_data, either_keras
from tfx_perf.training.loop.eligibility import obstacle, recovery_obstacle
from tfx_perf.training.loop.fit_loop import FitGuard, FitLoop, FitResult
from tfx_perf.training.measuring import collector, memory
from tfx_perf.training.measuring.accounts import CommunicationAccount, Placement
from tfx_perf.training.measuring.communication import CommunicationMeter
from tfx_perf.training.monitoring.live_training import LiveTraining
from tfx_perf.training.monitoring.serving import announcing, serving
from tfx_perf.training.record import TrainingRecord
from tfx_perf.training.recovery import generators
from tfx_perf.training.recovery.checkpoint_store import CheckpointStore
from tfx_perf.training.recovery.checkpoint_writer import CheckpointSchedule
from tfx_perf.training.recovery.folder_lock import FolderLock
from tfx_perf.training.replicas import strategies
from tfx_perf.training.replicas.sync import LostWorkerError
from tfx_perf.training.speedups import SPEEDUPS
from tfx_perf.training.speedups.plan import TrainingPlan
from tfx_perf.training.tuning import choosing, families
from tfx_perf.training.tuning.choice import PlanChoice, plain
from tfx_perf.training.tuning.shared_trials import SharedTrials

NO_FIT = (
    "Model.fit was not called in this block, or only in a nested one, and no custom loop marked "
    "its steps with tfx_perf.measured"
)
"""The `gap` if the session saw no training at all."""

_PLACED = "the model's layers are on several devices"

# Held by the thread whose `fit` is taken over: the takeover replaces functions and classes of the
# whole process, and a session records one training at a time.
_TAKES_OVER = threading.Lock()

_LOGGER = logging.getLogger(__name__)

_T = TypeVar("_T")
_Handler = Callable[[FitCall], Any]


def connect_workers() -> None:
    """Connects this process to the workers in `TF_CONFIG`; call it before TensorFlow is used."""
    from tfx_perf.distribute import worker_server

    worker_server.start()


@contextlib.contextmanager
def built_under(settings: DistributionSettings) -> Iterator[Callable[[_Handler], _Handler]]:
    """Makes code in the context build its model under the strategy in the settings, if any.

    Yields a decorator that runs a handler of `fit` outside that strategy's scope.
    """
    if settings.effective_strategy in (None, strategies.ONE_DEVICE):  # needs no scope
        yield lambda handler: handler
        return
    from tfx_perf.distribute.strategies import scope

    with scope(settings) as outside:
        yield outside


@contextlib.contextmanager
def as_one_device(
    call: FitCall, settings: DistributionSettings
) -> Iterator[tuple[FitCall, Placement | None]]:
    """Yields a `fit` whose replicas or devices train as one in the context, and its placement."""
    is_alone = strategies.name(call.model.distribute_strategy) == strategies.ONE_DEVICE
    if is_alone and not settings.sharding_invariant_random:
        yield call, None
        return
    from tfx_perf.distribute.as_one_device import trained

    with trained(call, settings) as as_one:
        yield as_one


class TrainingSession:
    """Trains each intercepted `fit`: pass its method `fit` to `interception.intercepting_fit`.

    Example:
        >>> session = TrainingSession(PerfConfig())
        >>> with intercepting_fit(session.fit):
        ...     run_fn(fn_args)
        >>> session.record.figures()["examples_per_second"]
    """

    def __init__(
        self,
        settings: config.PerfConfig,
        *,
        choice: PlanChoice | None = None,
        choose: Callable[[FitCall, FitLoop], PlanChoice] | None = None,
        on_fresh_start: Callable[[], None] = lambda: None,
        block: str = "",
    ) -> None:
        """Starts a session; memory that the process already holds does not count as training's.

        Args:
            settings: all sections but `input`, `memory` and `gate`.
            choice: made in another process or an earlier run. It applies to the `fit` that it
                names, or, if it names none, to every `fit` without a choice of its own.
            choose: chooses a plan for any other `fit` by trials in this process that leave its
                state unchanged; all workers call it. None: `SharedTrials`, where a crash ends the
                training and several workers make no trials.
            on_fresh_start: called before the first `fit`, unless it resumes from a checkpoint.
            block: distinguishes this session's checkpoints from others in the same folder.
        """
        self._settings = settings
        self._given_choices = () if choice is None else choice.of_all_fits
        self._known_choices = sorted(self._given_choices, key=lambda each: not each.fit)
        self._choice_by_fit: dict[str, PlanChoice] = {}  # keyed by their `fit`
        self._choose_by_trials = choose or SharedTrials(settings).choose
        self._on_fresh_start = on_fresh_start
        self._block = block
        self._longest: ended_training.EndedTraining | None = None
        self._custom: TrainingRecord | None = None
        self._loop: FitLoop | None = None
        self._fit_count = 0
        self._fit_errors: tuple[str, ...] = ()
        self._other_thread_fits = 0  # in other threads, trained by Keras' own step
        self._clock = CheckpointSchedule()
        self._communication = CommunicationMeter()
        folder = settings.training.checkpoint_folder
        self._lock = FolderLock(folder) if folder else None
        self._memory_before = memory.MemoryBaseline.now()
        self._started_at: float | None = time.perf_counter()

    @functools.cached_property
    def record(self) -> TrainingRecord | None:
        """The record of the training with the most steps so far; None if none was measured.

        Measuring takes a second or more, so read it after all training.
        """
        if self._custom is not None and (
            self._longest is None or self._custom.train_step_count > self._longest.step_count
        ):
            return self._custom
        if self._longest is None:
            return None
        try:
            with generators.kept():
                longest = self._longest.record()
            others = tuple(each for each in self._choice_by_fit.values() if each.fit != longest.fit)
            notes = longest.notes
            if self._other_thread_fits:
                calls = formatting.counted(self._other_thread_fits, "call")
                notes += (
                    f"{calls} of Model.fit in other threads ran unoptimized and unmeasured, while "
                    "this one was optimized",
                )
            update = {"fit_errors": self._fit_errors, "other_choices": others, "notes": notes}
            return longest.model_copy(update=update)
        except errors.UserError as error:  # e.g. no step was trained
            _LOGGER.warning("The training could not be measured. %s", error)
        except Exception:  # must not lose the trained model
            _LOGGER.warning("The training could not be measured.", exc_info=True)
        return None

    @property
    def gap(self) -> str:
        """Why there is no record: a sentence without its period."""
        if self._fit_errors:
            return f"Model.fit raised {self._fit_errors[0]}, and your code continued"
        if self._fit_count:
            return "Model.fit trained, but could not be measured; the log says why"
        if self._other_thread_fits:
            return "Model.fit ran unmeasured, since another thread ran an optimized one"
        return NO_FIT

    def reserve(self) -> None:
        """Locks the checkpoint folder for this process; of several workers, only the chief does.

        Raises UserError if another process trains with it.
        """
        if self._lock is not None and self._folder_of(0) and workers.this().is_chief:
            self._lock.acquire()

    def measure_only(self, call: FitCall) -> Any:
        """Runs `call` unchanged, timed by a callback; returns Keras' History.

        Plans are compared with this run, so it starts no metrics server.
        """
        if not _TAKES_OVER.acquire(blocking=False):
            return self._train_unmeasured(call)
        try:
            started = time.perf_counter()
            loop, choice = self._loop_for(call), plain("only observed")
            with memory.watching() as watched:
                result = FitResult(*loop.measure_only(), plan=choice.plan)
            seconds = {"started": started, "fit_time_seconds": time.perf_counter() - started}
            self._keep(call, choice, result, loop=loop, memory=watched, **seconds)
            return result.history
        finally:
            _TAKES_OVER.release()

    def fit(self, call: FitCall) -> Any:
        """Runs `call` and measures it; returns Keras' History.

        While another thread's `fit` runs here, Keras runs this one by itself, unmeasured.

        Raises:
            UserError: see `reserve`; also raised by `Recovery.fit` and `distribute`.
        """
        if not _TAKES_OVER.acquire(blocking=False):
            return self._train_unmeasured(call)
        try:
            call = array_data.on_datasets(call)
            with (
                either_keras.api_of(call.model).as_compiled(call.model),
                # Entered before gradients are narrowed, to count the bytes that are really sent.
                self._communication.metered(call),
                as_one_device(call, self._settings.distribution) as (call, placement),
                contextlib.ExitStack() as stack,
            ):
                return self._carry_out(call, placement, stack=stack)
        except Exception as error:  # the user's code may catch it
            raised = self._first_error(error)
            self._fit_errors += (errors.in_one_line(raised),)
            if raised is not error:
                raise raised from None
            raise
        finally:
            _TAKES_OVER.release()

    def _first_error(self, error: Exception) -> Exception:
        """Returns the error of Keras' `fit`: tracing a half-built step again raises another one."""
        loop = self._loop
        if loop is None or loop.trace_error is None or isinstance(error, errors.UserError):
            return error
        return error if loop.timer and loop.timer.call_count else loop.trace_error

    def _train_unmeasured(self, call: FitCall) -> Any:
        """Runs a `fit` unchanged while another thread's is taken over."""
        self._other_thread_fits += 1
        self.__dict__.pop("record", None)
        _LOGGER.warning(
            "Model.fit of %s runs unoptimized and unmeasured, since another thread runs an "
            "optimized one.",
            call.model.name,
        )
        return call.proceed()

    def _carry_out(
        self, call: FitCall, placement: Placement | None, *, stack: contextlib.ExitStack
    ) -> Any:
        console.set_status("preparing fit")
        started = time.perf_counter()
        setup_seconds = None if self._started_at is None else started - self._started_at
        self._started_at = None  # a second `fit` has no setup time
        loop, strategy = self._loop_for(call), call.model.distribute_strategy
        sync = loop.sync
        recovery, notes = self._recovery(call, loop)
        notes = (*notes, *_note_if_alone(call))
        resumed_plan = recovery.plan if recovery is not None else None
        is_served = strategies.servers_of(strategy) is not None
        if not (placement or is_served) and self._callbacks_run_first(call, loop, recovery):
            loop.early_callbacks = stack.enter_context(_early_callbacks(call, loop, recovery))
        if self._fit_count == 1 and (recovery is None or recovery.step is None):
            self._on_fresh_start()
        if recovery is not None and resumed_plan is not None:
            choice = self._resumed_choice(resumed_plan, call, loop, step=recovery.step)
        else:
            began = time.perf_counter()
            choice = plain(_PLACED, is_settled=True) if placement else self._choose(call, loop)
            chosen_seconds = time.perf_counter() - began
            self._clock.leave_out(chosen_seconds)
            # The time of the `fit` includes trials, even those made earlier in another process.
            started -= max(0.0, choice.trial_time_seconds - chosen_seconds)
        choice = choice.with_plan_among_trials
        choice = choice.model_copy(update={"plan": self._as_configured(choice.plan, loop)})
        trial_trace_count = loop.trace_count(choice.plan) or 0
        live = LiveTraining(
            call,
            loop,
            choice=choice,
            recovery=recovery,
            totals=lambda: self._communication.totals(strategy),
            started=started,
        )
        with serving(self._settings.monitoring, live) as address:
            with (
                collector.spared() as live.pauses,
                energy.counted() as used,
                memory.watching() as watched,
                announcing(live, step_count=loop.total_length, address=address),
            ):
                result = self._train(loop, choice=choice, recovery=recovery, notes=notes)
            fit_seconds = time.perf_counter() - started  # without stopping the server
        communication = self._communicated(call, result)
        if sync.size > 1:
            taken = _or_none(lambda: energy.of_all_hosts(used, sync), what="energy")
            used = taken or energy.Energy(reason="not all workers have reported it")
        if loop.speed_watch is not None and loop.speed_watch.note:
            choice = choice.given_up(loop.speed_watch.note)
        if loop.single_steps_note:
            result = dataclasses.replace(result, notes=(*result.notes, loop.single_steps_note))
        self._keep(
            call,
            choice.model_copy(update={"plan": result.plan}),
            result,
            loop=loop,
            memory=watched,
            started=started,
            fit_time_seconds=fit_seconds,
            setup_time_seconds=setup_seconds,
            trial_trace_count=trial_trace_count if result.plan == choice.plan else 0,
            garbage_collection_seconds=live.pauses.seconds,
            energy_joules=used.joules,
            energy_gap=used.reason,
            idle_settings=strategies.idle_settings(self._settings, strategy),
            communication=communication,
            placement=placement,
        )
        return result.history

    def _communicated(self, call: FitCall, result: FitResult) -> CommunicationAccount | None:
        return _or_none(
            lambda: self._communication.account(
                call.model.distribute_strategy,
                step_count=result.timer.step_count,
                mean_step_time_seconds=result.timer.mean_seconds_within_epochs(),
                epoch_start_seconds=result.timer.epoch_start_seconds(),
                peak_memory_bytes=memory.peak_memory_bytes(),
            ),
            what="waiting times of the replicas",
        )

    def _train(
        self,
        loop: FitLoop,
        *,
        choice: PlanChoice,
        recovery: FitGuard | None,
        notes: tuple[str, ...],
    ) -> FitResult:
        # One worker cannot drop the plan unless all do.
        plain_step_seconds = None if loop.sync.size > 1 else _plain_step_seconds(choice)
        if recovery is not None:
            result = recovery.fit(choice.plan, plain_step_seconds=plain_step_seconds)
            return dataclasses.replace(result, notes=(*notes, *result.notes))
        if choice.plan.is_plain_fit and not choice.trials and loop.early_callbacks is None:
            return FitResult(*loop.measure_only(), plan=choice.plan, notes=notes)
        ended = loop.fit(choice.plan, plain_step_seconds=plain_step_seconds)
        return FitResult(*ended, plan=choice.plan, notes=notes)

    def add(self, record: TrainingRecord) -> None:
        """Adds the record of a custom training loop; the training with the most steps counts."""
        self.__dict__.pop("record", None)
        if self._custom is None or record.train_step_count > self._custom.train_step_count:
            self._custom = record

    def _keep(self, call: FitCall, choice: PlanChoice, result: FitResult, **measured: Any) -> None:
        self.__dict__.pop("record", None)
        if choice.fit:
            self._choice_by_fit[str(choice.fit)] = choice
        if self._longest and self._longest.step_count > result.timer.step_count:
            return
        try:
            self._longest = ended_training.ended(
                call,
                choice,
                result,
                held=self._memory_before,
                is_traced=all(choice.fit != each.fit for each in self._given_choices),
                **measured,
            )
        except Exception:  # must not lose the trained model
            _LOGGER.warning("The training could not be measured.", exc_info=True)

    def close(self) -> None:
        """Removes the checkpoints once the trained model is safe; the next run starts afresh."""
        if not workers.this().is_chief:
            return
        for index in range(self._fit_count):
            folder = self._folder_of(index)
            if folder is not None and folder.exists():
                for training in folder.iterdir():
                    CheckpointStore(training).clear()
                with contextlib.suppress(OSError):  # it holds something else
                    folder.rmdir()
                    if self._block:
                        folder.parent.rmdir()
        if self._lock is not None:
            self._lock.release()

    def _recovery(self, call: FitCall, loop: FitLoop) -> tuple[FitGuard | None, tuple[str, ...]]:
        """Returns the training's guard (None if none is possible) and notes for the record."""
        folder = self._folder_of(self._fit_count)
        self._fit_count += 1
        is_served = strategies.servers_of(call.model.distribute_strategy) is not None
        reason = None if is_served else recovery_obstacle(call, loop)
        if reason:
            return None, (f"no checkpoints: {reason}",) if folder else ()
        self.reserve()
        settings, clock = self._settings, self._clock
        if is_served:
            from tfx_perf.distribute.parameter_server.fit import AsynchronousFit

            return AsynchronousFit(call, loop, settings=settings, folder=folder, clock=clock), ()
        try:
            return Recovery(call, loop, settings=settings, folder=folder, clock=clock), ()
        except Exception as error:  # anything unforeseen in the user's code
            _LOGGER.warning("Checkpointing is disabled for this run.", exc_info=True)
            return None, (f"no checkpoints: {errors.in_one_line(error)}",)

    def _folder_of(self, fit_index: int) -> pathlib.Path | None:
        settings = self._settings.training
        folder = settings.checkpoint_folder
        intervals = (settings.checkpoint_every_steps, settings.checkpoint_every_seconds)
        if folder is None or not any(intervals):
            return None
        return pathlib.Path(folder, self._block, f"fit-{fit_index}")

    def _loop_for(self, call: FitCall) -> FitLoop:
        """Returns the last `fit`'s loop, with its traces, if it can be reused, or a new one."""
        if self._loop is None or not self._loop.reuse_for(call):
            self._loop = FitLoop(call, observer=self._communication)
        return self._loop

    def _callbacks_run_first(self, call: FitCall, loop: FitLoop, recovery: FitGuard | None) -> bool:
        """Whether callbacks may change the model before its steps are tried or traced."""
        module = loop.keras_api.callbacks
        if not callback_hooks.may_change_the_model(call.arguments["callbacks"], module):
            return False
        has_plans = bool(self._given_choices) or self._settings.training.tuning_seconds > 0
        is_resumed = recovery is not None and recovery.step is not None
        return is_resumed or (has_plans and obstacle(call, loop) is None)

    def _choose(self, call: FitCall, loop: FitLoop) -> PlanChoice:
        """Returns the choice of a plan: Keras' own `fit` if anything goes wrong."""
        if strategies.servers_of(call.model.distribute_strategy):
            return choosing.for_parameter_servers(call, loop, settings=self._settings)
        choice = self._known_to_all(call, loop)
        if choice is None:
            choice = self._choose_by_trials(call, loop)
            unspent = sum(each.trial_time_seconds for each in self._known_choices)
            seconds = choice.trial_time_seconds + unspent
            choice = choice.model_copy(update={"trial_time_seconds": seconds})
            if choice.fit:
                self._known_choices.append(choice)
        # The time of trials counts for one `fit` only.
        spent = {"trial_time_seconds": 0.0}
        self._known_choices = [each.model_copy(update=spent) for each in self._known_choices]
        return choosing.with_gradient_checkpointing(call, loop, choice, settings=self._settings)

    def _resumed_choice(
        self, plan: TrainingPlan, call: FitCall, loop: FitLoop, *, step: int | None
    ) -> PlanChoice:
        """Returns a choice with an interrupted training's plan and, if known, trial results."""
        resumed = f"it resumed an interrupted training at step {step}"
        reason = loop.hooks_obstacle  # a callback may have been added since
        if not loop.sync.all_equal(reason) or reason:
            because = reason or "other workers have other callbacks"
            return PlanChoice(plan=plan.plain, plan_reason=f"{resumed}: {because}")
        known = self._known_to_all(call, loop)
        if known is None or known.plan.in_whole_batches != plan.in_whole_batches:
            return PlanChoice(plan=plan, plan_reason=resumed)
        return known.model_copy(update={"plan": plan})

    def _known_to_all(self, call: FitCall, loop: FitLoop) -> PlanChoice | None:
        sync = loop.sync
        # Checking whether a choice applies may build the model, in which all workers take part.
        all_found = sync.all_equal([(each.plan, each.fit) for each in self._known_choices])
        choice = self._known(call, loop) if all_found else None
        return choice if sync.all_equal(choice and choice.plan) else None

    def _known(self, call: FitCall, loop: FitLoop) -> PlanChoice | None:
        """Returns the choice that was given, or made for an equal earlier `fit`, if any."""
        for earlier in self._known_choices:
            choice = choosing.as_given(call, loop, earlier)
            if choice.fit or not earlier.fit:
                return choice
        return None

    def _as_configured(self, plan: TrainingPlan, loop: FitLoop) -> TrainingPlan:
        fit = loop.described(self._settings)
        update = {"reduction_dtype": SPEEDUPS["reduction_dtype"].always(fit)}
        return families.allowed(plan.model_copy(update=update), self._settings)


def _plain_step_seconds(choice: PlanChoice) -> float | None:
    plan = choice.plan
    times = (
        trial.step_time.value
        for trial in choice.trials
        if trial.plan.is_plain_fit
        and trial.step_time
        and (trial.plan.environment, trial.plan.precision) == (plan.environment, plan.precision)
    )
    return None if plan.is_plain_fit else next(times, None)


def _early_callbacks(
    call: FitCall, loop: FitLoop, recovery: FitGuard | None
) -> contextlib.AbstractContextManager[callback_hooks.EarlyCallbacks]:
    saved = recovery if isinstance(recovery, Recovery) else None
    if saved is not None:
        saved.continue_logs()
    return callback_hooks.called_early(
        call,
        loop.keras_api,
        steps=loop.train_length,
        is_resumed=recovery is not None and recovery.step is not None,
        on_train_begun=saved.note_callbacks if saved is not None else lambda: None,
    )


def _or_none(ask: Callable[[], _T], *, what: str) -> _T | None:
    """Returns the result of `ask`, which all workers compute together; None if that fails."""
    try:
        return ask()
    except LostWorkerError as error:  # this worker has finished training
        _LOGGER.warning("Could not collect %s from all workers: %s.", what, error)
    except Exception:
        _LOGGER.warning("Could not measure %s.", what, exc_info=True)
    return None


def _note_if_alone(call: FitCall) -> tuple[str, ...]:
    """Returns a note if this process trains alone although `TF_CONFIG` names others."""
    strategy = call.model.distribute_strategy
    built = f"but the model was built under {strategies.describe(strategy)}"
    count, servers = workers.this().count, workers.these_servers()
    if servers and strategies.servers_of(strategy) is None:
        note = (
            f"TF_CONFIG names parameter servers, {built}: this process trains alone. Build and "
            "compile the model in the scope of tf.distribute.ParameterServerStrategy"
        )
    elif count > 1 and strategies.worker_count(strategy) == 1:
        note = (
            f"TF_CONFIG names {count} workers, {built}: each of them trains alone. Build and "
            "compile the model in the scope of tf.distribute.MultiWorkerMirroredStrategy()"
        )
    else:
        return ()
    _LOGGER.warning("%s.", note)
    return (note,)
