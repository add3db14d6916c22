"""The child's side of OptimizedTrainer: the user's code up to its `fit`, and the trials there."""

import faulthandler
import functools
import logging
import pathlib
import signal
import time
from typing import Any

from tfx.utils import json_utils

from tfx_perf import config, errors, interception, records
from tfx_perf.components import trainer_args
from tfx_perf.training import precision
from tfx_perf.training.lines import keras_line
from tfx_perf.training.loop import Loop
from tfx_perf.training.plan import TrainingPlan
from tfx_perf.training.trials import choice, choosing, doubling
from tfx_perf.training.trials.equivalence import in_one_line
from tfx_perf.training.trials.trial_record import TrialRecord

CHOICE_FILE, PROGRESS_FILE = "choice.json", "progress.json"

# Trials are ended after so many budgets and seconds. They keep to the budget but for the call
# that they are in, which may compile, or hang.
_LIMIT_BUDGETS, _LIMIT_SECONDS = 2, 30


def limit_seconds(budget_seconds: float) -> float:
    """Returns how long trials may take before they count as hung."""
    return _LIMIT_BUDGETS * budget_seconds + _LIMIT_SECONDS


def choose_plan(
    *,
    inputs: str,
    exec_properties: dict[str, Any],
    folder: str,
    known: list[dict[str, Any]],
    budget_seconds: float,
    started: float,
) -> None:
    """Writes the choice for the first `fit` of the user's code, and how far it has come.

    Args:
        inputs: OptimizedTrainer's input artifacts, by `tfx.utils.json_utils`.
        exec_properties: see `executor.Executor.Do`.
        folder: where `choice.json`, `progress.json` and whatever the user's code writes go.
        known: the `TrialRecord`s of an attempt that was cut off; they stand.
        budget_seconds: of the trials; what is left of the settings'.
        started: when the parent asked for this process, in seconds since 1970.

    Raises:
        UserError: the module, the splits or the examples are not there.
    """
    began = time.time()
    logging.basicConfig()  # to the log that is published beside the figures
    settings = config.PerfConfig.from_json(exec_properties["config"])
    training = settings.training.model_copy(update={"trial_budget_seconds": budget_seconds})
    settings = settings.model_copy(update={"training": training})
    artifacts = json_utils.loads(inputs)
    run_fn = trainer_args.load_run_fn(exec_properties)
    found_before = [TrialRecord.model_validate(outcome) for outcome in known]

    def run(name: str) -> None:
        outputs = trainer_args.outputs_in(str(pathlib.Path(folder, name)))
        arguments = trainer_args.fn_args(artifacts, outputs, exec_properties)
        if training.seed is not None:
            keras_line.set_random_seed(training.seed)
        run_fn(arguments)

    others = {}
    for name in precision.candidates() if training.precision == "auto" else ():
        # One after the other and before the user's own: their scopes must not be within it.
        try:
            with precision.policy(name):
                others[name] = interception.capture_fit(functools.partial(run, name))
        except Exception as error:  # the code may not be made for it
            plan = TrainingPlan(steps_per_call=1, precision=name)
            reason = in_one_line(error)
            found_before.append(TrialRecord(plan=plan, status="failed", reason=reason))

    def choose(call: interception.FitCall) -> choice.PlanChoice:
        setup_seconds = time.time() - began
        _end_after(limit_seconds(budget_seconds))
        found = choosing.by_trials(
            call,
            Loop(call),
            settings=settings,
            others=others,
            watch=lambda progress: _replace(pathlib.Path(folder, PROGRESS_FILE), progress),
            known=found_before,
        )
        found = found.model_copy(
            update={
                "trial_import_seconds": began - started,
                "trial_setup_seconds": setup_seconds,
            }
        )
        # It stands, even if what comes now takes more memory than there is.
        _replace(pathlib.Path(folder, CHOICE_FILE), found)
        ratio = doubling.double_batch_time_ratio(call, found)
        return found.model_copy(update={"double_batch_time_ratio": ratio})

    try:
        with precision.policy(precision.fixed(training.precision)):
            found = interception.capture_fit(functools.partial(run, "own"), choose)
    except errors.UserError as error:  # it did not call `fit`, so that there is nothing to plan
        found = choice.plain(str(error))
    _replace(pathlib.Path(folder, CHOICE_FILE), found)


def _replace(path: pathlib.Path, record: records.Record) -> None:
    """Writes the file so that it is whole, even if the process is killed while it writes."""
    draft = path.with_suffix(".draft")
    record.write(draft)
    draft.replace(path)


def _end_after(seconds: float) -> None:
    """Ends this process after some time, wherever it is, with its stacks in the log."""
    faulthandler.dump_traceback_later(seconds)
    # With the default action the kernel ends the process; no Python code is needed for it.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, seconds + 1.0)
