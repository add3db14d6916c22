"""Trials that the workers make together, each at the same time as the others."""

from tfx_perf.components.optimized_trainer import checkpoints, supervised_trials
from tfx_perf.components.optimized_trainer.workers.known_plan import KnownPlan
from tfx_perf.components.processes import time_limit
from tfx_perf.components.training_job.job import TrainingJob
from tfx_perf.interception import FitCall
from tfx_perf.training.loop import Loop
from tfx_perf.training.team import Team
from tfx_perf.training.trials import choosing, families, trials_here
from tfx_perf.training.trials.choice import PlanChoice

_OWN_LOG = "/dev/stderr"  # the worker's


class TrialsTogether:
    """Chooses the plan of a training on several workers.

    A worker that fails alone in a trial, or hangs, takes the others with it: they wait for each
    other in every step. So trials are made once. All workers are started again then, and find a
    plan beside the checkpoints that needs none.
    """

    def __init__(self, job: TrainingJob, known: KnownPlan) -> None:
        """Tries nothing yet.

        Args:
            job: the training, with the folder of its checkpoints.
            known: before.
        """
        self._known = known
        self._folder = job.settings.training.checkpoint_folder
        self._budget_seconds = job.settings.training.trial_budget_seconds
        self._settings = supervised_trials.settings_of(job, budget_seconds=self._budget_seconds)
        self._restarts = job.settings.distribution.restarts

    @property
    def given(self) -> PlanChoice | None:
        """What need not be tried; None if nothing is known."""
        return self._known.choice or checkpoints.kept_choice(self._folder, self._known.key)

    def choose(self, call: FitCall, loop: Loop) -> PlanChoice:
        """Returns the plan for a `fit`; each worker comes to the same.

        Args:
            call: the user's.
            loop: the loop that would run it.
        """
        untried = choosing.for_workers(call, loop, settings=self._settings)
        if self._folder is None or not self._restarts or self._known.is_too_short:
            return untried
        untried = untried.model_copy(update={"key": self._known.key})
        if untried.plan.is_plain_fit:
            return untried
        team = Team(call.model.distribute_strategy)
        with trials_here.on_own_data(call, loop) as own:
            if not team.all(own is not None and own is not call):
                return untried
            if team.is_chief:
                reason = "trials of it have ended the workers"
                refused = untried.model_copy(
                    update={"plan_reason": reason, "is_settled": False}
                )
                checkpoints.keep_choice(self._folder, refused)
            choice = self._tried(own or call, loop)
        choice = _or_untried(choice, untried).model_copy(update={"key": self._known.key})
        if not team.agrees(str(choice.plan)):
            choice = untried
        if team.is_chief:
            checkpoints.keep_choice(self._folder, choice)
        return choice

    def _tried(self, call: FitCall, loop: Loop) -> PlanChoice:
        limit_seconds = supervised_trials.limit_seconds(self._budget_seconds)
        with time_limit.ended_after(limit_seconds, log_path=_OWN_LOG):
            return choosing.by_trials(
                call,
                loop,
                settings=self._settings,
                previous_plan=self._known.previous_plan,
            )


def _or_untried(choice: PlanChoice, untried: PlanChoice) -> PlanChoice:
    """Returns what trials chose; where they chose nothing, the plan that needs none.

    Not if it lost, or failed; that there was no time for it says nothing.
    """
    against = (
        each.plan
        for each in choice.trials
        if each.status in ("slower", "different")
        or (each.status == "failed" and each.compile_time_seconds is None)
    )
    is_known = any(families.same_function(plan, untried.plan) for plan in against)
    if is_known or not choice.plan.is_plain_fit:
        return choice
    reason = f"{untried.plan_reason}: {choice.plan_reason}"
    return choice.model_copy(update={"plan": untried.plan, "plan_reason": reason})
