"""The child's side of a training: the user's code, with trials before its first step.

`train` runs it to the end, `try_plans` only up to its first `fit`. Tuning may crash or hang, so
they note their progress in the file that the `TrialOrder` names.
"""

import contextlib
import logging
import pathlib
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Literal

from tfx.dsl.io import fileio
from tfx.utils import json_utils

from tfx_perf import script
from tfx_perf.components import trainer_args, training_job
from tfx_perf.components.optimized_trainer.checkpoints import KeptModelRun
from tfx_perf.components.training_job import TrainingJob
from tfx_perf.components.types import Artifacts
from tfx_perf.config import PerfConfig, ScheduleSettings
from tfx_perf.core import console, errors, interception, records, time_limit
from tfx_perf.core.interception import FitCall
from tfx_perf.core.unmeasured import MissingMeasurement
from tfx_perf.tf_internals import autograph
from tfx_perf.training.keras_api import either_keras
from tfx_perf.training.loop.fit_loop import FitLoop
from tfx_perf.training.measuring import memory
from tfx_perf.training.record import TrainingRecord
from tfx_perf.training.recovery import generators
from tfx_perf.training.session import TrainingSession, built_under
from tfx_perf.training.speedups import precision
from tfx_perf.training.speedups.onednn import OneDnn
from tfx_perf.training.step import evaluation
from tfx_perf.training.tuning import choosing, cost_model, earlier
from tfx_perf.training.tuning.choice import PlanChoice, TrialProgress, plain
from tfx_perf.training.tuning.earlier import KnownPlan

# Processes that must start before oneDNN can train: two in turns (which share the cores), and the
# one that trains; and the seconds each takes to import, since none of them can be a fork.
_STARTS, _IMPORT_SECONDS = 3, 10.0

# Why another process is needed: libraries must be converted by AutoGraph, turns with oneDNN must
# come before the trials, or this process cannot run trials to find a plan.
Lack = Literal["conversion", "onednn", "trials apart"]


class TrainingResult(records.Record):
    """The record that a training process returns beside the model, or why there is none."""

    SCHEMA: ClassVar[str] = "tfx_perf.training_result/1"

    record: TrainingRecord | MissingMeasurement


class TrialOrder(records.Record):
    """The instructions for a process that runs the trials.

    The process writes its progress to a file in `folder`, which remains if the process ends.
    `asked` is when the first process for the trials was requested, in seconds since 1970, and
    `spent_seconds` is the time from then until this one was. If `may_ask_for_onednn`, the process
    chooses no plan when turns with oneDNN are worth their time.
    """

    SCHEMA: ClassVar[str] = "tfx_perf.trial_order/1"

    folder: str
    log_path: str = ""
    known: KnownPlan
    asked: float = 0.0
    spent_seconds: float = 0.0
    may_ask_for_onednn: bool
    are_open: bool = True  # whether trials may still be run

    @property
    def progress_file(self) -> pathlib.Path:
        """The file with a `TrialProgress`; it exists while trials run."""
        return pathlib.Path(self.folder, "progress.json")


def train(
    *,
    job: dict[str, Any],
    outputs: str,
    order: dict[str, Any],
    converts_libraries: bool,
    random_states: dict[str, Any],
) -> dict[str, Any] | Lack:
    """Trains in a child; returns the `TrainingResult`, or the lack that requires another process.

    The other process resumes from the checkpoints. A known choice names the `fit` it is for; for
    any other `fit`, and without a known choice, trials find a plan here, as `order` says.
    """
    generators.restore(random_states)
    training = TrainingJob.model_validate(job)
    trial_order = TrialOrder.model_validate(order)
    trials = _TrialsHere(trial_order, training)
    spared = contextlib.nullcontext() if converts_libraries else autograph.libraries_unconverted()
    try:
        with spared:
            known = trial_order.known.choice
            record = run(training, json_utils.loads(outputs), choice=known, choose=trials.choose)
    except autograph.NeedsConversionError:
        if converts_libraries:
            raise
        traceback.print_exc()
        return "conversion"
    except (Exception, interception.AbandonedError):
        if trials.lack is None:
            raise
    if trials.lack is not None:
        return trials.lack
    return TrainingResult(record=record).model_dump(mode="json")


def run(
    job: TrainingJob,
    outputs: Artifacts,
    *,
    choice: PlanChoice | None,
    choose: Callable[[FitCall, FitLoop], PlanChoice],
    worker_count: int = 1,
) -> TrainingRecord | MissingMeasurement:
    """Trains in this process; returns the measurements, or why there are none."""
    run_fn = trainer_args.load_run_fn(job.exec_properties)
    arguments = trainer_args.fn_args(
        job.input_dict, outputs, job.exec_properties, worker_count=worker_count
    )
    settings = job.settings
    if settings.training.seed is not None:
        either_keras.set_random_seed(settings.training.seed)
    model_run = KeptModelRun(arguments, checkpoint_folder=job.checkpoint_folder)
    session = TrainingSession(
        settings, choice=choice, choose=choose, on_fresh_start=model_run.discard_older_files
    )
    session.reserve()
    with (
        precision.policy(job.precision),
        built_under(settings.distribution) as outside,
        training_job.for_all_workers(settings.distribution) as checked,
        interception.intercepting_fit(outside(checked(session.fit))),
        evaluation.as_one_device(),
        script.inside(session),
    ):
        run_fn(model_run.begin())
    if not fileio.exists(arguments.serving_model_dir):
        raise RuntimeError(
            "Expected run_fn to save a model. Received: nothing in "
            f"serving_model_dir={arguments.serving_model_dir}."
        )
    model_run.publish()
    session.close()
    earlier.forget(job.checkpoint_folder)
    return session.record or MissingMeasurement(reason=session.gap)


