"""PlanChoice: which plan a `fit` trains with, and why."""

from collections.abc import Mapping
from typing import ClassVar, Literal

from tfx_perf.core import records, statistics
from tfx_perf.training.speedups.plan import PLAIN_FIT, TrainingPlan

Status = Literal["reference", "chosen", "slower", "different", "failed", "stopped", "untried"]

MUST_BEAT = "what plans must beat"
"""Why the table lists the reference although another plan trains."""

TRIALS_OFF = "trials are off, as training.tuning_seconds is 0"
"""Why Keras fit trains if no plan is to be tried."""


class TrialRecord(records.Record):
    """One plan that was tried.

    The status `reference` is for Keras fit; a `chosen` plan won, or trains because it needs no
    trial; `slower` lost or tied; `different` did not reach Keras fit's state or, in another
    precision, its loss; `failed` raised or crashed; `stopped` took too long for the budget;
    `untried` was not worth trying, or is impossible.
    """

    plan: TrainingPlan
    status: Status
    reason: str
    loss: float | None = None  # mean over the equivalence check's steps
    compile_time_seconds: float | None = None  # tracing included; None if it failed
    compiled_shapes: tuple[str, ...] | None = None  # by XLA, in trials too; one program each
    step_time: statistics.Interval | None = None  # seconds; median over blocks, or of the check
    speedup: statistics.Interval | None = None  # over Keras fit, including any gain of oneDNN
    may_pass: bool = True  # whether another run may avoid this failure


class TrialProgress(records.Record):
    """The state of trials whose process may end without a message."""

    SCHEMA: ClassVar[str] = "tfx_perf.progress/1"

    began: float  # seconds since 1970, for another process
    running: tuple[TrainingPlan, ...]  # all share one traced function
    finished: tuple[TrialRecord, ...]  # final records, of plans that cannot win


class StrategyChoice(records.Record):
    """The result of `auto` in the section `distribution`."""

    SCHEMA: ClassVar[str] = "tfx_perf.strategy_choice/1"
    REMOVED: ClassVar[frozenset[str]] = frozenset({"worker_count"})

    name: str  # `one_device` or `mirrored`
    reason: str
    speedup: statistics.Interval | None = None  # of all devices over one; None if not measured
    turns_seconds: float = 0.0  # share of the trials' budget in this run
    seconds: float = 0.0  # wall time in this run
    key: dict[str, str] = {}  # see `plan_key`

    def for_another_run(self) -> "StrategyChoice":
        """Returns the choice for a run that measures nothing."""
        return self.model_copy(update={"turns_seconds": 0.0, "seconds": 0.0})


