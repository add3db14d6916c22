"""What a dataset was made of, and its graph."""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from tfx_perf.tf_internals.array_dataset import ArrayDataset

# Datasets that only hand on what they get.
_ORDERLY = ("_PrefetchDataset", "_OptionsDataset")


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


def reshuffle_count(dataset: tf.data.Dataset) -> int:
    """Returns how many shuffles, of those that a dataset was made of, draw seeds for each pass."""
    # None, which TensorFlow takes for True, is kept as it is by newer ones.
    return sum(
        getattr(each, "_reshuffle_each_iteration", False) is not False
        for each in lineage(dataset)
    )


def batch_size(dataset: tf.data.Dataset) -> int | None:
    """Returns the size that the last `batch` of a dataset was given; None if there is none."""
    sizes = (getattr(each, "_batch_size", None) for each in lineage(dataset))
    return next((int(size) for size in sizes if size is not None), None)


def copied(variant: tf.Tensor, dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Returns a copy that knows the batch size; of what else it was made, nothing is known.

    Args:
        variant: holds the copy, as `DatasetFromGraph` returns it.
        dataset: what was copied.
    """
    copy = tf.data.experimental.from_variant(variant, dataset.element_spec)
    copy._batch_size = batch_size(dataset)
    return copy


def caches_in_files(dataset: tf.data.Dataset) -> bool:
    """Returns whether a dataset writes a cache into files."""
    names = (getattr(each, "_filename", None) for each in lineage(dataset))
    return any(name is not None and bool(name.numpy()) for name in names)


@dataclasses.dataclass(frozen=True)
class Ancestor:
    """One of the datasets that a dataset was made of.

    Attributes:
        name: of its class, e.g. `_MapDataset`; of arrays also their content.
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
    found: list[Ancestor] = []
    for each in lineage(dataset):
        if type(each).__name__ in _ORDERLY:
            continue
        sizes = [getattr(each, name, None) for name in ("_batch_size", "_buffer_size", "_count")]
        wrapped: list[Any] = (getattr(each, "_functions", None) or list)()
        functions = [function._func for function in wrapped if hasattr(function, "_func")]
        name = type(each).__name__.replace("Parallel", "")
        if isinstance(each, ArrayDataset):
            return [*found, Ancestor(f"arrays {each.content}", [each.batch_size], [])]
        found.append(Ancestor(name, [int(n) for n in sizes if n is not None], functions))
    return found
