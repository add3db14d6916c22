"""What can be said of a `tf.distribute` strategy."""

import tensorflow as tf


def name(strategy: tf.distribute.Strategy) -> str:
    """Returns the name that users know it by."""
    if isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return "MultiWorkerMirroredStrategy"  # the class's own name is another
    return type(strategy).__name__


def worker_count(strategy: tf.distribute.Strategy) -> int:
    """Returns how many processes train together, this one included."""
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return 1
    cluster = strategy.cluster_resolver.cluster_spec()
    return sum(cluster.num_tasks(job) for job in cluster.jobs if job in ("chief", "worker")) or 1
