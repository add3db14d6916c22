"""A `fit`'s iterators over its training data, without what only several devices need."""

import contextlib
import weakref
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from tensorflow.python.data.ops import dataset_ops

from tfx_perf import interception
from tfx_perf.tf_internals.unawaited import unawaited


class FitIterators:
    """Knows the iterators over the training data of one `fit`, in the order they were made.

    That order counts: data that are shuffled anew in every pass draw seeds for each.

    Attributes:
        dataset: what they go over; None before `fit` has made it of its arguments.
    """

    def __init__(self) -> None:
        """Knows none yet."""
        self.dataset: Any = None
        self.count = 0
        self._numbers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    def number_of(self, iterator: Any) -> int | None:
        """Returns which one an iterator is, counted from 0; None if it is of other data."""
        return self._numbers.get(iterator)

    def over(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        """Returns the dataset, with iterators that are known."""
        self.dataset = _Known(dataset, self)
        return self.dataset

    def note(self, iterator: Any) -> None:
        """Counts an iterator that has been made."""
        self._numbers[iterator] = self.count
        self.count += 1


class _Known(dataset_ops.UnaryUnchangedStructureDataset):
    def __init__(self, dataset: tf.data.Dataset, iterators: FitIterators) -> None:
        super().__init__(dataset, dataset._variant_tensor)
        self._dataset, self._iterators = dataset, iterators

    def __iter__(self) -> Any:
        iterator = iter(self._dataset)
        self._iterators.note(iterator)
        return iterator


@contextlib.contextmanager
def direct_iterators(
    strategy: tf.distribute.Strategy, iterators: FitIterators | None = None
) -> Iterator[None]:
    """Has Keras make the iterators that it would make without a strategy, and not await their end.

    With one replica, distributing a dataset changes nothing but the kind of iterator: one
    that hands batches out to devices, which takes longer than small batches take to train on
    (200 microseconds each), and whose state cannot be saved.

    Args:
        strategy: of the model; nothing is changed if it has several replicas.
        iterators: learns of the first dataset that is distributed meanwhile, which is `fit`'s
            training data, and of its iterators.
    """
    if strategy.num_replicas_in_sync > 1:
        yield
        return

    def direct(dataset: tf.data.Dataset, options: Any = None) -> tf.data.Dataset:
        dataset = unawaited(dataset)
        if iterators is None or iterators.dataset is not None:
            return dataset
        return iterators.over(dataset)

    # On the instance: the class and other strategies stay what they are.
    with interception.replacing(strategy, "experimental_distribute_dataset", lambda _: direct):
        yield
