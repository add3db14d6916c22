"""Trials that the workers make together, each at the same time as the others."""

from collections.abc import Callable, Mapping

from tfx_perf import time_limit
from tfx_perf.config import PerfConfig
from tfx_perf.interception import FitCall
from tfx_perf.training.loop import Loop
from tfx_perf.training.plan import TrainingPlan
from tfx_perf.training.team import Team
from tfx_perf.training.trials import budget, choosing, families, kept_choice, trials_here
from tfx_perf.training.trials.choice import PlanChoice, TrialRecord

_OWN_LOG = "/dev/stderr"  # the worker's


class TrialsTogether:
    """Chooses the plan of a training on several workers.

    A worker that fails alone in a trial, or hangs, takes the others with it: they wait for each
    other in every step. So trials are made once, and only where somebody starts all workers again:
    they find a plan then that needs none.
    """

    def __init__(
        self,
        settings: PerfConfig,
        *,
        folder: str | None = None,
        key: Mapping[str, str] | None = None,
        previous_plan: TrainingPlan | None = None,
        held_against: Callable[[PlanChoice], PlanChoice] = lambda choice: choice,
    ) -> None:
        """Tries nothing yet.

        Args:
            settings: see `choosing.by_trials`.
            folder: where workers that are started again find the choice; None: there are to be no
                trials.
            key: of the choice; see `plan_key`.
            previous_plan: see `Trials`.
            held_against: makes of a choice what it is beside what was found before.
        """
        self._settings = settings
        self._folder, self._key = folder, dict(key or {})
        self._previous_plan = previous_plan
        self._held_against = held_against

    def choose(self, call: FitCall, loop: Loop) -> PlanChoice:
        """Returns the plan for a `fit`; each worker comes to the same.

        Args:
            call: the user's; if its model was not built for several workers, there is nobody to
                wait for, and the trials are those of one process.
            loop: the loop that would run it.
        """
        team = Team(call.model.distribute_strategy)
        if team.count == 1:
            choice = trials_here.choose_and_restore(
                call, loop, settings=self._settings, previous_plan=self._previous_plan
            )
            return self._held_against(choice)
        untried = choosing.for_workers(call, loop, settings=self._settings)
        if self._folder is None:
            return self._held_against(untried)
        if untried.plan.is_plain_fit:
            return self._whole(untried)
        with trials_here.on_own_data(call, loop) as own:
            if not team.all(own is not None and own is not call):
                return self._whole(untried)
            if team.is_chief:
                reason = "trials of it have ended the workers"
                refused = untried.model_copy(
                    update={"plan_reason": reason, "is_settled": False}
                )
                kept_choice.keep(self._folder, self._whole(refused))
            choice = _or_untried(self._tried(own or call, loop), untried)
        choice = self._whole(choice if team.agrees(str(choice.plan)) else untried)
        if team.is_chief:
            kept_choice.keep(self._folder, choice)
        return choice

    def _whole(self, choice: PlanChoice) -> PlanChoice:
        """Returns a choice with what was found before, and its key."""
        return self._held_against(choice).model_copy(update={"key": self._key})

    def _tried(self, call: FitCall, loop: Loop) -> PlanChoice:
        seconds = budget.limit_seconds(self._settings.training.trial_budget_seconds)
        with time_limit.ended_after(seconds, log_path=_OWN_LOG):
            return choosing.by_trials(
                call, loop, settings=self._settings, previous_plan=self._previous_plan
            )


def _or_untried(choice: PlanChoice, untried: PlanChoice) -> PlanChoice:
    """Returns what trials chose; where they chose nothing, the plan that needs none.

    Not if it lost, or failed; that there was no time for it, or too little to be sure, says
    nothing.
    """
    against = (each.plan for each in choice.trials if _speaks_against(each))
    is_known = any(families.same_function(plan, untried.plan) for plan in against)
    if is_known or not choice.plan.is_plain_fit:
        return choice
    reason = f"it needs no trial, and {choice.plan_reason}"
    return choice.model_copy(update={"plan": untried.plan, "plan_reason": reason})


def _speaks_against(trial: TrialRecord) -> bool:
    if trial.status == "slower":  # or not surely faster
        return trial.speedup is None or trial.speedup.value < 1.0
    has_failed = trial.status == "failed" and trial.compile_time_seconds is None
    return has_failed or trial.status == "different"
