"""PlanChoice: which plan a `fit` trains with, and why."""

from typing import ClassVar

from tfx_perf import records, statistics
from tfx_perf.training.plan import PLAIN_FIT, TrainingPlan
from tfx_perf.training.trials.trial_record import TrialRecord


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
        double_batch_time_ratio: time of the plan's step on twice the batch over that on the
            batch; None if it was not measured.
        fit_step_count: training steps of the `fit` that was tried; None if none was.
        fit: the `fit` that was tried; see `fit_key`. Empty if none was.
        key: what the choice depends on beside that; see `plan_key`. Empty if nobody asked.
        trials_failed: whether something went wrong with the trials as a whole; `plan_reason` says
            what.
        is_settled: whether trials with the same key would find the same: they came to an end.
        reused_from: the artifact of the run that had the trials, if it was another run.
    """

    SCHEMA: ClassVar[str] = "tfx_perf.choice/1"

    plan: TrainingPlan
    plan_reason: str
    trials: tuple[TrialRecord, ...] = ()
    input_wait_ratio: float | None = None
    trial_time_seconds: float = 0.0
    trial_import_seconds: float | None = None
    trial_setup_seconds: float | None = None
    double_batch_time_ratio: statistics.Interval | None = None
    fit_step_count: int | None = None
    fit: dict[str, str] = {}
    key: dict[str, str] = {}
    trials_failed: bool = False
    is_settled: bool = False
    reused_from: str | None = None


def plain(reason: str, *, is_settled: bool = False) -> PlanChoice:
    """Returns the choice of plain `fit` where nothing was tried.

    Args:
        reason: why, in one sentence.
        is_settled: whether it will be the same the next time.
    """
    return PlanChoice(plan=PLAIN_FIT, plan_reason=reason, is_settled=is_settled)


def failed(cause: str) -> PlanChoice:
    """Returns the choice of plain `fit` where the trials could not be made.

    Args:
        cause: of that, in one sentence.
    """
    return PlanChoice(
        plan=PLAIN_FIT, plan_reason=f"the trials failed: {cause}", trials_failed=True
    )
