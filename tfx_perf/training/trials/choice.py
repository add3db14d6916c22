"""PlanChoice: which plan a `fit` trains with, and why."""

from typing import ClassVar, Literal

from tfx_perf.core import records, statistics
from tfx_perf.training.plan import PLAIN_FIT, TrainingPlan

Status = Literal["reference", "chosen", "slower", "different", "failed", "untried"]

MUST_BEAT = "what plans must beat"
"""Why the reference is in the table where another plan trains."""

TRIALS_OFF = "trials are off, as training.trial_budget_seconds is 0"
"""Why plain fit trains where nothing is to be tried."""


class TrialRecord(records.Record):
    """One plan that was tried.

    Attributes:
        plan: the plan.
        status: `reference` is plain fit; `chosen` won, or trains because it needs no trial;
            `slower` lost or tied; `different` did not reach plain fit's state or, in another
            precision, its loss; `failed` raised, crashed or ran out of time; `untried` was not
            worth it, or is not possible.
        reason: one sentence.
        loss: mean training loss over the steps of the equivalence check; None if there is none.
        compile_time_seconds: tracing and compiling, XLA included; None if that failed.
        compiled_shapes: input shapes that XLA compiled its step for, or failed to, one program
            each; None without XLA, and where nothing was compiled.
        step_time: seconds per step, median over the blocks; where there were no turns, in the
            check.
        speedup: plain fit's step time over this one's, in interleaved pairs; for a plan with
            oneDNN, that over plain fit with it, times what oneDNN gained plain fit. None without
            turns.
        may_pass: of a failure, whether another run may be without: a process was killed, say. It is
            known of plain fit in turns.
    """

    plan: TrainingPlan
    status: Status
    reason: str
    loss: float | None = None
    compile_time_seconds: float | None = None
    compiled_shapes: tuple[str, ...] | None = None
    step_time: statistics.Interval | None = None
    speedup: statistics.Interval | None = None
    may_pass: bool = True


class TrialProgress(records.Record):
    """The state of trials that may end without a word.

    Attributes:
        began: when, in seconds since 1970 (another process will read it).
        running: the plans that are being tried; those of one traced function together.
        finished: the records that are final, all of plans that cannot win.
    """

    SCHEMA: ClassVar[str] = "tfx_perf.progress/1"

    began: float
    running: tuple[TrainingPlan, ...]
    finished: tuple[TrialRecord, ...]


class StrategyChoice(records.Record):
    """What `auto` of the section `distribution` came to.

    Attributes:
        name: `one_device` or `mirrored`.
        reason: one sentence.
        speedup: one device's step time over that of all together; None if it was not measured.
        turns_seconds: of the trials' budget that measuring it took, in this run.
        seconds: wall time that finding it out took, in this run.
        key: what it depends on; see `plan_key`.
    """

    SCHEMA: ClassVar[str] = "tfx_perf.strategy_choice/1"
    GONE: ClassVar[frozenset[str]] = frozenset({"worker_count"})

    name: str
    reason: str
    speedup: statistics.Interval | None = None
    turns_seconds: float = 0.0
    seconds: float = 0.0
    key: dict[str, str] = {}

    def for_another_run(self) -> "StrategyChoice":
        """Returns the choice for a run that measures nothing."""
        return self.model_copy(update={"turns_seconds": 0.0, "seconds": 0.0})


