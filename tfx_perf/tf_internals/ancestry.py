"""The datasets that a dataset was made of, and copies that share nothing with it."""

import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.data.ops import dataset_ops

from tfx_perf.core import cache_key
from tfx_perf.tf_internals import graphs, random_state

# Datasets that only pass their elements on.
_ORDERLY = ("_PrefetchDataset", "_OptionsDataset")
# Operations with state, the index of its input, and the operation that makes a new state.
_STATES = {
    "ShuffleDatasetV2": (2, "DummySeedGenerator"),
    "ShuffleDatasetV3": (4, "DummySeedGenerator"),
    "ShuffleAndRepeatDatasetV2": (5, "DummySeedGenerator"),
    "CacheDatasetV2": (2, "DummyMemoryCache"),
    "RandomDatasetV2": (2, "DummySeedGenerator"),
}
# Operations that pass their elements on, and write them to files.
_WRITERS = {"SnapshotDatasetV2", "SaveDatasetV2"}
CACHES = frozenset({"CacheDataset", "CacheDatasetV2"})
"""Operations whose second input is the file of a cache."""
# Their readers take elements from each other; whether Python functions do is not known.
_SERVICES = {"DataServiceDatasetV2", "DataServiceDatasetV3", "DataServiceDatasetV4"}
UNORDERED = CACHES | {"ShuffleDataset", "ShuffleDatasetV2", "ShuffleDatasetV3"}
"""Operations to leave out where any elements will do, to read only those that are taken."""
_COMPARED_BYTES = 2**26  # of one array, in a twentieth of a second
_UNKNOWN_BYTES = 2**16  # of a part of an element, if its size is not known
_MOST_ROWS = 2**40  # of data, if their length is not known


class ArrayDataset(dataset_ops.UnaryUnchangedStructureDataset):
    """Keras' dataset of arrays; no pass changes the next, and its graph copies all arrays."""

    def __init__(self, dataset: tf.data.Dataset, *, arrays: Any, batch_size: int) -> None:
        super().__init__(dataset, dataset._variant_tensor)
        self._arrays, self._batch_size = arrays, batch_size

    @property
    def batch_size(self) -> int:
        """Rows of a batch; the last one of an epoch may be smaller."""
        return self._batch_size

    @property
    def content(self) -> str:
        """16 hexadecimal digits for the arrays' values; for large ones, of evenly spread rows."""
        return _digest(self._arrays)


def _digest(arrays: Any) -> str:
    parts = tf.nest.flatten(arrays, expand_composites=True)
    return cache_key.digest(b"".join(_content(part) for part in parts))


