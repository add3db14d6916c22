"""Iterators over the training data without what only several devices need."""

import contextlib
from collections.abc import Iterator
from unittest import mock

import tensorflow as tf

from tfx_perf.unawaited import unawaited


@contextlib.contextmanager
def direct_iterators(strategy: tf.distribute.Strategy) -> Iterator[None]:
    """Has Keras make the iterators that it would make without a strategy, and not await their end.

    With one replica, distributing a dataset changes nothing but the kind of iterator: one
    that hands batches out to devices, which takes longer than small batches take to train on
    (200 microseconds each), and whose state cannot be saved.

    Args:
        strategy: of the model; nothing is changed if it has several replicas.
    """
    if strategy.num_replicas_in_sync > 1:
        yield
        return
    with mock.patch.object(
        strategy,
        "experimental_distribute_dataset",
        lambda dataset, options=None: unawaited(dataset),
    ):
        yield