class PlanChoice(records.Record):
    """What the trials found, here, in a process of their own, or in a run before.

    Attributes:
        plan: the plan to train with.
        plan_reason: why this plan, in one sentence.
        trials: every plan that was tried; empty if there were no trials.
        input_wait_ratio: share of the plan's step that disappears when one batch is
            repeated from memory; None if it was not measured.
        trial_time_seconds: wall time that this run spent on the trials; a process of
            their own counts from its start to its end.
        trial_import_seconds: the part of it from the start of that process to the user's code;
            None if the trials had no process of their own.
        trial_setup_seconds: the part of it in the user's code, up to `fit`; likewise.
        trial_leftover_bytes: host memory that the trials have left in their process, beside what
            the plan's own program takes.
        fit_step_count: training steps of the `fit` that was tried; None if none was.
        fit: the `fit` that was tried; see `fit_key`. Empty if none was.
        key: what the choice depends on beside that; see `plan_key`. Empty if nobody asked.
        strategy: what the plan was found under, where that was to be found out; None if it was
            not.
        trials_failed: whether something went wrong with the trials as a whole; `plan_reason` says
            what.
        is_settled: whether trials with the same key would find the same: they came to an end.
        budget_lack: what the trials' budget had no room for, and what would have, in a part of a
            sentence; empty if they did not end with it.
        planned_runs: trainings that the trials were for; None if there were none.
        enough_runs: for so many planned runs and more, trials would try more; None: for none.
        reused_from: the artifact of the run that had the trials, if it was another run.
        other_choices: those of other `fit`s of the same training, which have none.
    """

    SCHEMA: ClassVar[str] = "tfx_perf.choice/1"
    GONE: ClassVar[frozenset[str]] = frozenset({"double_batch_time_ratio"})

    plan: TrainingPlan
    plan_reason: str
    trials: tuple[TrialRecord, ...] = ()
    input_wait_ratio: float | None = None
    trial_time_seconds: float = 0.0
    trial_import_seconds: float | None = None
    trial_setup_seconds: float | None = None
    trial_leftover_bytes: int = 0
    fit_step_count: int | None = None
    fit: dict[str, str] = {}
    key: dict[str, str] = {}
    strategy: StrategyChoice | None = None
    trials_failed: bool = False
    is_settled: bool = False
    budget_lack: str = ""
    planned_runs: int | None = None
    enough_runs: int | None = None
    reused_from: str | None = None
    other_choices: "tuple[PlanChoice, ...]" = ()

    @property
    def of_all_fits(self) -> "tuple[PlanChoice, ...]":
        """The choices of all `fit`s, each alone; this one comes first."""
        return self.model_copy(update={"other_choices": ()}), *self.other_choices

    @property
    def with_plan_among_trials(self) -> "PlanChoice":
        """The choice in which, if there were trials, the plan that trains has a record.

        Trials make none of what trains because it needs no trial.
        """
        has_record = any(
            each.status == "chosen" or (each.status == "reference" and each.plan == self.plan)
            for each in self.trials
        )
        if has_record or not self.trials:
            return self
        own = TrialRecord(plan=self.plan, status="chosen", reason=self.plan_reason)
        tried = next((each for each in self.trials if each.plan == self.plan), None)
        if tried is not None:
            reason = f"{tried.reason}; {self.plan_reason}"
            own = tried.model_copy(update={"status": "chosen", "reason": reason})
        references = (
            each.model_copy(update={"reason": MUST_BEAT})
            for each in self.trials
            if each.status == "reference"
        )
        others = (
            each
            for each in self.trials
            if each.status != "reference" and each.plan != self.plan
        )
        return self.model_copy(update={"trials": (*references, own, *others)})

    def is_final(self, *, planned_runs: int) -> bool:
        """Returns whether trials would find the same.

        Args:
            planned_runs: trainings that will use what is found.
        """
        is_open = self.enough_runs is not None and planned_runs >= self.enough_runs
        return self.is_settled and not is_open


def lost(plan: TrainingPlan, cause: str) -> TrialRecord:
    """Returns the record of a plan that ended its process.

    Args:
        plan: what was tried.
        cause: how, in one sentence.
    """
    return TrialRecord(
        plan=plan,
        status="failed",
        reason=cause,
        compiled_shapes=() if plan.uses_xla else None,
    )


def plain(reason: str, *, is_settled: bool = False, budget_lack: str = "") -> PlanChoice:
    """Returns the choice of plain `fit` where nothing was tried.

    Args:
        reason: why, in one sentence.
        is_settled: whether it will be the same the next time.
        budget_lack: what the trials' budget had no room for; empty if they did not end with it.
    """
    return PlanChoice(
        plan=PLAIN_FIT, plan_reason=reason, is_settled=is_settled, budget_lack=budget_lack
    )


def failed(cause: str) -> PlanChoice:
    """Returns the choice of plain `fit` where the trials could not be made.

    Args:
        cause: of that, in one sentence.
    """
    return PlanChoice(
        plan=PLAIN_FIT, plan_reason=f"the trials failed: {cause}", trials_failed=True
    )
