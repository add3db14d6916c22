"""A dataset like the user's that shares nothing with it.

Iterating over a dataset changes it: a seeded shuffle draws other seeds for the next pass, a cache
fills. Whoever only wants to look must not do it on the one that will be trained on.
"""

from collections.abc import Iterator

import tensorflow as tf

from tfx_perf.tf_internals import ancestry

# Operations with a state of their own, the input where they get it, and what makes a new one.
_STATES = {
    "ShuffleDatasetV2": (2, "DummySeedGenerator"),
    "ShuffleDatasetV3": (4, "DummySeedGenerator"),
    "ShuffleAndRepeatDatasetV2": (5, "DummySeedGenerator"),
    "CacheDatasetV2": (2, "DummyMemoryCache"),
    "RandomDatasetV2": (2, "DummySeedGenerator"),
}
# They hand on what they get, and write it down.
_WRITERS = {"SnapshotDatasetV2", "SaveDatasetV2"}
# With the file as their second input.
_CACHES = {"CacheDataset", "CacheDatasetV2"}
# What may be read but once: Python functions, of which nobody knows, and a tf.data service, where
# one reader takes it from the others.
_SHARED = {
    *("PyFunc", "PyFuncStateless", "EagerPyFunc"),
    *("DataServiceDatasetV2", "DataServiceDatasetV3", "DataServiceDatasetV4"),
}


def independent(
    dataset: tf.data.Dataset,
    *,
    without: frozenset[str] = frozenset(),
    may_share: bool = False,
) -> tf.data.Dataset | None:
    """Returns a dataset of the same elements, in an order of its own where they are shuffled.

    With a seed that is the order in which the user's data came at first.

    Args:
        dataset: of the user.
        without: operations to leave out, such as `ShuffleDatasetV3`; each must take the dataset
            that it changes as its first input.
        may_share: whether it may call Python functions or read from a tf.data service, which both
            then share.

    Returns:
        None where it may not, or cannot be written down (2 GB of data in memory). Of arrays the
        dataset itself, since no pass over it changes the next.
    """
    if ancestry.is_of_arrays(dataset):
        return dataset
    graph = ancestry.graph_of(dataset)
    if graph is None or not may_share and any(node.op in _SHARED for node in _nodes(graph)):
        return None
    _separate(graph, without | _WRITERS)
    try:
        variant = tf.raw_ops.DatasetFromGraph(graph_def=graph.SerializeToString())
    except (tf.errors.OpError, ValueError):
        return None
    return ancestry.copied(variant, dataset)


UNORDERED = frozenset(
    {"ShuffleDataset", "ShuffleDatasetV2", "ShuffleDatasetV3", "CacheDataset", "CacheDatasetV2"}
)
"""What to leave out where any elements will do: then none are read but those that are taken."""


def _is_complete(name: str, graph: tf.compat.v1.GraphDef) -> bool:
    """Returns whether the cache in the file that a node names was written to its end."""
    node = next(each for each in graph.node if each.name == name)
    file = tf.make_ndarray(node.attr["value"].tensor).item().decode() if node.op == "Const" else ""
    return bool(file) and tf.io.gfile.exists(f"{file}.index")


def _nodes(graph: tf.compat.v1.GraphDef) -> Iterator[tf.compat.v1.NodeDef]:
    yield from graph.node
    for function in graph.library.function:
        yield from function.node_def


def _separate(graph: tf.compat.v1.GraphDef, without: frozenset[str]) -> None:
    """Gives every operation a state of its own and leaves some out."""
    instead = {node.name: node.input[0] for node in graph.node if node.op in without}
    made = []
    for node in graph.node:
        if node.op in _CACHES and not _is_complete(node.input[1], graph):
            # Two iterators that write one file are an error: this one keeps what it reads.
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
