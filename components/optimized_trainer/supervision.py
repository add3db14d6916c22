"""The parent's side of a training: one process for it, and another if that is lost in its trials.

The trials run where the training does, before its first step: the user's code runs once, and the
traces made for the plan are there. A plan that crashes the process is marked as failed, and another
process goes on with the others; plans that no such process can try run apart.
"""

import logging
import pathlib
import tempfile
import time
from collections.abc import Callable, Mapping
from typing import Any

from tfx.types import artifact
from tfx.utils import json_utils

from tfx_perf import isolate
from tfx_perf.components.optimized_trainer import child, comparisons
from tfx_perf.components.optimized_trainer.child import TrainingResult, TrialOrder
from tfx_perf.components.optimized_trainer.plans import KnownPlan
from tfx_perf.components.training_job import TrainingJob
from tfx_perf.core import console, errors
from tfx_perf.core.unmeasured import Unmeasured
from tfx_perf.training.optimizations.plan import PLAIN_FIT
from tfx_perf.training.record import TrainingRecord
from tfx_perf.training.recovery import generators
from tfx_perf.training.trials import kept_choice, worth
from tfx_perf.training.trials.choice import PlanChoice, TrialProgress, failed, lost

# A crash costs the plan that crashed; XLA has two to crash with.
_LOG_FILES = "trials.log", "trials-2.log", "trials-3.log"
# For imports and the user's code up to `fit`, in a process apart; the trials in it end themselves.
_START_SECONDS = 300

_LOGGER = logging.getLogger(__name__)


def train(
    job: TrainingJob,
    outputs: dict[str, list[artifact.Artifact]],
    *,
    known: KnownPlan,
    log_folder: pathlib.Path,
) -> TrainingRecord | Unmeasured:
    """Trains in a process of its own; returns the measurements, or why there are none.

    There the training has the memory to itself and the environment that its plan needs. The child
    stands for this process: it writes to the same terminal, and SIGTERM and Ctrl-C reach it.
    """
    converts_libraries = False
    choice = known.choice
    with tempfile.TemporaryDirectory(prefix="optimized-trainer-") as folder:
        trials = _SupervisedTrials(job, known, folder=folder, log_folder=log_folder)
        while True:
            if choice is not None:
                kept_choice.keep(job.checkpoint_folder, choice)
            order = trials.order() if trials.are_open else None
            plan = trials.plan if choice is None else choice.plan
            try:
                answer = _in_child(
                    child.train,
                    {
                        "job": trials.job.with_plan(plan).model_dump(mode="json"),
                        "outputs": json_utils.dumps(outputs),
                        "choice": choice and choice.model_dump(mode="json"),
                        "order": order and order.model_dump(mode="json"),
                        "converts_libraries": converts_libraries,
                        "random_states": generators.states(),
                    },
                    environment=plan.environment,
                )
            except errors.ChildError as error:
                if not trials.are_running:
                    raise errors.TrainingError(f"The training {error.cause}.") from error
                found = trials.after_loss(error)
                choice = choice or found
                continue
            if not isinstance(answer, str):
                return TrainingResult.model_validate(answer).record
            if answer == "conversion":
                _LOGGER.warning("Training again, or on, with all libraries converted by AutoGraph.")
                converts_libraries = True
            elif answer == "onednn":
                trials.try_onednn()
            else:
                choice = trials.choose_apart()


