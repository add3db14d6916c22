"""The parent's side of the trials: started in a child, and again if that crashes."""

import logging
import pathlib
import tempfile
import time
import types
from collections.abc import Mapping

from tfx_perf import activity, errors
from tfx_perf.components.optimized_trainer import trial_job
from tfx_perf.components.processes import child
from tfx_perf.components.training_job.job import TrainingJob
from tfx_perf.training.trials.choice import PlanChoice, TrialProgress, TrialRecord, failed

_TARGET = f"{trial_job.__name__}:{trial_job.write_choice.__name__}"
# A crash costs the plan that crashed; XLA has two to crash with.
_LOG_FILES = "trials.log", "trials-2.log", "trials-3.log"
# For imports and the user's code up to `fit`; the trials in it end themselves.
_START_SECONDS = 300

_LOGGER = logging.getLogger(__name__)


def choose_plan_in_child(
    job: TrainingJob,
    *,
    budget_seconds: float,
    log_folder: pathlib.Path,
    environment: Mapping[str, str] = types.MappingProxyType({}),
    may_put_off: bool = False,
) -> PlanChoice | None:
    """Returns what the trials find; plain `fit`, with the cause, if they cannot be made.

    A plan that crashes its process is marked as failed, and the others are tried again.

    Args:
        job: the training.
        budget_seconds: of the trials.
        log_folder: where the child's output goes; made if it is not there.
        environment: variables that the trials need and this process has not.
        may_put_off: whether to try nothing, and return None, if the training is so long that
            something is worth trying before.

    Raises:
        UserError: the module, the splits or the examples are not there.
    """
    began = time.perf_counter()
    activity.say("running the training code up to its fit, for the trials")
    log_folder.mkdir(parents=True, exist_ok=True)
    known: tuple[TrialRecord, ...] = ()
    for log_name in _LOG_FILES:
        with tempfile.TemporaryDirectory(prefix="optimized-trainer-") as folder:
            try:
                is_put_off = child.run_in_child(
                    _TARGET,
                    {
                        "job": job.model_dump(mode="json"),
                        "folder": folder,
                        "known": [trial.model_dump(mode="json") for trial in known],
                        "budget_seconds": budget_seconds,
                        "started": time.time(),
                        "may_put_off": may_put_off,
                    },
                    timeout_seconds=_START_SECONDS + trial_job.limit_seconds(budget_seconds),
                    log_path=log_folder / log_name,
                    environment=environment,
                    # The server has imported TensorFlow without them.
                    from_server=not environment,
                )
                if is_put_off:
                    return None
                choice = _read_choice(folder)
                break
            except errors.ChildError as error:
                if pathlib.Path(folder, trial_job.CHOICE_FILE).exists():
                    choice = _read_choice(folder)  # the trials were over
                    break
                _LOGGER.warning("The trials were cut off. %s", error)
                cause = error.cause
            culprits, progress = _crashed(pathlib.Path(folder, trial_job.PROGRESS_FILE), cause)
        known = (*(progress.finished if progress else known), *culprits)
        choice = failed(f"their process {cause}").model_copy(update={"trials": known})
        budget_seconds -= time.time() - progress.began if progress else 0.0
        if not culprits or budget_seconds <= 0:
            break
    return choice.model_copy(update={"trial_time_seconds": time.perf_counter() - began})


def _read_choice(folder: str) -> PlanChoice:
    return PlanChoice.read(pathlib.Path(folder, trial_job.CHOICE_FILE))


def _crashed(path: pathlib.Path, cause: str) -> tuple[list[TrialRecord], TrialProgress | None]:
    """Returns the records of the plans that were running, and how far the trials had come."""
    if not path.exists():
        return [], None
    progress = TrialProgress.read(path)
    return [
        TrialRecord(
            plan=plan,
            status="failed",
            reason=f"its process {cause}",
            compiled_shapes=() if plan.uses_xla else None,
        )
        for plan in progress.running
        if not plan.is_plain_fit
    ], progress
