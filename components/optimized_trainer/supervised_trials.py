"""Trials in a process that may crash or hang, and another one that knows how far they came."""

import contextlib
import pathlib
import time
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from tfx_perf import console, records, time_limit
from tfx_perf.components.training_job.job import TrainingJob
from tfx_perf.config import PerfConfig
from tfx_perf.interception import FitCall
from tfx_perf.settings.schedule import ScheduleSettings
from tfx_perf.training.loop import Loop
from tfx_perf.training.measuring import memory
from tfx_perf.training.optimizations.onednn import OneDnn
from tfx_perf.training.optimizations.precision import DtypePolicy
from tfx_perf.training.plan import TrainingPlan
from tfx_perf.training.trials import budget, choosing
from tfx_perf.training.trials.choice import (
    PlanChoice,
    TrialProgress,
    TrialRecord,
)
from tfx_perf.training.trials.processes import Comparison

# The processes that must start to have oneDNN: two in turns (which share the cores), and the one
# that trains. None of them can be a fork, which has its imports.
_STARTS, _IMPORT_SECONDS = 3, 10.0


class TrialOrder(records.Record):
    """What the process that makes the trials is told.

    Attributes:
        folder: for what must be known should it end: see `progress` and `choice`.
        log_path: of a file for what is written meanwhile.
        key: the choice's.
        budget_seconds: of the trials; what is left of the settings'.
        asked: when the first process for them was asked for, in seconds since 1970.
        spent_seconds: since then, until this one was asked for.
        known: the records of trials that were cut off; they stand.
        previous_plan: see `Trials`.
        onednn: what came of turns with it; None if there were none.
        may_ask_for_onednn: whether to choose nothing if turns with oneDNN are worth it.
    """

    SCHEMA: ClassVar[str] = "tfx_perf.trial_order/1"

    folder: str
    log_path: str
    key: dict[str, str]
    budget_seconds: float
    asked: float
    spent_seconds: float
    known: tuple[TrialRecord, ...]
    previous_plan: TrainingPlan | None
    onednn: Comparison | None
    may_ask_for_onednn: bool

    @property
    def progress_file(self) -> pathlib.Path:
        """A `TrialProgress`; it is there while trials run."""
        return pathlib.Path(self.folder, "progress.json")

    @property
    def choice_file(self) -> pathlib.Path:
        """The `PlanChoice`, once it stands; it is there while something is measured after it."""
        return pathlib.Path(self.folder, "choice.json")

    @property
    def limit_seconds(self) -> float:
        """How long trials may take before they count as hung."""
        return budget.limit_seconds(self.budget_seconds)


def is_worth_onednn(step_seconds: float, *, step_count: int, start_seconds: float) -> bool:
    """Returns whether trying oneDNN before anything else pays, if it gains what is usual.

    Args:
        step_seconds: of plain `fit`.
        step_count: of all planned runs.
        start_seconds: how long it took this process to come to the point where it can tell.
    """
    saving_seconds = step_count * OneDnn().hoped_saving_seconds(step_seconds)
    return saving_seconds > _STARTS * (_IMPORT_SECONDS + start_seconds)


def by_trials(
    call: FitCall,
    loop: Loop,
    *,
    order: TrialOrder,
    job: TrainingJob,
    others: Mapping[DtypePolicy, FitCall] = types.MappingProxyType({}),
    known: Sequence[TrialRecord] = (),
) -> PlanChoice | None:
    """Returns what the trials find; None if turns with oneDNN had better come before.

    Args:
        call: the user's `fit`.
        loop: the loop that the plan will be used with.
        order: of whoever looks after this process.
        job: the training.
        others: see `choosing.by_trials`.
        known: records of what need not be tried, beside those of the order.
    """
    is_put_off = False

    def is_worth_waiting_for(step_seconds: float) -> bool:
        nonlocal is_put_off
        is_put_off = (
            order.may_ask_for_onednn
            and is_worth_onednn(
                step_seconds,
                step_count=job.planned_runs * (loop.total_length or 0),
                start_seconds=time.time() - order.asked,
            )
            # Two processes, and this one ends.
            and memory.has_memory_for_as_much_again()
        )
        return is_put_off

    with (
        time_limit.ended_after(order.limit_seconds, log_path=order.log_path),
        console.all_into(order.log_path),
        _removed(order),
    ):
        choice = choosing.by_trials(
            call,
            loop,
            settings=settings_of(job, budget_seconds=order.budget_seconds),
            others=others,
            watch=lambda progress: progress.write(order.progress_file),
            known=(*order.known, *known),
            previous_plan=order.previous_plan,
            stop_when=is_worth_waiting_for,
        )
        if is_put_off:
            return None
        if order.onednn is not None:
            choice = order.onednn.held_against(choice)
        seconds = choice.trial_time_seconds + order.spent_seconds
        choice = choice.model_copy(
            update={
                "key": order.key,
                "trial_time_seconds": seconds,
            }
        )
        choice.write(order.choice_file)
    return choice


def settings_of(job: TrainingJob, *, budget_seconds: float) -> PerfConfig:
    """Returns a job's settings with a budget, and with the number of runs that are planned."""
    settings = job.settings
    training = settings.training.model_copy(update={"trial_budget_seconds": budget_seconds})
    schedule = ScheduleSettings(planned_runs=job.planned_runs)
    return settings.model_copy(update={"training": training, "schedule": schedule})


@contextlib.contextmanager
def _removed(order: TrialOrder) -> Iterator[None]:
    """Takes away what is told of the trials when they are over: what comes then is the training's.

    The first progress is told before anything runs, for what the data's first element takes.
    """
    TrialProgress(began=time.time(), running=(), finished=order.known).write(order.progress_file)
    try:
        yield
    finally:
        for file in (order.progress_file, order.choice_file):
            file.unlink(missing_ok=True)
