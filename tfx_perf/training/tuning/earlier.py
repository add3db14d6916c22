"""Plan choices from before a training begins: its own earlier ones, and those of other runs."""

import contextlib
import dataclasses
import logging
import pathlib
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import ClassVar, TypeVar

from tfx_perf.core import cache_key, errors, records
from tfx_perf.training.speedups.onednn import OneDnn
from tfx_perf.training.speedups.plan import TrainingPlan
from tfx_perf.training.speedups.precision import Precision
from tfx_perf.training.tuning.choice import PlanChoice, StrategyChoice, TrialRecord
from tfx_perf.training.tuning.processes import Comparison

_FILES = {PlanChoice: "choice.json", StrategyChoice: "strategy.json", Comparison: "precision.json"}
FILE_NAMES = tuple(_FILES.values())

_LOGGER = logging.getLogger(__name__)

_Choice = TypeVar("_Choice", PlanChoice, StrategyChoice, Comparison)
Runs = Iterable[tuple[str, PlanChoice]]
"""Places and records of runs, the newest first."""


class KnownPlan(records.Record):
    """The input of trials, including those in processes that start later.

    With an empty `key` there are no trials; with a `choice` none are needed. Each of the
    `comparisons` that chose the process of the trials ran within the next one.
    """

    SCHEMA: ClassVar[str] = "tfx_perf.known_plan/1"

    key: dict[str, str] = {}
    choice: PlanChoice | None = None
    previous_plan: TrainingPlan | None = None  # of the last run, whose key may differ
    comparisons: tuple[Comparison, ...] = ()
    trials: tuple[TrialRecord, ...] = ()  # of processes that were lost

    def within(self, comparison: Comparison) -> "KnownPlan":
        """Returns the input for trials in a process of the kind that a comparison chose."""
        return self.model_copy(update={"comparisons": (comparison, *self.comparisons)})

    def add_to(self, choice: PlanChoice) -> PlanChoice:
        """Returns the choice of trials with the key and the results of the comparisons added."""
        for comparison in self.comparisons:
            choice = comparison.add_to(choice)
        return choice.model_copy(update={"key": self.key})


@dataclasses.dataclass(frozen=True)
class Earlier:
    """Earlier choices for a training; only those with its key count.

    An interrupted training has kept its choices in `folder`, beside its checkpoints; None if it
    keeps none. `runs` returns the earlier runs, whose records are read only when it is called.
    """

    key: Mapping[str, str]
    folder: str | None
    runs: Callable[[], Runs] = tuple

    def plan(self, *, expected_runs: int) -> PlanChoice | None:
        """Returns the kept plan, or that of the newest run if it is final; None if there is none.

        Logs which plans are used again, and why others are not.
        """
        interrupted = self._kept(PlanChoice)
        if interrupted is not None:
            _LOGGER.info("The plan of an interrupted training is used again: %s.", interrupted.plan)
            return interrupted.model_copy(update={"trial_time_seconds": 0.0})
        for place, newest in self.runs() if self.key else ():
            changes = cache_key.differences(newest.key, self.key)
            if changes:
                described = cache_key.describe(changes)
                _LOGGER.info("The plan in %s is not used again: %s.", place, described)
                continue
            choice = newest.for_another_run(place, expected_runs=expected_runs)
            # If it is not used, older runs with this key cannot help: it would have used theirs.
            is_used = "used again" if choice else "not used again: trials may find a better"
            _LOGGER.info("The plan in %s is %s.", place, is_used)
            return choice
        return None

    @property
    def previous_plan(self) -> TrainingPlan | None:
        """The last run's plan, which is always worth trying; None for Keras' `fit`.

        Process-wide speedups are left out: the code that starts the trials' processes adds them.
        """
        last = next((run.plan for _, run in self.runs()), None)
        if last is None or last.is_plain_fit:
            return None
        return last.only(lambda each: each.name not in (OneDnn.name, Precision.name))

    @property
    def strategy(self) -> StrategyChoice | None:
        """The kept strategy, or the newest measured one, regardless of the plan."""
        interrupted = self._kept(StrategyChoice)
        strategies = (run.strategy for _, run in self.runs())
        measured = (each for each in strategies if each is not None and each.speedup is not None)
        same = (each for each in measured if self.key and each.key == self.key)
        return interrupted or next(same, None)

    def comparison(self, plans: Collection[TrainingPlan]) -> Comparison | None:
        """Returns the kept comparison, or one that records the plans' failures in the last run.

        The code would fail again. None if there is neither, or if a plan may be worth another try.
        """
        interrupted = self._kept(Comparison)
        if interrupted is not None:
            return interrupted.for_another_run()
        last = next((run for _, run in self.runs() if run.key == self.key), None)
        lost = tuple(
            trial
            for trial in (() if last is None else last.trials)
            if trial.plan in plans and trial.status == "failed" and not trial.may_pass
        )
        if len(lost) < len(plans):
            return None
        return Comparison(without=None, tried=lost, seconds=0.0, key=dict(self.key))

    def _kept(self, kind: type[_Choice]) -> _Choice | None:
        if self.folder is None:
            return None
        try:
            choice = kind.read(pathlib.Path(self.folder, _FILES[kind]))
        except errors.UserError:  # there is none, or one of another version
            return None
        return choice if choice.key == self.key else None


def keep(folder: str | None, choice: PlanChoice | StrategyChoice | Comparison) -> None:
    """Keeps a choice with its key, if there is a folder that the training finds again."""
    if folder is None:
        return
    try:
        pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
        choice.write(pathlib.Path(folder, _FILES[type(choice)]))
    except OSError as error:  # costs new trials, not the training
        _LOGGER.warning("Could not save the tuning result to %s: %s", folder, error)


def forget(folder: str | None) -> None:
    """Removes the choices, once the model trained with them is safe."""
    if folder is not None:
        with contextlib.suppress(OSError):
            for name in FILE_NAMES:
                pathlib.Path(folder, name).unlink(missing_ok=True)
            pathlib.Path(folder).rmdir()  # unless there is something else in it
