"""Small things about `tf.data` that more than one floor needs."""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

# Datasets that only hand on what they get.
_ORDERLY = ("_PrefetchDataset", "_OptionsDataset")


def without_autotune(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Returns the dataset with autotune off, for what is fixed or short-lived anyway.

    On TF 2.16 autotune's thread can hold up the end of an iterator for as long as that ran.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)


def mapped(
    dataset: tf.data.Dataset, function: Callable[..., Any], **options: Any
) -> tf.data.Dataset:
    """Returns `dataset.map(function)`, traced in half the time.

    Args:
        dataset: of anything.
        function: has no Python `if`s and loops over tensors, for which `map` would look, call by
            call; thousands of features make tens of thousands of calls.
        **options: of `map`.
    """
    return dataset.map(tf.autograph.experimental.do_not_convert(function), **options)


def shuffled_once(
    records: tf.data.Dataset, buffer_size: int, *, seed: tf.Tensor
) -> tf.data.Dataset:
    """Returns `records.shuffle(buffer_size, seed)`, whose iterators can be saved anywhere.

    `Dataset.shuffle` makes a generator of seeds, for each new iterator to have another one;
    inside of a function, such as that of a `flat_map`, no checkpoint can save that.

    Args:
        records: strings.
        buffer_size: as of `Dataset.shuffle`.
        seed: two numbers, int64, shape [2].
    """
    variant = tf.raw_ops.ShuffleDataset(
        input_dataset=tf.data.experimental.to_variant(records),
        buffer_size=buffer_size,
        seed=seed[0],
        seed2=seed[1],
        output_types=[tf.string],
        output_shapes=[[]],
        reshuffle_each_iteration=False,
    )
    return tf.data.experimental.from_variant(variant, records.element_spec)


def row_count(batch: Any) -> tf.Tensor:
    """Returns the number of rows of a batch, by its first tensor that is no scalar; int64 scalar.

    Args:
        batch: nested structure of dense, ragged or sparse tensors, or None.

    Raises:
        ValueError: there is no such tensor.
    """
    for value in tf.nest.flatten(batch):
        if isinstance(value, tf.RaggedTensor):
            return value.nrows(out_type=tf.int64)
        if value is not None and value.shape.rank != 0:
            return tf.shape(value, out_type=tf.int64)[0]  # of a sparse tensor, its dense shape
    raise ValueError("a batch of nothing but scalars has no rows")


def operations(data: Any) -> set[str]:
    """Returns the names of the operations in a dataset's graph, e.g. `ParallelMapDatasetV2`.

    Args:
        data: the `x` of a `fit`; what is no dataset, or cannot be written down, has none.
    """
    if not isinstance(data, tf.data.Dataset):
        return set()
    try:
        graph = tf.compat.v1.GraphDef.FromString(data._as_serialized_graph().numpy())
    except (tf.errors.OpError, AttributeError, ValueError):
        return set()
    functions = (node for function in graph.library.function for node in function.node_def)
    return {node.op for node in (*graph.node, *functions)}


def reshuffle_count(dataset: tf.data.Dataset) -> int:
    """Returns how many shuffles, of those that a dataset was made of, draw seeds for each pass."""
    return sum(
        bool(getattr(each, "_reshuffle_each_iteration", False)) for each in _lineage(dataset)
    )


def batch_size(dataset: tf.data.Dataset) -> int | None:
    """Returns the size that the last `batch` of a dataset was given; None if there is none."""
    sizes = (getattr(each, "_batch_size", None) for each in _lineage(dataset))
    return next((int(size) for size in sizes if size is not None), None)


@dataclasses.dataclass(frozen=True)
class Ancestor:
    """One of the datasets that a dataset was made of.

    Attributes:
        name: of its class, e.g. `_MapDataset`.
        sizes: of its batches and buffers, and how often it repeats.
        functions: of the user, that it calls.
    """

    name: str
    sizes: list[int]
    functions: list[Callable[..., Any]]


def ancestors(dataset: tf.data.Dataset) -> list[Ancestor]:
    """Returns what decides which elements a dataset has and in what order, the last one first.

    Not how early or on how many threads they are made; nor what files or tables hold.
    """
    found = []
    for each in _lineage(dataset):
        if type(each).__name__ in _ORDERLY:
            continue
        sizes = [getattr(each, name, None) for name in ("_batch_size", "_buffer_size", "_count")]
        wrapped: list[Any] = (getattr(each, "_functions", None) or list)()
        functions = [function._func for function in wrapped if hasattr(function, "_func")]
        name = type(each).__name__.replace("Parallel", "")
        found.append(Ancestor(name, [int(n) for n in sizes if n is not None], functions))
    return found


def caches_in_files(dataset: tf.data.Dataset) -> bool:
    """Returns whether a dataset writes a cache into files."""
    names = (getattr(each, "_filename", None) for each in _lineage(dataset))
    return any(name is not None and bool(name.numpy()) for name in names)


def _lineage(dataset: tf.data.Dataset) -> Iterator[tf.data.Dataset]:
    """Yields a dataset and what it was made of, the nearest first."""
    to_see, seen = [dataset], set()
    while to_see:
        each = to_see.pop(0)
        if id(each) not in seen:
            seen.add(id(each))
            yield each
            to_see += each._inputs()
