"""The allocator's peak over real training steps, and what of it follows from shapes alone."""

import gc
import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import tensorflow as tf

from tfx_perf import errors, interception
from tfx_perf.hardware import devices
from tfx_perf.memory import batches
from tfx_perf.memory.record import StateSizes
from tfx_perf.tf_internals import datasets

# With what a process must start for its CPU peaks to be true. The default CPU allocator (with
# oneDNN) leaves tensors under 256 KiB out of its statistics; this one counts all.
ENVIRONMENT = {"TF_CPU_ALLOCATOR_USE_BFC": "1"}

_PROBE_BYTES = 2**16
_WARM_UP_STEPS = 2  # tracing, and whatever is made once
_STEPS = 3
_ROUNDS = 3


class StepPeak(NamedTuple):
    """The highest of the peaks of a few rounds of steps, and by how much these differ.

    They do because TensorFlow runs independent operations in any order.
    """

    bytes: int
    scatter_bytes: int


def run_steps(
    call: interception.FitCall, batch: Any, *, steps: int = _WARM_UP_STEPS, copied: bool = False
) -> None:
    """Trains a few steps with Keras' own `fit`, on one batch held in memory.

    Callbacks and validation are left out, and so is the input pipeline, whose buffers are not
    the step's. The model's weights change.

    Args:
        call: the captured `fit`.
        batch: nested structure of eager tensors.
        steps: how many.
        copied: whether each step has tensors of its own, as where batches are read. XLA takes
            more memory then.
    """
    data = batches.repeated(call, batch)
    call.proceed(
        x=datasets.without_autotune(datasets.copied(data) if copied else data),
        y=None,
        sample_weight=None,
        batch_size=None,
        epochs=1,
        initial_epoch=0,
        steps_per_epoch=steps,
        validation_split=0.0,
        validation_data=None,
        callbacks=None,
        verbose=0,
    )


def step_peak(call: interception.FitCall, batch: Any, *, resident_bytes: int) -> StepPeak:
    """Measures the device allocator's peak while training on `batch`.

    The result is what must be resident plus what the steps took on top, so that whatever else
    the process holds (a dataset kept in tensors, another model) does not count. Scratch counts
    where it comes from TensorFlow's allocator; the Python process does not. The allocator counts
    the chunks it hands out, which can be larger than the tensors in them.

    Args:
        call: the captured `fit`; its model must have its variables already.
        batch: nested structure of eager tensors.
        resident_bytes: weights, optimizer state and batch.

    Raises:
        MeasurementError: the allocator does not count everything; see `ENVIRONMENT`.
    """
    device = devices.allocator_device()
    _check_allocator(device)
    run_steps(call, batch)
    before, peaks = [], []
    for _ in range(_ROUNDS):
        gc.collect()
        tf.config.experimental.reset_memory_stats(device)
        before.append(tf.config.experimental.get_memory_info(device)["current"])
        run_steps(call, batch, steps=_STEPS)
        peaks.append(tf.config.experimental.get_memory_info(device)["peak"])
    # The lowest, because a step's last tensors may not be freed yet when it is read.
    idle = min(before)
    return StepPeak(resident_bytes + max(peaks) - idle, scatter_bytes=max(peaks) - min(peaks))


def _check_allocator(device: str) -> None:
    """Looks whether the allocator counts a small tensor."""
    try:
        with tf.device(device):
            before = tf.config.experimental.get_memory_info(device)["current"]
            probe = tf.zeros(_PROBE_BYTES, tf.uint8) + tf.ones(1, tf.uint8)
            counted = tf.config.experimental.get_memory_info(device)["current"] - before
            del probe
    except ValueError:  # what TensorFlow uses on a CPU without oneDNN counts nothing at all
        counted = 0
    if counted < _PROBE_BYTES:
        settings = " ".join(f"{name}={value}" for name, value in ENVIRONMENT.items())
        raise errors.MeasurementError(
            f"the allocator of {device} does not count small tensors; start Python with {settings}"
        )


def state_sizes(model: Any) -> StateSizes:
    """Returns the sizes of a compiled model of either Keras line that has trained a step.

    Args:
        model: built and with its optimizer's variables made, as they are after a step.
    """
    optimizer_variables = model.optimizer.variables
    if callable(optimizer_variables):  # a method in tf_keras
        optimizer_variables = optimizer_variables()
    return StateSizes(
        weights_bytes=_variables_bytes(model.variables),
        optimizer_state_bytes=_variables_bytes(optimizer_variables),
        gradients_bytes=_variables_bytes(model.trainable_variables),
    )


def _variables_bytes(variables: Iterable[Any]) -> int:
    unique = {id(variable): variable for variable in variables}.values()
    return sum(math.prod(variable.shape) * tf.as_dtype(variable.dtype).size for variable in unique)
