"""ShortTrainings: trains a few steps with any plan, always on the same batches."""

import dataclasses
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tfx_perf.memory.batches import tensor_bytes
from tfx_perf.tf_internals import datasets
from tfx_perf.training.fit.timer import StepTimer, TimedFit, percentile
from tfx_perf.training.plan import TrainingPlan
from tfx_perf.training.team import Team
from tfx_perf.training.trials.contender import Contender
from tfx_perf.training.trials.starting_point import StartingPoint
from tfx_perf.training.trials.variant import BuiltUnder, Variant

# Steps of a check, calls of plain fit at the least, and bytes of batches kept for it.
_STEPS, _MIN_CALLS, _MAX_BYTES = 20, 3, 2**30

Logs = Mapping[str, np.ndarray]  # figures by name


@dataclasses.dataclass(frozen=True)
class ShortTraining:
    """What a short training came to.

    Attributes:
        contender: the plan, with 0 s a step if the training ended with the first call.
        step_count: steps that were trained.
        logs: of the last call.
    """

    contender: Contender
    step_count: int
    logs: Logs


class ShortTrainings:
    """Trainings on batches that are kept in memory.

    Attributes:
        fewest: steps that tell anything.
        step_count: steps of a training that is not stopped.
        example_count: rows of all batches.
        one_batch: one batch of the data from memory, for ever.
    """

    def __init__(
        self,
        variants: Mapping[BuiltUnder, Variant],
        data: tf.data.Dataset,
        *,
        start: StartingPoint,
        limit: Callable[[], float],
        team: Team,
    ) -> None:
        """Reads the batches: few if they are large or slow to come.

        Args:
            variants: what the plans train, by their precision.
            data: endless.
            start: where all trainings begin.
            limit: returns when what begins now must end, on `time.perf_counter`'s clock.
            team: which train together; all of them do what the chief decides.
        """
        self._variants, self._team = variants, team
        self._start = start
        self._limit = limit
        self.fewest = _MIN_CALLS * variants[None].loop.users_steps_per_call
        batches = self._read_ahead(data)
        self.step_count = len(batches)
        self.example_count = sum(int(datasets.row_count(batch)) for batch in batches)
        self._spec = data.element_spec
        self._data = self._from_memory(batches)
        self.one_batch = self._from_memory(batches[:1]).repeat()

    def train(
        self,
        plan: TrainingPlan,
        *,
        restore: Callable[[], None] | None = None,
        stop_when: Callable[[StepTimer], bool] | None = None,
    ) -> ShortTraining:
        """Trains a few steps.

        Args:
            plan: how to run them.
            restore: puts the variables to where to begin; by default to where all begin.
            stop_when: the chief is asked after every call; by default true when the time is up.
        """
        history, timer = self._run(plan, restore=restore, stop_when=stop_when)
        own_seconds = percentile(timer.steady_seconds(), 50) or 0.0
        step_seconds = self._team.of_chief(own_seconds)
        logs = {name: _as_array(values[-1]) for name, values in history.history.items()}
        contender = Contender(
            plan=plan,
            loss=float(np.mean(logs["loss"])) if "loss" in logs else None,
            compile_seconds=self._team.of_chief(max(0.0, timer.first_call_seconds - own_seconds)),
            step_seconds=step_seconds,
        )
        return ShortTraining(contender, timer.step_count, logs)

    def losses(self, plan: TrainingPlan, *, passes: int) -> np.ndarray | None:
        """Returns the mean loss of each of several passes; None if there was no time for all."""
        history, timer = self._run(plan, passes=passes)
        if timer.step_count < passes * self.step_count:
            return None
        return np.array([float(np.mean(loss)) for loss in history.history["loss"]])

    def _run(
        self,
        plan: TrainingPlan,
        *,
        passes: int = 1,
        restore: Callable[[], None] | None = None,
        stop_when: Callable[[StepTimer], bool] | None = None,
    ) -> TimedFit:
        """Trains for several passes over the batches, from the same weights."""
        limit = self._limit()
        is_over = stop_when or (lambda timer: time.perf_counter() > limit)
        (restore or self._start.restore)()
        return self._variants[plan.precision].loop.try_out(
            plan,
            self._data.repeat(passes),
            step_count=self.step_count,
            epochs=passes,
            stop_when=lambda timer: self._team.decides(is_over(timer)),
        )

    def _read_ahead(self, data: tf.data.Dataset) -> list[Any]:
        per_call = self._variants[None].loop.users_steps_per_call
        wanted = max(self.fewest, _STEPS // per_call * per_call)  # whole calls of plain fit
        limit = self._limit()
        batches, held_bytes = [], 0
        for batch in data.take(wanted):
            batches.append(batch)
            held_bytes += tensor_bytes(batch)
            enough = self._team.decides(held_bytes > _MAX_BYTES or time.perf_counter() > limit)
            if enough and len(batches) >= self.fewest and len(batches) % per_call == 0:
                break
        return batches

    def _from_memory(self, batches: list[Any]) -> tf.data.Dataset:
        """Returns a dataset of the batches with the specs of the user's own."""
        data = tf.data.Dataset.from_generator(
            lambda: iter(batches), output_signature=self._spec
        )
        return datasets.without_autotune(data.cache())


def _as_array(value: Any) -> np.ndarray:
    """Returns a figure of the logs in the precision that Keras computes most of them in."""
    array = np.asarray(value)
    return array.astype("float32") if array.dtype.kind == "f" else array