def _content(part: Any) -> bytes:
    if hasattr(part, "tocoo"):  # a sparse matrix of SciPy
        coordinates = part.tocoo()
        return b"".join(map(_content, (coordinates.data, coordinates.row, coordinates.col)))
    shape = tuple(getattr(part, "shape", ()))
    about = f"{type(part).__name__} {getattr(part, 'dtype', '')} {shape}".encode()
    if getattr(part, "dtype", None) == tf.variant:  # of sparse and ragged tensors
        return about
    if not shape:
        return about + repr(part).encode()
    bytes_per_row = len(np.asarray(part[:1]).tobytes())
    stride = -(-max(1, bytes_per_row * shape[0]) // _COMPARED_BYTES)
    rows = np.asarray(part[::stride])
    return about + (repr(rows.tolist()).encode() if rows.dtype.hasobject else rows.tobytes())


def graph_of(dataset: tf.data.Dataset) -> tf.compat.v1.GraphDef | None:
    """Returns a dataset's graph; None if it would hold arrays or cannot be written (2 GB)."""
    if is_of_arrays(dataset):
        return None
    try:
        return tf.compat.v1.GraphDef.FromString(dataset._as_serialized_graph().numpy())
    except (tf.errors.OpError, AttributeError, ValueError):
        return None


def inputs(dataset: tf.data.Dataset) -> list[tf.data.Dataset]:
    """Returns the datasets that a dataset takes its elements from."""
    return dataset._inputs()


def lineage(dataset: tf.data.Dataset) -> Iterator[tf.data.Dataset]:
    """Yields a dataset and what it was made of, the nearest first."""
    to_see, seen = [dataset], set()
    while to_see:
        each = to_see.pop(0)
        if id(each) not in seen:
            seen.add(id(each))
            yield each
            to_see += inputs(each)


def is_of_arrays(dataset: tf.data.Dataset) -> bool:
    """Returns whether a dataset reads arrays, as Keras does."""
    return any(isinstance(each, ArrayDataset) for each in lineage(dataset))


def random_operation(dataset: tf.data.Dataset) -> str | None:
    """Returns the type of an operation that draws numbers in a dataset's functions, if any does."""
    functions = (each.function for one in lineage(dataset) for each in one._functions())
    types: set[str] = set().union(*map(graphs.operation_types, functions))
    return next(filter(graphs.hides_draws, sorted(types)), None)


def reshuffle_count(dataset: tf.data.Dataset) -> int:
    """Returns how many of a dataset's shuffles draw new seeds for each pass."""
    # Newer versions of TensorFlow keep None, which means True.
    shuffles = filter(_is_shuffle, _holders(dataset))
    return sum(each._reshuffle_each_iteration is not False for each in shuffles)


def is_unseeded(dataset: tf.data.Dataset) -> bool:
    """Returns whether a shuffle, also Keras' own of arrays, gives another order if read again."""
    shuffles = (each for each in _holders(dataset) if hasattr(each, "_seed"))
    if any(int(each._seed) == int(each._seed2) == 0 for each in shuffles):
        return True
    return is_of_arrays(dataset) and random_state.global_seed() is None


def state_before_shuffles(dataset: tf.data.Dataset) -> str | None:
    """Describes state before a shuffle, as of a stateful map, that no iterator saves.

    TensorFlow's own check does not look at a shuffle's input. None if there is no such state.
    """
    for each in filter(_is_shuffle, lineage(dataset)):
        (shuffled,) = inputs(each)
        if any(one._functions() for one in lineage(shuffled)):
            try:
                tf.raw_ops.DatasetToGraphV2(
                    input_dataset=shuffled._variant_tensor,
                    external_state_policy=tf.data.experimental.ExternalStatePolicy.FAIL.value,
                )
            except tf.errors.FailedPreconditionError as error:
                return gist(error)
            except tf.errors.OpError:
                pass  # it holds more than a graph can: 2 GB
    return None


def gist(error: tf.errors.OpError) -> str:
    """Returns the cause from "{{function_node ...}} EagerPyFunc is stateful. [Op:...]"."""
    sentence = error.message.rpartition("}} ")[2].partition(".")[0]
    return str(sentence.rpartition(": ")[2] or error.message)


def _is_shuffle(dataset: tf.data.Dataset) -> bool:
    return hasattr(dataset, "_reshuffle_each_iteration")


def held_bytes(dataset: tf.data.Dataset) -> int:
    """Returns about how many bytes buffers and caches in memory hold at most."""
    held = 0
    for each in _holders(dataset):
        length, size = int(each.cardinality()), int(getattr(each, "_buffer_size", _MOST_ROWS))
        rows = min(size, length if length >= 0 else _MOST_ROWS)
        for part in tf.nest.flatten(each.element_spec):
            is_dense = isinstance(part, tf.TensorSpec) and part.dtype != tf.string
            values = part.shape.num_elements() if is_dense else None
            part_bytes = _UNKNOWN_BYTES if values is None else values * part.dtype.size
            held += max(0, rows) * part_bytes
    return held


def _holders(dataset: tf.data.Dataset) -> list[tf.data.Dataset]:
    """Returns the buffers and caches that a dataset, or its original, was made of.

    Readers of `_filenames` are left out: their buffer is one of bytes.
    """
    holders = [held for each in lineage(dataset) for held in getattr(each, "_copied", [each])]
    holders = [each for each in holders if not hasattr(each, "_filenames")]
    return [each for each in holders if hasattr(each, "_buffer_size") or hasattr(each, "_filename")]


def batch_size(dataset: tf.data.Dataset) -> int | None:
    """Returns the size that the last `batch` of a dataset was given; None if there is none."""
    sizes = (getattr(each, "_batch_size", None) for each in lineage(dataset))
    return next((int(size) for size in sizes if size is not None), None)


def caches_in_files(dataset: tf.data.Dataset) -> bool:
    """Returns whether a dataset writes a cache into files."""
    names = (getattr(each, "_filename", None) for each in lineage(dataset))
    return any(name is not None and bool(name.numpy()) for name in names)


@dataclasses.dataclass(frozen=True)
class Ancestor:
    """A dataset that another was made of: class and content, sizes and the user's functions."""

    name: str
    sizes: list[int]
    functions: list[Callable[..., Any]]


def ancestors(dataset: tf.data.Dataset) -> list[Ancestor]:
    """Returns the datasets that decide on the elements and their order, the last one first."""
    decisive: list[Ancestor] = []
    for each in lineage(dataset):
        if type(each).__name__ in _ORDERLY:
            continue
        sizes = [getattr(each, name, None) for name in ("_batch_size", "_buffer_size", "_count")]
        wrapped: list[Any] = (getattr(each, "_functions", None) or list)()
        functions = [function._func for function in wrapped if hasattr(function, "_func")]
        name = type(each).__name__.replace("Parallel", "")
        if isinstance(each, ArrayDataset):
            return [*decisive, Ancestor(f"arrays {each.content}", [each.batch_size], [])]
        if tensors := getattr(each, "_tensors", None):
            name += f" of {_digest(tensors)}"
        decisive.append(Ancestor(name, [int(n) for n in sizes if n is not None], functions))
    return decisive


def is_stream(dataset: tf.data.Dataset) -> bool:
    """Returns whether `from_generator` reads one Python iterator, which gives each element once."""
    for function in (each for ancestor in ancestors(dataset) for each in ancestor.functions):
        state = _closure(_closure(function).get("get_iterator_id_fn")).get("generator_state")
        if state is not None:
            first, second = state._generator(), state._generator()
            return first is second and iter(first) is first
    return False


def _closure(function: Any) -> Mapping[str, Any]:
    return inspect.getclosurevars(function).nonlocals if inspect.isfunction(function) else {}


def independent(
    dataset: tf.data.Dataset, *, without: frozenset[str] = frozenset(), may_share: bool = False
) -> tf.data.Dataset | None:
    """Returns a dataset of the same elements, in an order of its own where they are shuffled.

    Iterating over a dataset changes it: a seeded shuffle draws other seeds for the next pass, a
    cache fills. So the one that will be trained on must not be read. With a seed the order is
    that of the user's first pass. Operations in `without` (`ShuffleDatasetV3`, say) are left out;
    their first input must be the dataset that they change.

    Returns:
        None if it cannot be serialized (2 GB of data in memory), or if, unless it `may_share`, it
            calls Python functions or reads from a tf.data service. A dataset of arrays itself.
    """
    if is_of_arrays(dataset):
        return dataset
    graph = graph_of(dataset)
    if graph is None:
        return None
    types = {node.op for node in nodes(graph)}
    if not may_share and (types & _SERVICES or any(map(graphs.is_python, types))):
        return None
    _separate(graph, without | _WRITERS)
    try:
        variant = tf.raw_ops.DatasetFromGraph(graph_def=graph.SerializeToString())
    except (tf.errors.OpError, ValueError):
        return None
    copy = tf.data.experimental.from_variant(variant, dataset.element_spec)
    copy._batch_size, copy._copied = batch_size(dataset), _holders(dataset)
    return copy


def _is_complete(name: str, graph: tf.compat.v1.GraphDef) -> bool:
    """Returns whether the cache in the file that a node names was written to its end."""
    node = next(each for each in graph.node if each.name == name)
    file = tf.make_ndarray(node.attr["value"].tensor).item().decode() if node.op == "Const" else ""
    return bool(file) and tf.io.gfile.exists(f"{file}.index")


def nodes(graph: tf.compat.v1.GraphDef) -> Iterator[tf.compat.v1.NodeDef]:
    """Yields the operations of a graph and of its functions."""
    yield from graph.node
    for function in graph.library.function:
        yield from function.node_def


def _separate(graph: tf.compat.v1.GraphDef, without: frozenset[str]) -> None:
    """Gives every operation with state a new one, and leaves some operations out."""
    instead = {node.name: node.input[0] for node in graph.node if node.op in without}
    made = []
    for node in graph.node:
        if node.op in CACHES and not _is_complete(node.input[1], graph):
            # Two iterators that write one file are an error: this one caches in memory.
            nowhere = tf.constant("")
            made.append(tf.compat.v1.NodeDef(name=f"tfx_perf/file_of_{node.name}", op="Const"))
            made[-1].attr["dtype"].type = nowhere.dtype.as_datatype_enum
            made[-1].attr["value"].tensor.CopyFrom(tf.make_tensor_proto(nowhere))
            node.input[1] = made[-1].name
        for index, name in enumerate(node.input):
            while name in instead:
                name = instead[name]  # noqa: PLW2901
            node.input[index] = name
        if node.op in _STATES:
            index, maker = _STATES[node.op]
            made.append(tf.compat.v1.NodeDef(name=f"tfx_perf/{node.name}", op=maker))
            node.input[index] = made[-1].name
    graph.node.extend(made)
