"""The allocator's peak over real training steps: how high, made of what, how fragmented."""

import functools
import importlib
import math
import operator
import pathlib
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import tensorflow as tf

from tfx_perf.core import errors, interception
from tfx_perf.hardware import devices
from tfx_perf.memory import batches
from tfx_perf.memory.record import StateSizes
from tfx_perf.tf_internals import datasets
from tfx_perf.tf_internals.messages import xplane_pb2

# A process must start with this for its CPU peaks to be true. The default CPU allocator (with
# oneDNN) leaves tensors under 256 KiB out of its statistics; this one counts all.
ENVIRONMENT = {"TF_CPU_ALLOCATOR_USE_BFC": "1"}

_PROBE_BYTES = 2**16
_ALLOCATORS = {"CPU": "cpu", "GPU": "gpu_0"}  # parts of the allocators' names
_EVENTS = ("MemoryAllocation", "MemoryDeallocation")
_IN_USE, _INDEX, _NAME = "bytes_allocated", "fragmentation", "allocator_name"


class StepWatch:
    """For each step: the bytes in use before, the most in use meanwhile, and the time it took."""

    def __init__(self, device: str) -> None:
        self.idle_bytes: list[int] = []
        self.peaks_bytes: list[int] = []
        self.seconds: list[float] = []
        self._device = device
        self._began = 0.0

    def callback(self, call: interception.FitCall) -> Any:
        """Returns a callback of the Keras package whose `fit` was called."""

        def begin(callback: Any, batch: int, logs: Any = None) -> None:
            self.idle_bytes.append(_reset_peak(self._device))
            self._began = time.perf_counter()

        def end(callback: Any, batch: int, logs: Any = None) -> None:
            self.seconds.append(time.perf_counter() - self._began)
            # The most in use since a reset; chunks can be larger than their tensors.
            memory = tf.config.experimental.get_memory_info
            self.peaks_bytes.append(0 if gap(self._device) else memory(self._device)["peak"])

        base = importlib.import_module(f"{call.package}.callbacks").Callback
        hooks = {"on_train_batch_begin": begin, "on_train_batch_end": end}
        return type("Watching", (base,), hooks)()


def run_steps(
    call: interception.FitCall,
    batch: Any,
    *,
    steps: int = 1,
    copied: bool = False,
    watch: StepWatch | None = None,
) -> None:
    """Trains a few steps with Keras' `fit` on one batch in memory; the weights change.

    Callbacks, validation and the input pipeline's buffers are left out. With `copied`, each step
    has its own tensors, as with batches that are read. Each step is an epoch: with more in one, a
    model's own `steps_per_execution` would run them in one call.
    """
    data = batches.repeated(call, batch)
    call.proceed(
        x=datasets.without_autotune(datasets.copied(data) if copied else data),
        y=None,
        sample_weight=None,
        batch_size=None,
        epochs=steps,
        initial_epoch=0,
        steps_per_epoch=1,
        validation_split=0.0,
        validation_data=None,
        callbacks=watch and [watch.callback(call)],
        verbose=0,
    )


def _reset_peak(device: str) -> int:
    """Resets the peak and returns the bytes in use; 0 if the allocator does not count them."""
    if gap(device):
        return 0
    tf.config.experimental.reset_memory_stats(device)
    return tf.config.experimental.get_memory_info(device)["current"]


@functools.cache
def gap(device: str) -> str:
    """Returns why the allocator's byte counts are unusable; empty if it counts every tensor."""
    try:
        with tf.device(device):
            before = tf.config.experimental.get_memory_info(device)["current"]
            probe = tf.zeros(_PROBE_BYTES, tf.uint8) + tf.ones(1, tf.uint8)
            counted = tf.config.experimental.get_memory_info(device)["current"] - before
            del probe
    except ValueError:  # TensorFlow's CPU allocator without oneDNN counts nothing at all
        counted = 0
    if counted >= _PROBE_BYTES:
        return ""
    settings = " ".join(f"{name}={value}" for name, value in ENVIRONMENT.items())
    return f"the allocator of {device} does not count small tensors; start Python with {settings}"


def state_sizes(model: Any) -> StateSizes:
    """Returns the sizes of a compiled model, of either Keras line, that has trained a step."""
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


def fragmentation(work: Callable[[], None]) -> float:
    """Returns the allocator's fragmentation index, 0-1, at peak use while `work` runs.

    TensorFlow's BFC allocator cuts regions into chunks. The index is the share of the free bytes
    outside of the largest free chunk (`BFCAllocator::GetFragmentation` in
    tensorflow/tsl/framework/bfc_allocator.cc); only the profiler gets it. MeasurementError: another
    profiler is running, or there is no BFC allocator, as by default on a CPU.
    """
    # Level 2 has the allocator's events; calls of Python are many and of no use here.
    options = tf.profiler.experimental.ProfilerOptions(host_tracer_level=2, python_tracer_level=0)
    with tempfile.TemporaryDirectory() as folder:
        try:
            with tf.profiler.experimental.Profile(folder, options):
                work()
        except (tf.errors.AlreadyExistsError, tf.errors.UnavailableError) as error:
            raise errors.MeasurementError(f"TensorFlow's profiler is in use ({error})") from error
        files = pathlib.Path(folder).rglob("*.xplane.pb")
        spaces = [xplane_pb2.XSpace.FromString(file.read_bytes()) for file in files]
    device = devices.allocator_device()
    moments = [each for space in spaces for each in _moments(space, device)]
    if not moments:
        raise errors.MeasurementError(f"the allocator of {device} does not report it")
    return max(moments, key=operator.itemgetter(0))[1]


def _moments(space: xplane_pb2.XSpace, device: str) -> Iterator[tuple[int, float]]:
    """Yields bytes in use and the index for each time that a chunk is allocated or freed."""
    allocator = _ALLOCATORS[device.partition(":")[0]]
    for plane in space.planes:
        events = {key: item.name for key, item in plane.event_metadata.items()}
        names = {key: item.name for key, item in plane.stat_metadata.items()}
        for event in (event for line in plane.lines for event in line.events):
            if events[event.metadata_id] not in _EVENTS:
                continue
            stats = {names[stat.metadata_id]: stat for stat in event.stats}
            if allocator in _text(stats[_NAME], names).lower():
                yield _number(stats[_IN_USE]), float(_number(stats[_INDEX]))


def _text(stat: xplane_pb2.XStat, names: dict[int, str]) -> str:
    kind = stat.WhichOneof("value")
    return names[stat.ref_value] if kind == "ref_value" else str(getattr(stat, kind))


def _number(stat: xplane_pb2.XStat) -> Any:
    return getattr(stat, stat.WhichOneof("value"))
