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
}
# They call back into Python, where nobody knows what may be read but once.
_PYTHON = {"PyFunc", "PyFuncStateless", "EagerPyFunc"}


def independent(
    dataset: tf.data.Dataset,
    *,
    without: frozenset[str] = frozenset(),
    calls_python: bool = False,
) -> tf.data.Dataset | None:
    """Returns a dataset of the same elements, in an order of its own where they are shuffled.

    With a seed that is the order in which the user's data came at first.

    Args:
        dataset: of the user.
        without: operations to leave out, such as `ShuffleDatasetV3`; each must take the dataset
            that it changes as its first input.
        calls_python: whether it may call Python functions, which both then share.

    Returns:
        None where it may not, or cannot be written down (2 GB of data in memory).
    """
    graph = ancestry.graph_of(dataset)
    if graph is None or not calls_python and any(node.op in _PYTHON for node in _nodes(graph)):
        return None
    _separate(graph, without)
    try:
        variant = tf.raw_ops.DatasetFromGraph(graph_def=graph.SerializeToString())
    except (tf.errors.OpError, ValueError):
        return None
    return tf.data.experimental.from_variant(variant, dataset.element_spec)


UNORDERED = frozenset(
    {"ShuffleDataset", "ShuffleDatasetV2", "ShuffleDatasetV3", "CacheDataset", "CacheDatasetV2"}
)
"""What to leave out where any elements will do: then none are read but those that are taken."""


def _nodes(graph: tf.compat.v1.GraphDef) -> Iterator[tf.compat.v1.NodeDef]:
    yield from graph.node
    for function in graph.library.function:
        yield from function.node_def


def _separate(graph: tf.compat.v1.GraphDef, without: frozenset[str]) -> None:
    """Gives every operation a state of its own and leaves some out."""
    instead = {node.name: node.input[0] for node in graph.node if node.op in without}
    made = []
    for node in graph.node:
        for index, name in enumerate(node.input):
            while name in instead:
                name = instead[name]  # noqa: PLW2901
            node.input[index] = name
        if node.op in _STATES:
            index, maker = _STATES[node.op]
            made.append(tf.compat.v1.NodeDef(name=f"tfx_perf/{node.name}", op=maker))
            node.input[index] = made[-1].name
    graph.node.extend(made)