@autograph.sparing_libraries
def try_plans(*, job: dict[str, Any], order: dict[str, Any]) -> dict[str, Any] | None:
    """Runs the user's code up to its first `fit` and makes trials there; runs in a child.

    Needed for data that call Python functions, which may yield their elements only once: trials in
    the training's own process would consume them. None if turns with oneDNN should come first.
    """
    began = time.time()
    logging.basicConfig()  # to the log that is published beside the figures
    asked, trial_order = TrainingJob.model_validate(job), TrialOrder.model_validate(order)

    def choose(call: FitCall) -> PlanChoice | None:
        setup_seconds = time.time() - began
        choice = _by_trials(call, FitLoop(call), order=trial_order, job=asked)
        return choice and choice.model_copy(
            update={
                "trial_import_seconds": began - trial_order.asked - trial_order.spent_seconds,
                "trial_setup_seconds": setup_seconds,
            }
        )

    try:
        choice = asked.run_to_fit(choose, folder=trial_order.folder)
    except errors.UserError as error:  # it did not call `fit`, so that there is nothing to plan
        choice = plain(str(error))
    return choice and choice.model_dump(mode="json")


def is_worth_onednn(step_seconds: float, *, step_count: int, start_seconds: float) -> bool:
    """Whether trying oneDNN first pays off over all planned runs' steps, with its usual gain."""
    saving_seconds = step_count * OneDnn().expected_saving_seconds(step_seconds)
    return saving_seconds > _STARTS * (_IMPORT_SECONDS + start_seconds)


def settings_of(job: TrainingJob) -> PerfConfig:
    """Returns a job's settings with the planned number of runs."""
    schedule = ScheduleSettings(expected_runs=job.expected_runs)
    return job.settings.model_copy(update={"schedule": schedule})


class _TrialsHere:
    """The trials in this process; `lack` is why they need another one, None if they do not."""

    def __init__(self, order: TrialOrder, job: TrainingJob) -> None:
        self._order, self._job = order, job
        self._may_lack = order.known.choice is None
        self.lack: Lack | None = None

    def choose(self, call: FitCall, loop: FitLoop) -> PlanChoice:
        """Returns the choice, or raises an `AbandonedError` if it needs another process.

        Only the first `fit` may: another process would repeat the training of earlier ones.
        """
        order = self._order
        if not order.are_open:
            return plain("trials have ended a process")
        may_lack, self._may_lack = self._may_lack, False
        if not may_lack:
            others = {"may_ask_for_onednn": False, "spent_seconds": 0.0}
            order = order.model_copy(update=others)
        settings = settings_of(self._job)
        with choosing.on_own_data(call, loop, settings=settings, known=order.known) as tried_call:
            if tried_call is None and not may_lack:
                return plain(choosing.NEEDS_OWN_PROCESS, is_settled=True)
            if tried_call is None:
                self.lack = "trials apart"
                raise interception.AbandonedError
            choice = _by_trials(tried_call, loop, order=order, job=self._job)
        if choice is None:
            self.lack = "onednn"
            raise interception.AbandonedError
        earlier.keep(self._job.checkpoint_folder, choice)
        return choice


def _by_trials(
    call: FitCall, loop: FitLoop, *, order: TrialOrder, job: TrainingJob
) -> PlanChoice | None:
    """Returns the choice of the trials; None if turns with oneDNN should come first."""
    is_put_off = False

    def is_worth_waiting_for(step_seconds: float) -> bool:
        nonlocal is_put_off
        is_put_off = (
            order.may_ask_for_onednn
            and is_worth_onednn(
                step_seconds,
                step_count=job.expected_runs * loop.likely_total_length,
                start_seconds=time.time() - order.asked,
            )
            # The turns run two processes, but this one ends first.
            and memory.has_memory_for_as_much_again()
        )
        return is_put_off

    known, settings = order.known, settings_of(job)
    with (
        time_limit.ended_after(
            cost_model.limit_seconds(settings.training.tuning_seconds), log_path=order.log_path
        ),
        console.output_to_file(order.log_path),
        _progress_in(order.progress_file, known=known) as watch,
    ):
        choice = choosing.by_trials(
            call, loop, settings=settings, watch=watch, known=known, stop_when=is_worth_waiting_for
        )
    if is_put_off:
        return None
    choice = known.add_to(choice)
    seconds = choice.trial_time_seconds + order.spent_seconds
    return choice.model_copy(update={"trial_time_seconds": seconds})


@contextlib.contextmanager
def _progress_in(
    file: pathlib.Path, *, known: KnownPlan
) -> Iterator[Callable[[TrialProgress], None]]:
    """Yields a function that writes the progress to a file, which is removed after the trials."""
    TrialProgress(began=time.time(), running=(), finished=known.trials).write(file)
    try:
        yield lambda progress: progress.write(file)
    finally:
        file.unlink(missing_ok=True)
