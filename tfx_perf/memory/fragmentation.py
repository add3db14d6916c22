"""How fragmented the allocator's memory is at the peak of a training step.

TensorFlow's BFC allocator takes regions from the device and cuts them into chunks. What is free in
them is of use to a large tensor only in one piece. Its fragmentation index is the share of the free
bytes outside of the largest free chunk (`BFCAllocator::GetFragmentation` in
tensorflow/tsl/framework/bfc_allocator.cc); TensorFlow tells it to its profiler alone.
"""

import dataclasses
import pathlib
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from tfx_perf import errors
from tfx_perf.hardware import devices
from tfx_perf.tf_internals.messages import xplane_pb2

_ALLOCATORS = {"CPU": "cpu", "GPU": "gpu_0"}  # parts of their names
_EVENTS = ("MemoryAllocation", "MemoryDeallocation")
_IN_USE, _INDEX, _NAME = "bytes_allocated", "fragmentation", "allocator_name"


@dataclasses.dataclass(frozen=True)
class _Moment:
    """What the allocator says when it hands out a chunk, or takes one back."""

    in_use_bytes: int
    ratio: float


def at_peak(work: Callable[[], None]) -> float:
    """Returns the fragmentation index, 0-1, when most memory is in use while `work` runs.

    Args:
        work: runs a few training steps.

    Raises:
        MeasurementError: another profiler is running, or the allocator is not a BFC allocator,
            as TensorFlow's usual one on a CPU; see `peak.ENVIRONMENT`.
    """
    # Level 2 holds the allocator's events; Python's calls are many and of no use here.
    options = tf.profiler.experimental.ProfilerOptions(host_tracer_level=2, python_tracer_level=0)
    with tempfile.TemporaryDirectory() as folder:
        try:
            with tf.profiler.experimental.Profile(folder, options):
                work()
        except (tf.errors.AlreadyExistsError, tf.errors.UnavailableError) as error:
            raise errors.MeasurementError(f"TensorFlow's profiler is not free ({error})") from error
        files = pathlib.Path(folder).rglob("*.xplane.pb")
        spaces = [xplane_pb2.XSpace.FromString(file.read_bytes()) for file in files]
    device = devices.allocator_device()
    moments = [moment for space in spaces for moment in _moments(space, device)]
    if not moments:
        raise errors.MeasurementError(f"the allocator of {device} does not say")
    return max(moments, key=lambda moment: moment.in_use_bytes).ratio


def _moments(space: xplane_pb2.XSpace, device: str) -> Iterator[_Moment]:
    allocator = _ALLOCATORS[device.partition(":")[0]]
    for plane in space.planes:
        events = {key: item.name for key, item in plane.event_metadata.items()}
        names = {key: item.name for key, item in plane.stat_metadata.items()}
        for event in (event for line in plane.lines for event in line.events):
            if events[event.metadata_id] not in _EVENTS:
                continue
            stats = {names[stat.metadata_id]: stat for stat in event.stats}
            if allocator in _text(stats[_NAME], names).lower():
                yield _Moment(_number(stats[_IN_USE]), float(_number(stats[_INDEX])))


def _text(stat: xplane_pb2.XStat, names: dict[int, str]) -> str:
    kind = stat.WhichOneof("value")
    return names[stat.ref_value] if kind == "ref_value" else str(getattr(stat, kind))


def _number(stat: xplane_pb2.XStat) -> Any:
    return getattr(stat, stat.WhichOneof("value"))
