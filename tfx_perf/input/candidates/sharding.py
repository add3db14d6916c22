"""How the workers of a `tf.distribute` strategy divide the examples among themselves."""

import dataclasses
from collections.abc import Callable, Sequence

import tensorflow as tf

from tfx_perf.tf_internals import datasets

# A strategy with several workers rewrites the dataset of each. With `DATA`, every worker would do
# all the work and throw most of it away, and all would have to shuffle alike; one extra iterator on
# one of them would break that silently.
POLICY = tf.data.experimental.AutoShardPolicy.FILE
_TICKETS = 1024  # workers that can be told apart


@dataclasses.dataclass(frozen=True)
class Worker:
    """This process among those that train together: its index, and their count (int64 scalars)."""

    index: tf.Tensor
    count: tf.Tensor

    def rows(self, count: int) -> tf.Tensor:
        """Returns this worker's row numbers below `count`: int64, every n-th."""
        return tf.range(self.index, count, self.count)

    def files(self, names: Sequence[str]) -> tf.Tensor:
        """Returns this worker's files (string vector); all if there are fewer than workers."""
        divider = self._only_if(self.count <= len(names))
        return tf.constant(list(names), tf.string)[divider.index :: divider.count]

    def records(self, records: tf.data.Dataset, names: Sequence[str]) -> tf.data.Dataset:
        """Returns this worker's records of one of its files: all, if no other worker reads it."""
        divider = self._only_if(self.count > len(names))
        return records.shard(divider.count, divider.index)

    def _only_if(self, divides: tf.Tensor) -> "Worker":
        return Worker(
            index=tf.where(divides, self.index, tf.zeros_like(self.index)),
            count=tf.where(divides, self.count, tf.ones_like(self.count)),
        )


def split(
    pipeline: Callable[[Worker], tf.data.Dataset], *, reads_files: bool
) -> tf.data.Dataset:
    """Returns the dataset that `pipeline` makes for the worker on which it runs.

    A strategy determines the worker when it distributes the dataset, long after it was built.
    TensorFlow's auto-sharding looks for slices, a `flat_map`, and any stages up to another
    `flat_map`, and gives every worker every n-th element that leaves the first of these
    (`RecursivelyHandleOp` in `tensorflow/core/grappler/optimizers/data/auto_shard.cc`). Here the
    elements are tickets, the first two of which tell a worker its number and the number of workers.
    If that rule changes, the rewrite fails. It divides a `flat_map` whose function reads files, so
    a `map` makes those datasets. It makes no others, or a checkpoint would hold all columns.

    No later stage may read files, as they would be divided too. State that must outlast an iterator
    (of a shuffle, or columns) has to be a dataset made outside of `pipeline`.
    """
    tickets = tf.data.Dataset.from_tensor_slices(tf.range(_TICKETS, dtype=tf.int64))
    ticket = tickets.flat_map(tf.data.Dataset.from_tensors).batch(2, drop_remainder=True).take(1)

    def made(first_two: tf.Tensor) -> tf.data.Dataset:
        first, second = tf.unstack(first_two)
        return pipeline(Worker(index=first, count=second - first))

    if reads_files:
        return datasets.mapped(ticket, made).flat_map(lambda dataset: dataset)
    return ticket.flat_map(tf.autograph.experimental.do_not_convert(made))
