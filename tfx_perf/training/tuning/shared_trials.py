"""Trials that the workers run together: all run the same one at the same time."""

import time
from collections.abc import Sequence

from tfx_perf.config import PerfConfig
from tfx_perf.core import time_limit
from tfx_perf.core.interception import FitCall
from tfx_perf.training.loop.fit_loop import FitLoop
from tfx_perf.training.replicas.sync import FailedAloneError
from tfx_perf.training.speedups.plan import PLAIN_FIT, TrainingPlan
from tfx_perf.training.tuning import choosing, cost_model, earlier, families
from tfx_perf.training.tuning.choice import PlanChoice, TrialProgress, TrialRecord, lost
from tfx_perf.training.tuning.earlier import KnownPlan

_OWN_LOG = "/dev/stderr"  # the worker's
_NOT_STARTED_AGAIN = (
    "a trial may crash a worker, which would not be restarted; use tfx-perf launch --restarts 1 "
    "to allow trials"
)


class SharedTrials:
    """Chooses the plan of a training on several workers.

    A worker that fails alone in a trial, or hangs, blocks the others, since workers wait for each
    other in every step. So trials run only once, and only if all workers would be restarted: they
    then find a saved plan that needs no trials.
    """

    def __init__(
        self,
        settings: PerfConfig,
        *,
        known: KnownPlan | None = None,
        folder: str | None = None,
        why_none: str = _NOT_STARTED_AGAIN,
    ) -> None:
        """Tries nothing yet; without a `folder` for restarted workers there are no trials."""
        self._settings = settings
        self._known, self._folder = known or KnownPlan(), folder
        self._why_none = why_none if folder is None else ""

    def choose(self, call: FitCall, loop: FitLoop) -> PlanChoice:
        """Returns the plan for a `fit`, the same on each worker that its model was built for."""
        if loop.sync.size > 1:
            return self._known.add_to(self._choose_together(call, loop))
        choice = choosing.choose_and_restore(call, loop, settings=self._settings, known=self._known)
        return self._known.add_to(choice)

    def _choose_together(self, call: FitCall, loop: FitLoop) -> PlanChoice:
        sync, known, settings = loop.sync, self._known, self._settings
        untried = choosing.for_workers(call, loop, settings=settings, why=self._why_none)
        if self._folder is None:  # but another run may have trials
            return untried.model_copy(update={"is_settled": False})
        if untried.plan.is_plain_fit:
            return untried
        with choosing.on_own_data(call, loop, settings=settings, known=known) as tried_call:
            if not sync.all_equal(tried_call is None) or tried_call is None:
                return _because(untried, choosing.NEEDS_OWN_PROCESS)
            seconds = cost_model.limit_seconds(settings.training.tuning_seconds)
            with time_limit.ended_after(seconds, log_path=_OWN_LOG):
                choice = self._run_trials(tried_call, loop, untried=untried)
                if not sync.all_equal(choice.plan):
                    choice = _because(untried, "trials chose different plans on different workers")
        if sync.is_chief:
            self._keep(choice)
        return choice

    def _run_trials(self, call: FitCall, loop: FitLoop, *, untried: PlanChoice) -> PlanChoice:
        """Returns the result of trials; if they end a worker, all workers restart without them."""
        running = TrialProgress(began=time.time(), running=(), finished=())

        def note(progress: TrialProgress) -> None:
            nonlocal running
            running = progress
            if loop.sync.is_chief:
                self._keep(_cut_off(untried, progress))

        note(running)
        try:
            choice = choosing.by_trials(
                call, loop, settings=self._settings, watch=note, known=self._known
            )
        except FailedAloneError as error:
            self._keep(_cut_off(untried, running, cause=str(error)))
            raise
        return _or_untried(choice, untried)

    def _keep(self, choice: PlanChoice) -> None:
        earlier.keep(self._folder, self._known.add_to(choice))


def _because(untried: PlanChoice, reason: str) -> PlanChoice:
    return untried.model_copy(update={"plan_reason": f"{untried.plan_reason}: {reason}"})


def _cut_off(
    untried: PlanChoice, progress: TrialProgress, *, cause: str | None = None
) -> PlanChoice:
    """Returns the choice after trials that have ended a worker.

    `cause` is the reason if it would recur; None if perhaps no plan was at fault.
    """
    culprits = [plan for plan in progress.running if not plan.is_plain_fit]
    reason = cause or "a worker crashed or hung in its trial"
    trials = (*progress.finished, *(lost(plan, reason) for plan in culprits))
    plan = untried.plan if _may_train(untried.plan, trials) else PLAIN_FIT
    return untried.model_copy(
        update={
            "plan": plan,
            "plan_reason": "a trial ended the workers",
            "trials": trials,
            "is_settled": cause is not None,
        }
    )


def _or_untried(choice: PlanChoice, untried: PlanChoice) -> PlanChoice:
    """Returns the choice of trials, or if Keras' `fit`, `untried` unless it lost or failed."""
    if not choice.plan.is_plain_fit or not _may_train(untried.plan, choice.trials):
        return choice
    reason = f"it computes the same as Keras fit, no slower, and {choice.plan_reason}"
    is_settled = choice.is_settled and bool(choice.fit)  # without one, any `fit` would use it
    update = {"plan": untried.plan, "plan_reason": reason, "is_settled": is_settled}
    return choice.model_copy(update=update)


def _may_train(plan: TrainingPlan, trials: Sequence[TrialRecord]) -> bool:
    against = (each.plan for each in trials if _rules_out(each))
    return not any(families.same_function(other, plan) for other in against)


def _rules_out(trial: TrialRecord) -> bool:
    if trial.status == "slower":  # or not surely faster
        return trial.speedup is None or trial.speedup.value < 1.0
    has_failed = trial.status == "failed" and trial.compile_time_seconds is None
    return has_failed or trial.status == "different"
