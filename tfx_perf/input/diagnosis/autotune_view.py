"""What TensorFlow's autotune chose, as far as TensorFlow tells."""

import contextlib
import logging
import os
import pathlib
import tempfile
import threading
import time
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from tfx_perf import records
from tfx_perf.tf_internals.messages import xplane_pb2

_LOGGER = logging.getLogger(__name__)

_TRACED_SECONDS = 0.05  # thousands of events, a few of which are looked at
_GRACE_SECONDS = 5.0  # to collect a trace; what takes longer is given up
_ITERATOR = "Iterator::"
_UNAVAILABLE = "unavailable"  # what a trace says of a figure whose lock was taken just then
_FLAT_MAP = "FlatMap"  # in the model an interleave of one, which nobody can set


class AutotuneNode(records.Record):
    """A node of a running tf.data pipeline that has something to set.

    Attributes:
        name: as TensorFlow calls it after its own rewrites, e.g. `ParallelMapV2`.
        parallelism: calls or files at a time, now.
        buffer_size: elements that it buffers, now.
        cycle_length: files that are read in turns.
        tuned: whether autotune sets any of them; otherwise they stay as they were built.
    """

    name: str
    parallelism: int | None = None
    buffer_size: int | None = None
    cycle_length: int | None = None
    tuned: bool = False


def read(dataset: tf.data.Dataset, *, seconds: float) -> tuple[AutotuneNode, ...]:
    """Returns the nodes of a pipeline after it ran for a while, from the files on.

    Newer TensorFlow (2.21 does) hands out its model of a pipeline that autotune sets; in older
    ones, and without autotune, a trace of the profiler has the same figures. Where neither works
    there are no nodes: nothing is raised, and a profiler that hangs is left behind after five
    seconds.

    Args:
        dataset: what to look into; a new iterator of it is run.
        seconds: how long to run it, so that autotune can settle.
    """
    found: list[AutotuneNode] = []
    gives_up = time.monotonic() + seconds + _GRACE_SECONDS

    def look() -> None:
        try:
            found.extend(_look(dataset, seconds=seconds, gives_up=gives_up))
        except Exception as error:  # a view is nice to have and must cost nothing
            _LOGGER.debug("No view of autotune.", exc_info=error)

    thread = threading.Thread(target=look, name="autotune-view", daemon=True)
    with _silent():
        thread.start()
        thread.join(seconds + _GRACE_SECONDS)
    return () if thread.is_alive() else tuple(found)


def _look(dataset: tf.data.Dataset, *, seconds: float, gives_up: float) -> list[AutotuneNode]:
    iterator = iter(dataset)
    _run(iterator, seconds)
    if time.monotonic() > gives_up:  # nobody waits any more
        return []
    model = _model(iterator)
    return _traced(iterator) if model is None else from_model(model)


def _run(iterator: Iterator[Any], seconds: float) -> None:
    """Takes batches for `seconds`, at least one."""
    ends = time.monotonic() + seconds
    for _ in iterator:
        if time.monotonic() > ends:
            break


def _model(iterator: Iterator[Any]) -> Any:
    """Returns TensorFlow's own `ModelProto`, or None where it has or tells none."""
    try:
        return tf.data.experimental.get_model_proto(iterator)
    except (AttributeError, tf.errors.NotFoundError):  # an older TensorFlow; autotune is off
        return None


def _traced(iterator: Iterator[Any]) -> list[AutotuneNode]:
    profiler = tf.profiler.experimental
    options = profiler.ProfilerOptions(host_tracer_level=2, device_tracer_level=0)
    with tempfile.TemporaryDirectory() as folder:
        profiler.start(folder, options)
        try:
            _run(iterator, _TRACED_SECONDS)
        finally:
            profiler.stop()
        traces = pathlib.Path(folder).rglob("*.xplane.pb")
        return [node for trace in traces for node in from_trace(trace.read_bytes())]


def from_model(model: Any) -> list[AutotuneNode]:
    """Returns the nodes of a `tensorflow.data.model.ModelProto`, from the files on."""
    by_path = {}  # each file that an interleave reads has the same nodes once more
    todo = [(model.output, "")]
    while todo:
        number, consumer = todo.pop(0)
        node = model.nodes[number]
        path = f"{consumer}::{node.name}"
        todo.extend((number, path) for number in node.inputs)
        if node.name == _FLAT_MAP:
            continue
        # Of what is tuned, `value` may be one that the optimiser only tries out.
        values = {
            item.name: item.state_value if item.tunable else item.value for item in node.parameters
        }
        tuned = any(item.tunable for item in node.parameters)
        by_path[path] = _node(node.name, values, tuned=tuned)
    return [node for node in reversed(by_path.values()) if node]


def from_trace(trace: bytes) -> list[AutotuneNode]:
    """Returns the nodes of a profiler's trace (a serialised `XSpace`), from the files on."""
    by_path = {}
    for plane in xplane_pb2.XSpace.FromString(trace).planes:
        paths = {
            key: item.name
            for key, item in plane.event_metadata.items()
            if item.name.startswith(_ITERATOR)
        }
        for event in (event for line in plane.lines for event in line.events):
            if event.metadata_id in paths:
                stats = _stats(event, plane.stat_metadata)
                by_path[paths[event.metadata_id]] = stats
                if _UNAVAILABLE not in stats.values():  # one such event of each node will do
                    del paths[event.metadata_id]
    return [
        node
        for path in sorted(by_path, key=lambda path: path.count("::"), reverse=True)
        if (node := _traced_node(path, by_path[path]))
    ]


def _stats(event: Any, names: Any) -> dict[str, Any]:
    values = {}
    for stat in event.stats:
        kind = stat.WhichOneof("value")
        value = getattr(stat, kind)
        values[names[stat.metadata_id].name] = names[value].name if kind == "ref_value" else value
    return values


def _traced_node(path: str, stats: dict[str, Any]) -> AutotuneNode | None:
    if "buffer_limit" in stats:  # what a trace calls the buffer of a prefetch
        stats = {**stats, "buffer_size": stats["buffer_limit"]}
    return _node(path.rpartition("::")[2], stats, tuned=stats.get("autotune") == "true")


def _node(name: str, values: dict[str, Any], *, tuned: bool) -> AutotuneNode | None:
    """Returns a node, or None if it has nothing to set."""
    settings = {
        key: int(values[key])
        for key in ("parallelism", "buffer_size", "cycle_length")
        if isinstance(values.get(key), int | float) and values[key] > 0
    }
    return AutotuneNode(name=name, tuned=tuned, **settings) if settings else None


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Keeps the profiler's remarks, which TensorFlow writes in C++, off the terminal."""
    try:
        terminal = os.dup(2)
    except OSError:  # there is no terminal to keep clean
        yield
        return
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(terminal, 2)
        os.close(terminal)
