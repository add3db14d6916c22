"""A custom training loop, whose author marks its steps: timed and recorded as `fit` is."""

import contextlib
import statistics as python_statistics
import time
from collections.abc import Iterator
from typing import Any

from tfx_perf import errors, interception
from tfx_perf.hardware import devices, energy
from tfx_perf.memory import limit
from tfx_perf.training import recording
from tfx_perf.training.fit.timer import StepTimer
from tfx_perf.training.measuring import collector, memory_watch, strategies
from tfx_perf.training.measuring.held_memory import HeldMemory
from tfx_perf.training.plan import PLAIN_FIT
from tfx_perf.training.record import TrainingRecord

_NOT_COUNTED = "FLOPs are not counted in a loop of your own"


class Meter:
    """Times the steps of a loop; what it holds beside them is a few bytes a step."""

    def __init__(self, *, model: Any = None) -> None:
        """Starts; what the process holds by now is none of the training's memory.

        Args:
            model: whose parameters are counted: whatever has `trainable_variables`.
        """
        self._held = HeldMemory.now()
        self._began = time.perf_counter()
        self._step_count = 1
        self._timer = StepTimer(steps_in_call=lambda: self._step_count)
        self._examples: list[int] = []
        self._losses: dict[str, list[float]] = {}
        self._epoch = 0
        self._model = model
        self._known: dict[str, Any] = {}
        self._memory: memory_watch.MemoryWatch | None = None

    def step(self, *, examples: int, steps: int = 1) -> "contextlib.AbstractContextManager[None]":
        """Returns the context of one step, or of several that one call of a function makes.

        The wait for data between two steps of an epoch counts as part of the second, as in `fit`.
        A step that raises is not counted.

        Args:
            examples: in the batch, over all replicas; of all steps together.
            steps: that are made inside.

        Raises:
            UserError: a number below one.
        """
        for name, value in (("examples", examples), ("steps", steps)):
            if value < 1:
                raise errors.UserError(
                    f"Expected at least one of meter.step's {name}. Received: {name}={value}."
                )
        if interception.is_capturing():  # somebody who looks for a `fit`, and finds none
            raise interception.AbandonedError
        return _Step(self, examples, steps)

    def end_epoch(self, **losses: Any) -> None:
        """Ends an epoch: what comes before the next step, such as validation, is none of its time.

        Args:
            **losses: of the epoch, whatever `float` takes; `loss` and `val_loss` are what the gate
                knows.
        """
        self._epoch += 1
        self._timer.on_epoch_begin(self._epoch)
        for name, value in losses.items():
            self._losses.setdefault(name, []).append(float(value))

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Watches memory, energy and the garbage collector inside the context."""
        with (
            collector.spared() as pauses,
            energy.counted() as used,
            memory_watch.watching() as memory,
        ):
            yield
        self._memory = memory
        self._known = {
            "garbage_collection_seconds": pauses.seconds,
            "energy_joules": used.joules,
            "energy_gap": used.reason,
            **recording.peaks(self._held, memory, leftover_bytes=0),
        }

    def measured(self) -> TrainingRecord | None:
        """Returns what was measured; None if no step was. Call it after `watching`."""
        timer, memory = self._timer, self._memory
        if memory is None or not timer.call_count:
            return None
        variables = getattr(self._model, "trainable_variables", ())
        strategy = getattr(self._model, "distribute_strategy", None)
        batch_size = python_statistics.mode(self._examples)
        parameters = sum(int(variable.shape.num_elements()) for variable in variables)
        return TrainingRecord(
            plan=PLAIN_FIT,
            plan_reason="its steps are timed where it marks them",
            is_custom_loop=True,
            environment={
                **devices.describe(),
                "strategy": "" if strategy is None else strategies.name(strategy),
                "global_batch_size": str(batch_size),
                "parameter_count": str(parameters),
            },
            **recording.step_times(timer),
            global_batch_size=batch_size,
            parameter_count=parameters,
            train_step_count=timer.step_count,
            setup_time_seconds=None,
            time_to_first_step_seconds=(timer.first_call_end or self._began) - self._began,
            compile_time_seconds=recording.beyond_the_steps(timer),
            fit_time_seconds=(timer.last_call_end or self._began) - self._began,
            device_memory_bytes=limit.device_memory_bytes(),
            losses={name: tuple(values) for name, values in self._losses.items()},
            notes=(_NOT_COUNTED,),
            **recording.memory_along(memory, timer, has_cache=False),
            **self._known,
        )

    def _begin(self) -> None:
        self._timer.on_batch_begin()

    def _end(self, examples: int, steps: int) -> None:
        self._step_count = steps
        self._timer.on_batch_end()
        self._examples.append(examples // steps)


class _Step:
    """One step; quicker than a generator's context."""

    __slots__ = ("_examples", "_meter", "_steps")

    def __init__(self, meter: Meter, examples: int, steps: int) -> None:
        self._meter, self._examples, self._steps = meter, examples, steps

    def __enter__(self) -> None:
        self._meter._begin()

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        if kind is None:
            self._meter._end(self._examples, self._steps)
