"""A custom training loop, whose author marks its steps: timed and recorded as `fit` is."""

import collections
import contextlib
import operator
import time
from collections.abc import Iterator
from typing import Any

from tfx_perf.core import errors, interception
from tfx_perf.hardware import devices, energy
from tfx_perf.training import ended_training
from tfx_perf.training.fit.timer import StepTimer
from tfx_perf.training.keras_api.variables import parameter_count
from tfx_perf.training.measuring import collector, memory
from tfx_perf.training.record import TrainingRecord
from tfx_perf.training.replicas import strategies
from tfx_perf.training.speedups.plan import PLAIN_FIT

_NOT_COUNTED = "FLOPs are not counted in a loop of your own"
_OTHERS_NOT_COUNTED = "the other workers' hosts are not counted in a loop of your own"


class Meter:
    """Times the steps of a loop, and keeps 40 bytes of each.

    Only the first step can raise a UserError: later ones never end the loop.
    """

    def __init__(self, *, model: Any = None) -> None:
        """Starts; memory that the process holds by now is not counted as the training's.

        Args:
            model: its `trainable_variables` are counted; raises UserError if it has none.
        """
        if model is not None and not hasattr(model, "trainable_variables"):
            raise errors.UserError(
                "Expected model to have trainable_variables, which are counted. Received: "
                f"model={type(model).__name__}. Leave it out, or give a tf.Module that holds all."
            )
        self._held = memory.MemoryBaseline.now()
        self._began = time.perf_counter()
        self._timer = StepTimer()
        self._batch_sizes: collections.Counter[int] = collections.Counter()
        self._losses: dict[str, list[float]] = {}
        self._notes = [_NOT_COUNTED]
        self._epoch = 0
        self._model = model
        self._known: dict[str, Any] = {}
        self._memory: memory.MemoryWatch | None = None

    def step(self, *, examples: int, steps: int = 1) -> "contextlib.AbstractContextManager[None]":
        """Returns the context of one step, or of several that one function call runs.

        The wait for data between two steps of an epoch counts as part of the second, as in `fit`.
        A step that raises is not counted.

        Args:
            examples: number in the batch, over all replicas and all these steps.
            steps: how many run inside the context.

        Raises:
            UserError: in the first step only: a number is not whole, there is no step, or there are
                fewer examples than steps.
        """
        try:
            step_count = operator.index(steps)
            batch_size = operator.index(examples) // step_count
        except (TypeError, ZeroDivisionError):
            batch_size, step_count = 0, 1  # a later step with such numbers still counts as one
        if batch_size < 1 and not self._batch_sizes:
            raise errors.UserError(
                "Expected whole numbers in meter.step, of at least one step, and of at least one "
                f"example a step. Received: examples={examples!r}, steps={steps!r}."
            )
        if interception.is_capturing():  # a search for a `fit`, which finds none
            raise interception.AbandonedError
        return _Step(self._timer, self._batch_sizes, batch_size, max(1, step_count))

    def end_epoch(self, **losses: Any) -> None:
        """Ends an epoch; time until the next step, such as validation, is not counted.

        Args:
            **losses: any values that `float` accepts; the gate knows `loss` and `val_loss`. Others
                are left out, with a note in the record.
        """
        self._epoch += 1
        self._timer.on_epoch_begin(self._epoch)
        for name, value in losses.items():
            try:
                number = float(value)
            except Exception as error:  # whatever the user's object raises
                self._notes.append(
                    f"{name} of epoch {self._epoch} is no number: {errors.in_one_line(error)}"
                )
            else:
                self._losses.setdefault(name, []).append(number)

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Watches memory, energy and the garbage collector inside the context."""
        with collector.spared() as pauses, energy.counted() as used, memory.watching() as watched:
            yield
        self._memory = watched
        self._known = {
            "garbage_collection_seconds": pauses.seconds,
            "energy_joules": used.joules,
            "energy_gap": used.reason,
            **ended_training.peaks(self._held, watched, leftover_bytes=0),
        }

    def to_record(self) -> TrainingRecord | None:
        """Returns the measurements; None if there was no step. Call it after `watching`."""
        timer, watched = self._timer, self._memory
        first_end, last_end = timer.first_call_end, timer.last_call_end
        if watched is None or first_end is None or last_end is None:
            return None
        variables = getattr(self._model, "trainable_variables", ())
        strategy = getattr(self._model, "distribute_strategy", None)
        ((batch_size, _),) = self._batch_sizes.most_common(1)
        known = dict(self._known)
        if strategies.worker_count(strategy) > 1:  # only a `fit` asks the others
            known |= {"energy_joules": None, "energy_gap": _OTHERS_NOT_COUNTED}
        parameters = parameter_count(variables)
        return TrainingRecord(
            plan=PLAIN_FIT,
            plan_reason="its steps are timed where it marks them",
            is_custom_loop=True,
            environment={
                **devices.describe(),
                **({"strategy": ""} if strategy is None else strategies.environment(strategy)),
                "global_batch_size": str(batch_size),
                "parameter_count": str(parameters),
            },
            **ended_training.step_times(timer),
            **({} if strategy is None else strategies.counts(strategy)),
            global_batch_size=batch_size,
            parameter_count=parameters,
            train_step_count=timer.step_count,
            time_to_first_step_seconds=first_end - self._began,
            compile_time_seconds=timer.compile_seconds(),
            fit_time_seconds=last_end - self._began,
            device_memory_bytes=devices.memory_bytes(),
            losses={name: tuple(values) for name, values in self._losses.items()},
            notes=tuple(self._notes),
            **ended_training.memory_along(watched, timer, has_cache=False),
            **known,
        )


class _Step:
    """One step; faster than a context manager made from a generator."""

    __slots__ = ("_batch_size", "_batch_sizes", "_steps", "_timer")

    def __init__(
        self, timer: StepTimer, batch_sizes: collections.Counter[int], batch_size: int, steps: int
    ) -> None:
        self._timer, self._batch_sizes = timer, batch_sizes
        self._batch_size, self._steps = batch_size, steps

    def __enter__(self) -> None:
        self._timer.begin_call()

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        if kind is None:
            self._timer.end_call(self._steps)
            self._batch_sizes[self._batch_size] += 1
