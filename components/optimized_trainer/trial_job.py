"""The child's side of OptimizedTrainer: the user's code up to its `fit`, and the trials there."""

import faulthandler
import functools
import logging
import pathlib
import signal
import tempfile
import time
from typing import Any

from tfx_perf import errors, interception
from tfx_perf.components.training_job import trainer_args
from tfx_perf.components.training_job.job import TrainingJob
from tfx_perf.settings.schedule import ScheduleSettings
from tfx_perf.tf_internals import autograph
from tfx_perf.training import precision
from tfx_perf.training.keras_api import either_keras
from tfx_perf.training.loop import Loop
from tfx_perf.training.measuring import meters
from tfx_perf.training.optimizations.onednn import OneDnn
from tfx_perf.training.optimizations.precision import DtypePolicy
from tfx_perf.training.plan import TrainingPlan
from tfx_perf.training.trials import choosing, doubling
from tfx_perf.training.trials.choice import PlanChoice, TrialRecord, plain

CHOICE_FILE, PROGRESS_FILE = "choice.json", "progress.json"

# Trials are ended after so many budgets and seconds. They keep to the budget but for the call
# that they are in, which may compile, or hang.
_LIMIT_BUDGETS, _LIMIT_SECONDS = 2, 30
# The processes that must start to have oneDNN: two in turns (which share the cores), that of the
# trials once more, and the one that trains. None of them can be a fork, which has its imports.
_STARTS, _IMPORT_SECONDS = 4, 10.0


def limit_seconds(budget_seconds: float) -> float:
    """Returns how long trials may take before they count as hung."""
    return _LIMIT_BUDGETS * budget_seconds + _LIMIT_SECONDS


def is_worth_onednn(step_seconds: float, *, step_count: int, start_seconds: float) -> bool:
    """Returns whether trying oneDNN before anything else pays, if it gains what is usual.

    Args:
        step_seconds: of plain `fit`.
        step_count: of all planned runs.
        start_seconds: how long it took this process to come to the point where it can tell.
    """
    saving_seconds = step_count * OneDnn().hoped_saving_seconds(step_seconds)
    return saving_seconds > _STARTS * (_IMPORT_SECONDS + start_seconds)


@autograph.sparing_libraries
def write_choice(
    *,
    job: dict[str, Any],
    folder: str,
    known: list[dict[str, Any]],
    budget_seconds: float,
    started: float,
    may_put_off: bool,
) -> bool:
    """Writes the choice for the first `fit` of the user's code, and how far it has come.

    Args:
        job: the `TrainingJob`.
        folder: where `choice.json`, `progress.json` and whatever the user's code writes go.
        known: the `TrialRecord`s of an attempt that was cut off; they stand.
        budget_seconds: of the trials; what is left of the settings'.
        started: when the parent asked for this process, in seconds since 1970.
        may_put_off: whether to choose nothing if oneDNN is worth it (see `is_worth_onednn`) and
            there is memory for two trainings.

    Returns:
        Whether it was put off.

    Raises:
        UserError: the module, the splits or the examples are not there.
    """
    began = time.time()
    logging.basicConfig()  # to the log that is published beside the figures
    asked = TrainingJob.model_validate(job)
    settings, properties = asked.settings, asked.exec_properties
    training = settings.training.model_copy(update={"trial_budget_seconds": budget_seconds})
    schedule = ScheduleSettings(planned_runs=asked.planned_runs)
    settings = settings.model_copy(update={"training": training, "schedule": schedule})
    artifacts = asked.input_dict
    run_fn = trainer_args.load_run_fn(properties)
    found_before = [TrialRecord.model_validate(trial) for trial in known]

    def run(name: str) -> None:
        outputs = trainer_args.outputs_in(tempfile.mkdtemp(prefix=f"{name}-", dir=folder))
        arguments = trainer_args.fn_args(artifacts, outputs, properties)
        if training.seed is not None:
            either_keras.set_random_seed(training.seed)
        run_fn(arguments)

    others: dict[DtypePolicy, interception.FitCall] = {}
    for name in precision.candidates() if training.precision == "auto" else ():
        # One after the other and before the user's own: their scopes must not be within it.
        try:
            with precision.policy(name):
                others[name] = interception.capture_fit(functools.partial(run, name))
        except Exception as error:  # the code may not be made for it
            plan = TrainingPlan(steps_per_call=1, precision=name)
            reason = errors.in_one_line(error)
            found_before.append(TrialRecord(plan=plan, status="failed", reason=reason))

    def choose(call: interception.FitCall) -> PlanChoice | None:
        setup_seconds = time.time() - began
        _end_after(limit_seconds(budget_seconds))
        loop = Loop(call)
        is_put_off = False

        def stop_when(step_seconds: float) -> bool:
            nonlocal is_put_off
            is_put_off = (
                may_put_off
                and is_worth_onednn(
                    step_seconds,
                    step_count=asked.planned_runs * (loop.total_length or 0),
                    start_seconds=time.time() - started,
                )
                # Two processes, and this one ends.
                and meters.has_memory_for_as_much_again()
            )
            return is_put_off

        choice = choosing.by_trials(
            call,
            loop,
            settings=settings,
            others=others,
            watch=lambda progress: progress.replace(pathlib.Path(folder, PROGRESS_FILE)),
            known=found_before,
            stop_when=stop_when,
        )
        if is_put_off:
            return None
        choice = choice.model_copy(
            update={
                "trial_import_seconds": began - started,
                "trial_setup_seconds": setup_seconds,
            }
        )
        # It stands, even if what comes now takes more memory than there is.
        choice.replace(pathlib.Path(folder, CHOICE_FILE))
        ratio = doubling.double_batch_time_ratio(call, choice)
        return choice.model_copy(update={"double_batch_time_ratio": ratio})

    try:
        with precision.policy(asked.precision):
            choice = interception.capture_fit(functools.partial(run, "own"), choose)
    except errors.UserError as error:  # it did not call `fit`, so that there is nothing to plan
        choice = plain(str(error))
    if choice is None:
        return True
    choice.replace(pathlib.Path(folder, CHOICE_FILE))
    return False


def _end_after(seconds: float) -> None:
    """Ends this process after some time, wherever it is, with its stacks in the log."""
    faulthandler.dump_traceback_later(seconds)
    # With the default action the kernel ends the process; no Python code is needed for it.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, seconds + 1.0)
