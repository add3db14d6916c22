"""Chooses the plan for a `fit`; if anything fails, the choice is Keras' `fit`."""

import contextlib
import dataclasses
import logging
import time
from collections.abc import Callable, Iterator

from tfx_perf.config import PerfConfig
from tfx_perf.core import cache_key, errors
from tfx_perf.core.interception import FitCall
from tfx_perf.tf_internals import ancestry, autograph, graphs
from tfx_perf.training.fit.takeover import blocking_other_threads
from tfx_perf.training.loop.eligibility import obstacle
from tfx_perf.training.loop.fit_loop import FitLoop
from tfx_perf.training.replicas.sync import SyncError
from tfx_perf.training.speedups.plan import PLAIN_FIT, TrainingPlan
from tfx_perf.training.tuning import families, initial_state
from tfx_perf.training.tuning.choice import TRIALS_OFF, PlanChoice, TrialProgress, failed, plain
from tfx_perf.training.tuning.cost_model import Budget, CostModel
from tfx_perf.training.tuning.earlier import KnownPlan
from tfx_perf.training.tuning.plan_key import fit_key
from tfx_perf.training.tuning.plan_tuner import PlanTuner

NEEDS_OWN_PROCESS = (
    "the data or the step call Python functions, which trials would call as well, or variables "
    "outside the model exceed 256 MiB; a step with TensorFlow operations only, on data that "
    "TensorFlow reads itself, such as TFRecord files, can be tuned"
)
"""Why Keras' `fit` trains if trials have no separate process to run in."""

_WRITES = "the step writes files or summaries, and trials would add their own to them"
_LOGGER = logging.getLogger(__name__)
_NOTHING = KnownPlan()
_PARAMETERS = "parameter_count"
# Largest ratios of the parameter counts of two models: for trials to give the same result, and for
# a plan of one model to be used for the other at all.
_SAME_RATIO, _LARGEST_RATIO = 1.1, 2.0


def by_trials(
    call: FitCall,
    loop: FitLoop,
    *,
    settings: PerfConfig,
    watch: Callable[[TrialProgress], None] = lambda progress: None,
    known: KnownPlan = _NOTHING,
    stop_when: Callable[[float], bool] = lambda step_seconds: False,
) -> PlanChoice:
    """Runs trials in this process, and returns the plan that wins; see `PlanTuner` for arguments.

    The model is unchanged afterwards, except that its variables exist. Raises SyncError if several
    workers cannot continue their trials.
    """
    began = time.perf_counter()
    budget = Budget(settings.training.tuning_seconds, sync=loop.sync)
    choice = _without_trials(call, loop, settings=settings, known=known)
    if choice is not None:
        return choice
    end_trial = loop.functions.on_trial()
    try:
        loop.prepare()
        key = fit_key(call, loop)
        if loop.functions.keras.train.has_operation(graphs.is_writer):
            choice = plain(_WRITES, is_settled=True)
        else:
            choice = PlanTuner(
                call,
                loop,
                settings=settings,
                budget=budget,
                watch=watch,
                known=known,
                stop_when=stop_when,
            ).run()
    except errors.TOLERATED as error:  # failed trials must not stop the user's training
        if autograph.asks_for_conversion(error) or isinstance(error, SyncError):
            raise
        if loop.trace_error is None:  # otherwise `fit` raises the error of Keras' own step, too
            reason = errors.in_one_line(error)
            _LOGGER.warning("Tuning failed; training with Keras fit: %s", reason, exc_info=True)
        end_trial()
        return failed(errors.in_one_line(error))
    if choice.plan.is_plain_fit:
        end_trial()
    seconds = time.perf_counter() - began
    return choice.model_copy(update={"fit": key, "trial_time_seconds": seconds})


def choose_and_restore(
    call: FitCall, loop: FitLoop, *, settings: PerfConfig, known: KnownPlan = _NOTHING
) -> PlanChoice:
    """Returns the plan that wins; leaves the model, random generators and data unchanged."""
    with on_own_data(call, loop, settings=settings, known=known) as tried_call:
        if tried_call is None:
            return plain(NEEDS_OWN_PROCESS)
        choice = by_trials(tried_call, loop, settings=settings, known=known)
    # If nothing was tried, the cause may be missing from the key, such as a script argument.
    if not choice.fit:
        return choice.model_copy(update={"is_settled": False})
    return choice


def _without_trials(
    call: FitCall, loop: FitLoop, *, settings: PerfConfig, known: KnownPlan
) -> PlanChoice | None:
    """Returns the choice of Keras' `fit` if no plan can be tried, or none may pay; otherwise None.

    Decides this before anything is traced or read.
    """
    if not settings.training.tuning_seconds:
        return plain(TRIALS_OFF)
    reason = obstacle(call, loop)
    if reason:
        return plain(reason, is_settled=True)
    sync = loop.sync
    if sync.broadcast(known.previous_plan is not None):
        return None
    expected_runs = int(sync.broadcast(float(settings.schedule.run_count())))
    cost_model = CostModel(step_count=loop.likely_total_length, expected_runs=expected_runs)
    return cost_model.too_short()