class PlanChoice(records.Record):
    """The result of trials in this process, in a separate one, or in an earlier run."""

    SCHEMA: ClassVar[str] = "tfx_perf.choice/1"
    REMOVED: ClassVar[frozenset[str]] = frozenset({"double_batch_time_ratio", "fit_step_count"})
    RENAMED: ClassVar[Mapping[str, str]] = {"planned_runs": "expected_runs"}

    plan: TrainingPlan
    plan_reason: str  # one sentence
    trials: tuple[TrialRecord, ...] = ()
    input_wait_ratio: float | None = None  # share of a step saved if data is in memory
    trial_time_seconds: float = 0.0  # wall time in this run, their process included
    trial_import_seconds: float | None = None  # until the user's code; None: no process
    trial_setup_seconds: float | None = None  # from there until `fit`; None likewise
    trial_leftover_bytes: int = 0  # left in the process, less the plan's own program
    fit: dict[str, str] = {}  # the `fit` that was tried; see `fit_key`
    key: dict[str, str] = {}  # other conditions; see `plan_key`
    strategy: StrategyChoice | None = None  # the plan's, if it was chosen by `auto`
    trials_failed: bool = False  # as a whole; `plan_reason` says how
    is_settled: bool = False  # trials with the same key would find the same
    budget_lack: str = ""  # what it was too small for, and what suffices; a part of a sentence
    expected_runs: int | None = None  # that the trials assumed; None without trials
    enough_runs: int | None = None  # fewest runs for which trials would try more; None: never
    reused_from: str | None = None  # the artifact of the run that had the trials
    other_choices: "tuple[PlanChoice, ...]" = ()  # of other `fit`s in the same training

    @property
    def of_all_fits(self) -> "tuple[PlanChoice, ...]":
        """The choices of all `fit`s, each without the others; this one comes first."""
        return self.model_copy(update={"other_choices": ()}), *self.other_choices

    @property
    def with_plan_among_trials(self) -> "PlanChoice":
        """The choice, with a record added if its plan trains because it needs no trial."""
        has_record = any(
            each.status == "chosen" or (each.status == "reference" and each.plan == self.plan)
            for each in self.trials
        )
        if has_record or not self.trials:
            return self
        trial = TrialRecord(plan=self.plan, status="chosen", reason=self.plan_reason)
        tried = next((each for each in self.trials if each.plan == self.plan), None)
        if tried is not None:
            reason = f"{tried.reason}; {self.plan_reason}"
            trial = tried.model_copy(update={"status": "chosen", "reason": reason})
        references = (
            each.model_copy(update={"reason": MUST_BEAT})
            for each in self.trials
            if each.status == "reference"
        )
        others = (
            each for each in self.trials if each.status != "reference" and each.plan != self.plan
        )
        return self.model_copy(update={"trials": (*references, trial, *others)})

    def given_up(self, why: str) -> "PlanChoice":
        """Returns the choice after its plan was slow in the training; the next run tries again."""
        trials = tuple(
            each.model_copy(update={"speedup": None, "reason": f"{each.reason}; {why}"})
            if each.status == "chosen"
            else each
            for each in self.trials
        )
        return self.model_copy(update={"plan_reason": why, "trials": trials, "is_settled": False})

    def for_another_run(self, source: str, *, expected_runs: int) -> "PlanChoice | None":
        """Returns the choices for a run without trials; None if this `fit` needs trials."""
        if not self.is_final(expected_runs=expected_runs):
            return None
        this_choice = PlanChoice(**{name: getattr(self, name) for name in PlanChoice.model_fields})
        first, *others = (
            choice.model_copy(
                update={
                    "plan": choice.plan.in_whole_batches,  # memory may suffice this time
                    "trial_time_seconds": 0.0,
                    "trial_import_seconds": None,
                    "trial_setup_seconds": None,
                    "reused_from": choice.reused_from or source,
                }
            )
            for choice in this_choice.of_all_fits
            if choice.is_final(expected_runs=expected_runs)
        )
        return first.model_copy(update={"other_choices": tuple(others)})

    def is_final(self, *, expected_runs: int) -> bool:
        """Whether trials for this many expected runs would find the same."""
        is_open = self.enough_runs is not None and expected_runs >= self.enough_runs
        return self.is_settled and not is_open


def lost(plan: TrainingPlan, cause: str) -> TrialRecord:
    """Returns the record of a plan that ended its process; `cause` is a sentence."""
    return TrialRecord(
        plan=plan, status="failed", reason=cause, compiled_shapes=() if plan.uses_xla else None
    )


def plain(reason: str, *, is_settled: bool = False, budget_lack: str = "") -> PlanChoice:
    """Returns the choice of Keras' `fit` where nothing was tried, for a reason in a sentence."""
    return PlanChoice(
        plan=PLAIN_FIT, plan_reason=reason, is_settled=is_settled, budget_lack=budget_lack
    )


def failed(cause: str) -> PlanChoice:
    """Returns the choice of Keras' `fit` where the trials failed; `cause` is a sentence."""
    return PlanChoice(plan=PLAIN_FIT, plan_reason=f"the trials failed: {cause}", trials_failed=True)
