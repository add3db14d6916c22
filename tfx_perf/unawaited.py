"""Iterators over a dataset whose end nobody waits for."""

import contextlib
import sys
import threading

import tensorflow as tf
from tensorflow.python.data.ops import dataset_ops, iterator_ops

_STAGE = "tfx_perf_unawaited_iterators"


def unawaited(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Returns the dataset, with iterators that end in the background.

    On TF 2.16 the end of an iterator waits for autotune's thread. That one misses the signal to
    stop if it is quick to look (`Model::OptimizeLoop` in TensorFlow's `core/framework/model.cc`),
    and then sleeps for as long as the iterator has been in use, at most a minute. At the end of
    an epoch or of `fit` that time is lost.

    Args:
        dataset: whose iterators are made outside of graphs.
    """
    return dataset if dataset.options().autotune.enabled is False else _Dataset(dataset)


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
        with tf.init_scope(), tf.device("CPU"):  # whatever is being traced when this is collected
            tf.raw_ops.Stage(values=[self._iterator_resource], shared_name=_STAGE)
        del self._iterator_resource
        with contextlib.suppress(RuntimeError):  # no thread starts while the interpreter ends
            threading.Thread(target=_end_one, name="end of an iterator", daemon=True).start()


@tf.function
def _end_one() -> None:
    """In a graph, whose operations let go of their results without Python."""
    with tf.device("CPU"):
        tf.raw_ops.Unstage(dtypes=[tf.resource], shared_name=_STAGE)