@contextlib.contextmanager
def on_own_data(
    call: FitCall, loop: FitLoop, *, settings: PerfConfig, known: KnownPlan
) -> Iterator[FitCall | None]:
    """Yields the `fit` for trials, on data like its own that share no state with them.

    On exit, restores variables outside the model that a step may have changed. Other threads that
    call the model wait until then. Yields None if the data or the step call Python functions, or
    those variables need too much memory; yields `call` itself if nothing is to be tried.
    """
    if _without_trials(call, loop, settings=settings, known=known) is not None:
        yield call
        return
    data = ancestry.independent(call.arguments["x"])
    if data is None:
        yield None
        return
    with blocking_other_threads(call.model):
        # An unbuilt model must be built with the random numbers that Keras' `fit` would draw.
        end = loop.functions.on_trial() if call.model.built else lambda: None
        with contextlib.suppress(*errors.TOLERATED):  # the trials raise it again
            loop.prepare()
        calls_python = loop.functions.keras.train.has_operation(graphs.is_python)
        end()
        variables = initial_state.variables_of(call.model, loop.keras_api).values()
        outside = None if calls_python else initial_state.variables_outside(beside=variables)
        if outside is None:
            yield None
            return
        with initial_state.kept(outside, used=lambda: loop.functions.used_variables):
            yield dataclasses.replace(call, arguments={**call.arguments, "x": data})


def for_workers(call: FitCall, loop: FitLoop, *, settings: PerfConfig, why: str = "") -> PlanChoice:
    """Returns the plan for several workers, the same on each.

    There are no trials, for the reason `why`: a worker that failed alone would make the others wait
    forever. So the plan has only speedups that compute the same and are not slower, and the fewest
    steps per call.
    """
    plan, reason = PLAIN_FIT, None
    has_trials = settings.training.tuning_seconds > 0
    if has_trials:
        try:
            reason = obstacle(call, loop)
            plan = PLAIN_FIT if reason else families.untried(loop, settings=settings)
        except Exception as error:  # it must not stop the user's training
            _LOGGER.warning("Training with Keras fit.", exc_info=True)
            reason = errors.in_one_line(error)
    sync = loop.sync
    if not sync.all_equal(plan) and not plan.is_plain_fit:
        # For example, that worker has a callback which needs every batch.
        plan, reason = PLAIN_FIT, "another worker cannot train with the same plan"
    together = f"{sync.size} workers train together, without trials"
    if not has_trials:
        return plain(TRIALS_OFF)
    because = reason or why
    plan_reason = f"{together}: {because}" if because else together
    return PlanChoice(plan=plan, plan_reason=plan_reason, is_settled=True)


def for_parameter_servers(call: FitCall, loop: FitLoop, *, settings: PerfConfig) -> PlanChoice:
    """Returns an untried plan with the fewest steps per call for a parameter server coordinator."""
    if not settings.training.tuning_seconds:
        return plain(TRIALS_OFF)
    reason = "workers train asynchronously, without trials, which could not restore their state"
    users_steps = loop.keras_api.get_steps_per_execution(call.model)
    if users_steps > 1:
        return plain(f"{reason}: the model has steps_per_execution={users_steps}", is_settled=True)
    plan = TrainingPlan(steps_per_execution=min(settings.training.steps_per_execution))
    reason = f"{reason}; set training.steps_per_execution to another number that you want"
    return PlanChoice(plan=plan, plan_reason=reason, is_settled=True)


def as_given(call: FitCall, loop: FitLoop, choice: PlanChoice) -> PlanChoice:
    """Returns an earlier choice if it is valid for this `fit`, otherwise Keras' `fit`.

    If the size of the model has changed since, the plan is used once more, watched by a
    `KerasFallback`, and the next run makes new trials.
    """
    if not choice.fit:  # Keras' `fit`, because no plan could be tried
        return choice
    try:
        reason = obstacle(call, loop)
        if not reason:
            if not call.model.built:
                loop.prepare(choice.plan)
            key = fit_key(call, loop)
            reason = _mismatch(choice.fit, key)
    except Exception as error:  # it must not stop the user's training
        reason = errors.in_one_line(error)
    if not reason:
        is_same = _ratio(choice.fit, key) <= _SAME_RATIO
        return choice.model_copy(update={"is_settled": choice.is_settled and is_same})
    return plain(reason).model_copy(
        update={"key": choice.key, "trial_time_seconds": choice.trial_time_seconds}
    )


def with_gradient_checkpointing(
    call: FitCall, loop: FitLoop, choice: PlanChoice, *, settings: PerfConfig
) -> PlanChoice:
    """Returns the choice, with gradient checkpointing instead of Keras' `fit` if asked for."""
    if not settings.training.gradient_checkpointing or not choice.plan.is_plain_fit:
        return choice
    reason = obstacle(call, loop)
    plan = PLAIN_FIT if reason else families.reference(loop, settings=settings)
    if plan.is_plain_fit:
        why = reason or loop.keras_api.splitting_obstacle(call.model)
        _LOGGER.warning("training.gradient_checkpointing is not used: %s.", why)
    return choice.model_copy(update={"plan": plan})


def _mismatch(tried: dict[str, str], present: dict[str, str]) -> str | None:
    changes = cache_key.differences(tried, present)
    if changes.keys() == {_PARAMETERS} and _ratio(tried, present) <= _LARGEST_RATIO:
        return None
    return f"the plan is for another fit: {cache_key.describe(changes)}" if changes else None


def _ratio(one: dict[str, str], other: dict[str, str]) -> float:
    """Returns the larger parameter count over the smaller; e.g. a vocabulary may differ."""
    smaller, larger = sorted(int(fit[_PARAMETERS]) for fit in (one, other))
    return larger / max(smaller, 1)
