"""OomGuard: goes on with smaller slices where a training step runs out of memory."""

import dataclasses
import gc
import logging
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfx_perf.core import errors
from tfx_perf.core.formatting import format_bytes
from tfx_perf.hardware import devices
from tfx_perf.memory import batches, peak
from tfx_perf.tf_internals.datasets import row_count
from tfx_perf.training.measuring import memory
from tfx_perf.training.step.step_runner import Logs, TracedSteps
from tfx_perf.training.step.steps import MultiStep

_RETRY_STEPS = 100  # until larger slices are tried once more

_LOGGER = logging.getLogger(__name__)


def cause(message: str) -> str:
    """Returns the line of a `ResourceExhaustedError` that names the allocation."""
    lines = (line.strip() for line in message.splitlines())
    return next(
        (line for line in lines if "OOM when" in line or "Out of memory while" in line),
        "no details",
    )


@dataclasses.dataclass
class _Peaks:
    """The peaks of the device's allocator, in bytes; 0 where it counts none."""

    device: str = dataclasses.field(default_factory=devices.allocator_device)
    highest: int = 0  # ever seen: so much there has been

    def _info(self) -> dict[str, int]:
        try:
            return tf.config.experimental.get_memory_info(self.device)
        except ValueError:  # an allocator without statistics
            return {"current": 0, "peak": 0}

    def restart(self) -> None:
        self.highest = max(self.highest, self._info()["peak"])
        if self.highest:
            memory.restart_peak(self.device)

    def allow_twice_the_slice(self) -> bool:
        """Whether a step's temporary memory would fit if it doubled."""
        info = self._info()
        return 0 < 2 * info["peak"] - info["current"] <= self.highest


class OomGuard(TracedSteps):
    """Traced steps that survive `ResourceExhaustedError`.

    The batch of the step that failed is run again with twice as many micro-batches, if need be
    down to single rows; then the call goes on. Each replica cuts its part of the batch into the
    same number of slices. The optimizer gets the gradient of the whole batch every time, so that
    neither batch size nor loss curve change. The approach is Composer's automatic micro-batching.

    After some steps the larger slices are tried once more, if the allocator's peak says that they
    would fit now; if they do not, they are not tried again.
    """

    def __init__(self, function: MultiStep, model: Any, *, micro_batches: int) -> None:
        """Runs a function, which must keep a journal."""
        super().__init__(function, micro_batches=micro_batches)
        self._journal: Any = function.journal  # there is one: the loop guards nothing else
        self.oom_count = 0  # steps that ran out of memory
        self._model = model
        self._fewest = micro_batches
        self._steps_since = 0
        self._may_return = True
        self._returning = False
        self._first_call = True
        self._peaks = _Peaks()

    def run(self, iterator: Any, steps: int) -> Logs:
        """Runs steps; UserError if one row does not fit, HalfAppliedError within the update."""
        if self.micro_batches > self._fewest:
            self._consider_returning()
        left = max(1, steps)
        while left:
            # In the first call tf_keras makes its metrics, which the journal must know before.
            steps = 1 if self._first_call else left
            self._first_call = False
            logs, done = self._attempt(iterator, steps)
            left -= done
            self._steps_since += done
        return logs

    def _attempt(self, iterator: Any, steps: int) -> tuple[Logs, int]:
        """Returns the last logs and how many of the steps are done: one more than failed."""
        try:
            logs = self._function.run(iterator, steps, micro_batches=self.micro_batches)
            return logs, steps
        except tf.errors.ResourceExhaustedError as error:
            done = self._journal.applied_steps
            parts = self._journal.take_back()
            if parts is None:  # something else is exhausted, e.g. the disk under a cache
                raise
            message = error.message
        # Out of the except clause, so that the error's traceback keeps nothing alive.
        self._function.count_done(done)
        while True:
            self._halve(parts, message)
            try:
                logs = self._function.run_batch(parts, micro_batches=self.micro_batches)
                return logs, done + 1
            except tf.errors.ResourceExhaustedError as error:
                self._journal.take_back()
                message = error.message

    def _halve(self, parts: Sequence[Any], message: str) -> None:
        self.oom_count += 1
        gc.collect()
        self._peaks.restart()
        rows = [int(row_count(part)) for part in parts]
        if self.micro_batches >= max(rows):
            raise errors.UserError(self._explanation(parts, sum(rows)))
        self._may_return = self._may_return and not self._returning
        self._returning = False
        self._steps_since = 0
        self.micro_batches = min(2 * self.micro_batches, max(rows))
        _LOGGER.warning(
            "Out of memory (%s); the batch is run again in %d micro-batches.",
            cause(message),
            self.micro_batches,
        )

    def _consider_returning(self) -> None:
        if self._steps_since < _RETRY_STEPS:
            return
        self._returning = False  # if it was tried, it went well
        fits = self._may_return and self._peaks.allow_twice_the_slice()
        self._peaks.restart()  # a window that has ended, with whatever was in memory then
        self._steps_since = 0
        if fits:
            self._returning = True
            self.micro_batches = max(self._fewest, self.micro_batches // 2)
            _LOGGER.info("Memory allows %d micro-batches again.", self.micro_batches)

    def _explanation(self, parts: Sequence[Any], rows: int) -> str:
        state = peak.state_sizes(self._model)
        sizes = {
            "weights": state.weights_bytes,
            "optimizer state": state.optimizer_state_bytes,
            "gradients": state.gradients_bytes,
            "one row of the batch": batches.tensor_bytes(parts) / rows,
        }
        if self._peaks.highest:
            sizes[f"peak of {self._peaks.device}"] = self._peaks.highest
        said = ", ".join(f"{name} {format_bytes(size)}" for name, size in sizes.items())
        return (
            "Expected enough memory for a training step on one row. "
            f"Received: {said}. Take a smaller model or input, or a device with more memory."
        )
