"""What can be said of a `tf.distribute` strategy."""

import zlib

import tensorflow as tf


def name(strategy: tf.distribute.Strategy) -> str:
    """Returns the name that users know it by."""
    if isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return "MultiWorkerMirroredStrategy"  # the class's own name is another
    return type(strategy).__name__


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
