"""Iterators over a dataset whose end nobody waits for."""

import contextlib
import itertools
import sys
import threading

import tensorflow as tf
from tensorflow.python.data.ops import dataset_ops, iterator_ops

from tfx_perf.tf_internals import ancestry

# Staging areas: one for each iterator that is ending, since clearing one locks it until the end.
# They are used again, because TensorFlow keeps each for good.
_unused_areas: list[str] = []
_area_numbers = itertools.count()


def unawaited(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Returns the dataset, with iterators that end in the background.

    On TF 2.16 the end of an iterator waits for autotune's thread. That one misses the signal to
    stop if it is quick to look (`Model::OptimizeLoop` in TensorFlow's `core/framework/model.cc`),
    and then sleeps for as long as the iterator has been in use, at most a minute. At the end of
    an epoch or of `fit` that time is lost. Where an iterator writes a cache into a file, it is
    waited for: until its end no other one may write there.

    Args:
        dataset: whose iterators are made outside of graphs.
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
        """Hands the resource over, so that Python's reference to it is not the last one.

        With that one Python would wait for the end itself, and keep every thread waiting.
        """
        if sys.is_finalizing() or "_iterator_resource" not in self.__dict__:
            return
        try:
            area = _unused_areas.pop()
        except IndexError:
            area = f"tfx_perf_unawaited_iterator_{next(_area_numbers)}"
        with tf.init_scope(), tf.device("CPU"):  # whatever is being traced when this is collected
            tf.raw_ops.Stage(values=[self._iterator_resource], shared_name=area)
        del self._iterator_resource
        with contextlib.suppress(RuntimeError):  # no thread starts while the interpreter ends
            threading.Thread(
                target=_end, args=[area], name="end of an iterator", daemon=True
            ).start()


def _end(area: str) -> None:
    """Lets go of an iterator in this thread.

    In a graph a thread of TensorFlow's pool would wait instead. There are as many as cores, and
    with all of them waiting nothing else would run.
    """
    with tf.device("CPU"):
        tf.raw_ops.StageClear(dtypes=[tf.resource], shared_name=area)
    _unused_areas.append(area)
