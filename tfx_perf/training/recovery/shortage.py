"""Steps that run out of memory: how to recognize them, and how other workers learn of them."""

import contextlib
import errno
import os
import pathlib
from typing import Any, ClassVar, NoReturn

import tensorflow as tf

from tfx_perf.core import errors, records
from tfx_perf.core.formatting import format_bytes
from tfx_perf.hardware import devices
from tfx_perf.memory import batches, peak
from tfx_perf.tf_internals.datasets import row_count
from tfx_perf.training.recovery.checkpoint_store import SHORTAGE
from tfx_perf.training.recovery.training_state import Writers
from tfx_perf.training.replicas.sync import ShortOfMemoryError, Sync
from tfx_perf.training.speedups.plan import TrainingPlan

# TensorFlow also reports a full disk under a file cache, or memory for the data, as exhausted.
_NOT_THE_STEP = (os.strerror(errno.ENOSPC), "IteratorGetNext")


def is_of_memory(error: Exception) -> bool:
    """Whether a step ran out of memory."""
    is_exhausted = isinstance(error, tf.errors.ResourceExhaustedError)
    is_elsewhere = any(each in str(error) for each in _NOT_THE_STEP)
    return is_exhausted and (bool(cause(error)) or not is_elsewhere)


def cause(error: Exception) -> str:
    """Returns the line of a `ResourceExhaustedError` that names the allocation; "" if none does."""
    lines = (line.strip() for line in str(error).splitlines())
    return next((each for each in lines if "OOM when" in each or "Out of memory while" in each), "")


def one_row_error(model: Any, batch: Any) -> errors.UserError:
    """Returns the error of a step that does not fit for one row of `batch` (None if unknown)."""
    state, device = peak.state_sizes(model), devices.allocator_device()
    sizes: dict[str, float] = {
        "weights": state.weights_bytes,
        "optimizer state": state.optimizer_state_bytes,
        "gradients": state.gradients_bytes,
    }
    if batch is not None:
        sizes["one row of the batch"] = batches.tensor_bytes(batch) / int(row_count(batch))
    with contextlib.suppress(ValueError):  # an allocator without statistics
        sizes[f"peak of {device}"] = tf.config.experimental.get_memory_info(device)["peak"]
    allocations = ", ".join(f"{name} {format_bytes(size)}" for name, size in sizes.items())
    return errors.UserError(
        "Expected enough memory for a training step on one row. "
        f"Received: {allocations}. Take a smaller model or input, or a device with more memory."
    )


class Shortage(records.Record):
    """A step that did not fit into one worker's memory, while the others wait in it."""

    SCHEMA: ClassVar[str] = "tfx_perf.shortage/1"

    worker: int  # index of the worker that ran out
    micro_batches: int  # slices of each replica's rows
    count: int  # steps that did not fit so far
    writers: Writers  # the workers that trained


class Shortages:
    """Makes several workers restart with slices after one of them ran out of memory.

    `left` is the shortage that one of these workers recorded. It is None without one, or if other
    numbers of workers or replicas trained, which may have had fewer rows each.
    """

    def __init__(self, folder: pathlib.Path | None, *, sync: Sync, writers: Writers) -> None:
        """Looks for a shortage in the checkpoint folder, if it exists; all workers must call it."""
        self._folder, self._sync, self._writers = folder, sync, writers
        shortage = None if folder is None or sync.size == 1 else _read(folder, writers)
        self.left = shortage if sync.all_equal(shortage) else None

    @property
    def count(self) -> int:
        """Steps of the training that did not fit so far."""
        return self.left.count if self.left else 0

    def end_step(
        self, error: Exception, plan: TrainingPlan, *, batch_rows: int | None, obstacle: str | None
    ) -> NoReturn:
        """Ends a step that does not fit, so that all workers, which wait in it, restart.

        Raises ShortOfMemoryError; UserError if smaller slices would not help, or batches cannot be
        sliced (`obstacle`).
        """
        size = "" if batch_rows is None else f" with a batch of {batch_rows} rows"
        message = (
            "Expected a step that fits into the memory of every worker. Received: "
            f"{errors.in_one_line(error)} on worker {self._sync.rank}{size}, with {plan}."
        )
        if batch_rows is not None and plan.micro_batches * self._writers.replicas >= batch_rows:
            obstacle = "each slice has one row"
        reason = obstacle or self._refused(plan)
        if reason:
            raise errors.UserError(
                f"{message} It cannot be cut: {reason}. Make the batch smaller, or have more "
                "workers share it."
            ) from error
        raise ShortOfMemoryError(
            f"{message} After a restart, all workers continue with smaller slices."
        ) from error

    def _refused(self, plan: TrainingPlan) -> str | None:
        """Records the shortage for the restarted workers; returns the obstacle, if any."""
        if self._folder is None:
            return "training.checkpoint_folder, through which the others learn of it, is not set"
        shortage = Shortage(
            worker=self._sync.rank,
            micro_batches=plan.micro_batches,
            count=self.count + 1,
            writers=self._writers,
        )
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            shortage.write(self._folder / SHORTAGE)
        except OSError as error:
            return f"the record for the other workers cannot be written ({error})"
        return None


def _read(folder: pathlib.Path, writers: Writers) -> Shortage | None:
    with contextlib.suppress(errors.UserError):  # there is none, or it is of another version
        shortage = Shortage.read(folder / SHORTAGE)
        return shortage if shortage.writers == writers else None
    return None
