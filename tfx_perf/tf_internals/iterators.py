"""Iterators: their states, their numbers in a `fit`, and ends without waiting."""

import contextlib
import functools
import itertools
import sys
import threading
import weakref
from typing import Any

import tensorflow as tf
from tensorflow.python.data.ops import dataset_ops, iterator_ops

from tfx_perf.tf_internals import ancestry


def is_of_dataset(iterator: Any) -> bool:
    """Returns whether an iterator is a dataset's own; a strategy's has no single state."""
    return isinstance(iterator, iterator_ops.OwnedIterator)


def saved(iterator: Any, *, is_whole: bool = True) -> tf.Tensor:
    """Returns the state of a dataset's own iterator, shape [parts], of `tf.variant`.

    Raises FailedPreconditionError or UnimplementedError if a part of it cannot be saved. Not
    if `is_whole` is False: random operations then start over.
    """
    policies = tf.data.experimental.ExternalStatePolicy
    return tf.raw_ops.SerializeIterator(
        resource_handle=iterator._iterator_resource,
        external_state_policy=(policies.FAIL if is_whole else policies.IGNORE).value,
    )


def restore(iterator: Any, state: tf.Tensor) -> None:
    """Puts an iterator into a state of `saved`; OpError if it iterates over other data."""
    tf.raw_ops.DeserializeIterator(resource_handle=iterator._iterator_resource, serialized=state)


# Staging areas: one for each reader, and for each iterator that is ending, since clearing one locks
# it until the end. They are reused, because TensorFlow never frees one.
_unused_areas: list[str] = []
_area_numbers = itertools.count()


def _unused_area() -> str:
    try:
        return _unused_areas.pop()
    except IndexError:
        return f"tfx_perf_staging_area_{next(_area_numbers)}"


class StackedReader:
    """Takes several elements of an iterator at once, stacked, in one call from Python.

    With 18 tensors in an element, a call for each takes 130 µs, and stacking them 40; this takes
    30. One thread runs it all: TensorFlow's pool may have no other, and the data may need that.
    """

    def __init__(self, spec: Any) -> None:
        """Reads elements of dense tensors."""
        types = [part.dtype for part in tf.nest.flatten(spec)]
        shapes = [part.shape for part in tf.nest.flatten(spec)]
        self._name = _unused_area()
        self._area = {"shared_name": self._name, "dtypes": types}
        self._next = functools.partial(
            tf.raw_ops.IteratorGetNextSync, output_types=types, output_shapes=shapes
        )
        weakref.finalize(self, _unused_areas.append, self._name)
        self._function = tf.function(self._stacked, autograph=False)

    def read_singly(self, iterator: Any, count: int) -> tuple[list[Any], list[list[tf.Tensor]]]:
        """Returns nothing stacked, and the next elements, as `read` does, but traces nothing."""
        elements = []
        with contextlib.suppress(tf.errors.OutOfRangeError):
            for _ in range(count):
                elements.append(self._next(iterator=iterator._iterator_resource))
        return [], elements

    def read(self, iterator: Any, count: int) -> tuple[list[tf.Tensor], list[list[tf.Tensor]]]:
        """Returns the tensors of the next `count` elements stacked, and no elements.

        If the data end or shapes differ, it returns nothing stacked, and the elements themselves,
        of which there may be fewer. Each `count` is traced.
        """
        resource = iterator._iterator_resource
        one_thread = tf.experimental.function_executor_type("SINGLE_THREADED_EXECUTOR")
        try:
            with tf.device(resource.device), one_thread:
                return self._function(resource, count), []
        except tf.errors.OpError as error:
            with tf.device(resource.device):
                elements = self._staged()
            if len(elements) < count and not isinstance(error, tf.errors.OutOfRangeError):
                raise
            return [], elements

    def _stacked(self, resource: tf.Tensor, count: int) -> list[tf.Tensor]:
        """Stages elements first, so that an error loses none."""
        before = tf.raw_ops.StageClear(**self._area)  # of a call that was interrupted
        for _ in range(count):
            with tf.control_dependencies([before]):
                element = self._next(iterator=resource)
                before = tf.raw_ops.Stage(values=element, shared_name=self._name)
        with tf.control_dependencies([before]):
            elements = [tf.raw_ops.StagePeek(index=at, **self._area) for at in range(count)]
        stacked = [tf.stack(parts) for parts in zip(*elements, strict=True)]
        with tf.control_dependencies(stacked):
            tf.raw_ops.StageClear(**self._area)
        return stacked

    def _staged(self) -> list[list[tf.Tensor]]:
        count = int(tf.raw_ops.StageSize(**self._area))
        return [tf.raw_ops.Unstage(**self._area) for _ in range(count)]


def unawaited(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Returns the dataset, with iterators that end in the background.

    On TF 2.16 the end of an iterator waits for autotune's thread, which misses an early signal to
    stop (`Model::OptimizeLoop` in TensorFlow's `core/framework/model.cc`) and sleeps for as long as
    the iterator was in use, at most a minute. That time is lost at the end of an epoch or of `fit`.
    The end of an iterator that writes a cache file is awaited: no other may write it before.
    """
    has_quick_end = dataset.options().autotune.enabled is False
    return dataset if has_quick_end or ancestry.caches_in_files(dataset) else _Dataset(dataset)


class _Dataset(dataset_ops.UnaryUnchangedStructureDataset):
    def __init__(self, dataset: tf.data.Dataset) -> None:
        super().__init__(dataset, dataset._variant_tensor)

    def __iter__(self) -> "_Iterator":
        return _Iterator(self)


class _Iterator(iterator_ops.OwnedIterator):
    def __del__(self) -> None:
        """Hands the resource over: dropping its last reference would block all Python threads."""
        if sys.is_finalizing() or "_iterator_resource" not in self.__dict__:
            return
        area = _unused_area()
        with tf.init_scope(), tf.device("CPU"):  # whatever is being traced when this is collected
            tf.raw_ops.Stage(values=[self._iterator_resource], shared_name=area)
        del self._iterator_resource
        with contextlib.suppress(RuntimeError):  # no thread starts while the interpreter ends
            threading.Thread(
                target=_end, args=[area], name="end of an iterator", daemon=True
            ).start()


def _end(area: str) -> None:
    """Releases an iterator in this thread: waiting threads of TensorFlow's pool would block all."""
    with tf.device("CPU"):
        tf.raw_ops.StageClear(dtypes=[tf.resource], shared_name=area)
    _unused_areas.append(area)


class FitIterators:
    """The iterators over the data of one `fit`, in the order in which shuffles draw their seeds."""

    def __init__(self) -> None:
        self.dataset: Any = None
        self.count = 0
        self._numbers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    def number_of(self, iterator: Any) -> int | None:
        """Returns which one an iterator is, counted from 0; None if it is of other data."""
        try:
            return self._numbers.get(iterator)
        except TypeError:  # it cannot be in a weak dictionary
            return None

    def over(self, dataset: Any) -> Any:
        """Returns a dataset, also one distributed by a strategy, with counted iterators."""
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
    """Returns the class with counted iterators; Python looks `__iter__` up in the class alone."""

    class Known(kind):
        def __iter__(self) -> Any:
            iterator = super().__iter__()
            iterators.note(iterator)
            return iterator

    return Known