class _SupervisedTrials:
    """The trials of all processes; `are_open` says whether another process may make some."""

    def __init__(
        self, job: TrainingJob, known: KnownPlan, *, folder: str, log_folder: pathlib.Path
    ) -> None:
        self.job, self._log_folder = job, log_folder
        self._order = TrialOrder(
            folder=folder,
            key=known.key,
            previous_plan=known.previous_plan,
            comparisons=() if known.comparison is None else (known.comparison,),
            may_ask_for_onednn=comparisons.may_try_onednn(job),
        )
        self._attempt = 0
        self.are_open = True
        self.plan = PLAIN_FIT

    @property
    def are_running(self) -> bool:
        """Whether a process was lost while it made trials, not before or after."""
        return self._order.progress_file.exists()

    def order(self) -> TrialOrder:
        now = time.time()
        asked = self._order.asked or now
        self._log_folder.mkdir(parents=True, exist_ok=True)
        log_path = str(self._log_folder / _LOG_FILES[self._attempt])
        self._note(asked=asked, spent_seconds=now - asked, log_path=log_path)
        return self._order

    def try_onednn(self) -> None:
        found = comparisons.with_onednn(self.job, log_folder=self._log_folder)
        self.job, self.plan = self.job.after_trials(found.seconds), found.plan
        self._note(comparisons=(found, *self._order.comparisons), may_ask_for_onednn=False)

    def _note(self, **fields: Any) -> None:
        self._order = self._order.model_copy(update=fields)

    def after_loss(self, error: errors.ChildError) -> PlanChoice | None:
        """Returns the choice after the loss of a process; None if other trials are worth it."""
        order = self._order
        _LOGGER.warning(
            "The trials were cut off: %s. Another process trains, or goes on from the last "
            "checkpoint. Log: %s",
            error.cause,
            order.log_path,
        )
        progress = TrialProgress.read(order.progress_file)
        order.progress_file.unlink()
        is_told = isinstance(error, errors.TerminatedError)  # which is no plan's fault
        running = () if is_told else progress.running
        culprits = [
            lost(plan, f"its process {error.cause}") for plan in running if not plan.is_plain_fit
        ]
        self._note(known=(*progress.finished, *culprits))
        self._attempt += 1
        spent_seconds = time.time() - progress.began
        has_budget = spent_seconds < self.job.settings.training.trial_budget_seconds
        if (is_told or culprits) and has_budget and self._attempt < len(_LOG_FILES):
            self.job = self.job.after_trials(spent_seconds)
            return None
        return self._without(error)

    def choose_apart(self) -> PlanChoice:
        """Returns what trials in separate processes choose; plain `fit` if none can be made."""
        began = time.time()
        while True:
            console.set_status("running the training code up to its fit, for the trials")
            order = self.order()
            budget_seconds = self.job.settings.training.trial_budget_seconds
            try:
                found = _in_child(
                    child.try_plans,
                    {
                        "job": self.job.with_plan(self.plan).model_dump(mode="json"),
                        "order": order.model_dump(mode="json"),
                    },
                    environment=self.plan.environment,
                    timeout_seconds=_START_SECONDS + worth.limit_seconds(budget_seconds),
                    log_path=order.log_path,
                )
                if found is None:
                    self.try_onednn()
                    continue
                choice: PlanChoice | None = PlanChoice.model_validate(found)
            except errors.ChildError as error:
                choice = self.after_loss(error) if self.are_running else self._without(error)
            if choice is not None:
                seconds = time.time() - began + self._compared_seconds
                update = {"key": order.key, "trial_time_seconds": seconds}
                return choice.model_copy(update=update)

    def _without(self, error: errors.ChildError) -> PlanChoice:
        self.are_open, order = False, self._order
        compared = (trial for each in order.comparisons for trial in each.tried)
        seconds = time.time() - (order.asked or time.time()) + self._compared_seconds
        return failed(f"their process {error.cause}").model_copy(
            update={
                "key": order.key,
                "trials": (*order.known, *compared),
                "trial_time_seconds": seconds,
            }
        )

    @property
    def _compared_seconds(self) -> float:
        """Wall time of comparisons that ended before the trials began."""
        return sum(each.wall_seconds for each in self._order.comparisons)


def _in_child(
    function: Callable[..., Any],
    arguments: Mapping[str, Any],
    *,
    environment: Mapping[str, str],
    timeout_seconds: float | None = None,
    log_path: str | None = None,
) -> Any:
    return isolate.run(
        f"{child.__name__}:{function.__name__}",
        arguments,
        timeout_seconds=timeout_seconds,
        log_path=log_path,
        environment=environment,
        # The server has imported TensorFlow without the plan's variables.
        is_forked=not environment,
    )
