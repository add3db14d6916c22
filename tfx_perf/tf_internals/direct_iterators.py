"""A `fit`'s iterators over its training data; of one device, without what only several need."""

import contextlib
import weakref
from collections.abc import Callable, Iterator
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

    def over(self, dataset: Any) -> Any:
        """Returns the dataset, with iterators that are known.

        Args:
            dataset: a dataset, or what a strategy has made of one for its replicas.
        """
        if isinstance(dataset, tf.data.Dataset):
            self.dataset = _Known(dataset, self)
        else:
            dataset.__class__ = _known(type(dataset), self)
            self.dataset = dataset
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


def _known(kind: type, iterators: FitIterators) -> type:
    """Returns the class with iterators that are known; Python looks `__iter__` up there alone."""

    class Known(kind):
        def __iter__(self) -> Any:
            iterator = super().__iter__()
            iterators.note(iterator)
            return iterator

    return Known


@contextlib.contextmanager
def direct_iterators(
    strategy: tf.distribute.Strategy,
    iterators: FitIterators | None = None,
    *,
    applies: Callable[[], bool] = lambda: True,
) -> Iterator[None]:
    """Has Keras make the iterators that it would make without a strategy, and not await their end.

    With one replica, distributing a dataset changes nothing but the kind of iterator: one
    that hands batches out to devices, which takes longer than small batches take to train on
    (200 microseconds each), and whose state cannot be saved.

    Args:
        strategy: of the model; if it has several replicas, it makes the iterators as ever.
        iterators: learns of the first dataset that is distributed meanwhile, which is `fit`'s
            training data, and of its iterators.
        applies: asked for each dataset; False leaves it to the strategy.
    """
    has_replicas = strategy.num_replicas_in_sync > 1

    def noted(own: Callable[..., Any]) -> Callable[..., Any]:
        def distribute(dataset: tf.data.Dataset, options: Any = None) -> Any:
            if not applies():
                return own(dataset, options)
            found = own(dataset, options) if has_replicas else unawaited(dataset)
            if iterators is None or iterators.dataset is not None:
                return found
            return iterators.over(found)

        return distribute

    # On the instance: the class and other strategies stay what they are.
    with interception.replacing(strategy, "experimental_distribute_dataset", noted):
        yield
