"""What can be said of a `tf.distribute` strategy."""

import zlib
from typing import Any

import tensorflow as tf


def name(strategy: tf.distribute.Strategy) -> str:
    """Returns the name that users know it by."""
    if isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return "MultiWorkerMirroredStrategy"  # the class's own name is another
    return type(strategy).__name__


def of_replicas(strategy: tf.distribute.Strategy, values: Any, *, reduction: str) -> Any:
    """Returns what the replicas of this worker have come to, as one.

    Args:
        strategy: in which `strategy.run` was called.
        values: nested structure of what it returned.
        reduction: `MEAN` or `SUM`; of what is one already, nothing is made.
    """

    def reduced(value: Any) -> tf.Tensor:
        parts = strategy.experimental_local_results(value)
        return parts[0] if len(parts) == 1 else strategy.reduce(reduction, value, axis=None)

    return tf.nest.map_structure(reduced, values)


def agree(strategy: tf.distribute.Strategy, what: str) -> bool:
    """Returns whether all workers say the same; waits for them.

    Args:
        strategy: in which every worker has to ask at the same point.
        what: this one says.
    """

    @tf.function(autograph=False)
    def all_said() -> tf.Tensor:
        own = tf.constant([zlib.crc32(what.encode())], tf.int64)
        return strategy.gather(strategy.run(lambda: own), axis=0)

    return len(set(all_said().numpy().tolist())) == 1


def worker_count(strategy: tf.distribute.Strategy) -> int:
    """Returns how many processes train together, this one included."""
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return 1
    cluster = strategy.cluster_resolver.cluster_spec()
    return sum(cluster.num_tasks(job) for job in cluster.jobs if job in ("chief", "worker")) or 1
