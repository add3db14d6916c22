"""The parent's side of a training: one process for it, and another if it is lost in its trials.

The trials run in the training's process, before its first step: the user's code runs only once, and
the plan's traces are reused. A plan that crashes the process is marked as failed, and another
process continues with the others. Trials that cannot run there get a separate process.
"""

import logging
import pathlib
import tempfile
import time
from collections.abc import Callable, Mapping
from typing import Any

from tfx.utils import json_utils

from tfx_perf import isolate
from tfx_perf.components.optimized_trainer import child, comparisons
from tfx_perf.components.optimized_trainer.child import TrainingResult, TrialOrder
from tfx_perf.components.training_job import TrainingJob
from tfx_perf.components.types import Artifacts
from tfx_perf.core import console, errors
from tfx_perf.core.unmeasured import MissingMeasurement
from tfx_perf.training.record import TrainingRecord
from tfx_perf.training.recovery import generators
from tfx_perf.training.speedups.plan import PLAIN_FIT
from tfx_perf.training.tuning import cost_model, earlier
from tfx_perf.training.tuning.choice import PlanChoice, TrialProgress, failed, lost
from tfx_perf.training.tuning.earlier import KnownPlan

# One per attempt: a crash rules out only the plan that crashed, and XLA has two that may.
_LOG_FILES = "trials.log", "trials-2.log", "trials-3.log"
# For imports and the user's code up to `fit` in a separate process; its trials limit themselves.
_START_SECONDS = 300

_LOGGER = logging.getLogger(__name__)


def train(
    job: TrainingJob, outputs: Artifacts, *, known: KnownPlan, log_folder: pathlib.Path
) -> TrainingRecord | MissingMeasurement:
    """Trains in a separate process; returns the measurements, or why there are none.

    There the training has the memory to itself and the environment that its plan needs. The child
    acts for this process: it writes to the same terminal, and SIGTERM and Ctrl-C reach it.
    """
    converts_libraries = False
    with tempfile.TemporaryDirectory(prefix="optimized-trainer-") as folder:
        trials = _SupervisedTrials(job, known, folder=folder, log_folder=log_folder)
        while True:
            order = trials.begin()
            choice = order.known.choice
            if choice is not None:
                earlier.keep(job.checkpoint_folder, choice)
            plan = trials.plan if choice is None else choice.plan
            try:
                answer = _in_child(
                    child.train,
                    {
                        "job": trials.job.with_plan(plan).model_dump(mode="json"),
                        "outputs": json_utils.dumps(outputs),
                        "order": order.model_dump(mode="json"),
                        "converts_libraries": converts_libraries,
                        "random_states": generators.states(),
                    },
                    environment=plan.environment,
                )
            except errors.ChildError as error:
                if not trials.are_running:
                    raise errors.TrainingError(f"The training {error.cause}.") from error
                trials.after_loss(error)
                continue
            if not isinstance(answer, str):
                return TrainingResult.model_validate(answer).record
            if answer == "conversion":
                _LOGGER.warning("AutoGraph is required: restarting with full conversion.")
                converts_libraries = True
            elif answer == "onednn":
                trials.try_onednn()
            else:
                trials.choose_apart()


class _SupervisedTrials:
    """The trials of all processes; the order holds what is known so far."""

    def __init__(
        self, job: TrainingJob, known: KnownPlan, *, folder: str, log_folder: pathlib.Path
    ) -> None:
        self.job, self._log_folder = job, log_folder
        self._order = TrialOrder(
            folder=folder, known=known, may_ask_for_onednn=comparisons.may_try_onednn(job)
        )
        self._attempt = 0
        self.plan = PLAIN_FIT

    @property
    def are_running(self) -> bool:
        """Whether a process was lost while it made trials, not before or after."""
        return self._order.progress_file.exists()

    def begin(self) -> TrialOrder:
        """Returns the order for a process that starts now."""
        now = time.time()
        asked = self._order.asked or now
        self._log_folder.mkdir(parents=True, exist_ok=True)
        log_path = str(self._log_folder / _LOG_FILES[self._attempt])
        self._note(asked=asked, spent_seconds=now - asked, log_path=log_path)
        return self._order

    def try_onednn(self) -> None:
        compared = comparisons.with_onednn(self.job, log_folder=self._log_folder)
        self.job, self.plan = self.job.after_trials(compared.seconds), compared.plan
        self._note(known=self._order.known.within(compared), may_ask_for_onednn=False)

    def _note(self, **fields: Any) -> None:
        self._order = self._order.model_copy(update=fields)

    def after_loss(self, error: errors.ChildError) -> None:
        """Notes the results of a process lost in its trials; gives up if it was the last one."""
        order = self._order
        _LOGGER.warning(
            "The trials were cut off: %s. Another process trains, or resumes from the last "
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
        update = {"trials": (*progress.finished, *culprits)}
        self._note(known=order.known.model_copy(update=update))
        spent_seconds = time.time() - progress.began
        has_budget = spent_seconds < self.job.settings.training.tuning_seconds
        if (is_told or culprits) and has_budget and self._attempt + 1 < len(_LOG_FILES):
            self._attempt += 1
            self.job = self.job.after_trials(spent_seconds)
        else:
            self._give_up(error)

    def choose_apart(self) -> None:
        """Lets separate processes choose a plan; Keras' `fit` if they cannot run trials."""
        began = time.time()
        while self._order.known.choice is None:
            console.set_status("building the model, for tuning")
            order = self.begin()
            try:
                chosen = _in_child(
                    child.try_plans,
                    {
                        "job": self.job.with_plan(self.plan).model_dump(mode="json"),
                        "order": order.model_dump(mode="json"),
                    },
                    environment=self.plan.environment,
                    timeout_seconds=(
                        _START_SECONDS
                        + cost_model.limit_seconds(self.job.settings.training.tuning_seconds)
                    ),
                    log_path=order.log_path,
                )
                if chosen is None:
                    self.try_onednn()
                else:
                    self._choose(PlanChoice.model_validate(chosen))
            except errors.ChildError as error:
                if self.are_running:
                    self.after_loss(error)
                else:
                    self._give_up(error)
        seconds, known = time.time() - began + self._compared_seconds, self._order.known
        update = {"key": known.key, "trial_time_seconds": seconds}
        choice = known.choice and known.choice.model_copy(update=update)
        self._note(known=known.model_copy(update={"choice": choice}))

    def _choose(self, choice: PlanChoice) -> None:
        known = self._order.known
        if known.choice is None:  # otherwise the choice is for another `fit`
            self._note(known=known.model_copy(update={"choice": choice}))

    def _give_up(self, error: errors.ChildError) -> None:
        known = self._order.known
        compared = (trial for each in known.comparisons for trial in each.tried)
        seconds = time.time() - (self._order.asked or time.time()) + self._compared_seconds
        choice = failed(f"their process {error.cause}").model_copy(
            update={
                "key": known.key,
                "trials": (*known.trials, *compared),
                "trial_time_seconds": seconds,
            }
        )
        self._note(are_open=False)
        self._choose(choice)

    @property
    def _compared_seconds(self) -> float:
        """Wall time of comparisons that ended before the trials began."""
        return sum(each.wall_seconds for each in self._order.known.comparisons)


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
