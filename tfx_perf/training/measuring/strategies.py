"""What can be said of a `tf.distribute` strategy."""

import tensorflow as tf


def name(strategy: tf.distribute.Strategy) -> str:
    """Returns the name that users know it by."""
    if isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return "MultiWorkerMirroredStrategy"  # the class's own name is another
    return type(strategy).__name__


def agreed(strategy: tf.distribute.Strategy, value: int) -> bool:
    """Returns whether all replicas of all workers have the same value; waits for them.

    Args:
        strategy: in which every worker has to ask at the same point.
        value: less than some thousand.
    """

    @tf.function
    def sums() -> list[tf.Tensor]:
        own = tf.constant([value, value**2], tf.float64)  # exact for any number of replicas
        return strategy.reduce("SUM", strategy.run(lambda: own), axis=None)

    total, squares = map(float, sums())
    return strategy.num_replicas_in_sync * squares == total**2


def worker_count(strategy: tf.distribute.Strategy) -> int:
    """Returns how many processes train together, this one included."""
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return 1
    cluster = strategy.cluster_resolver.cluster_spec()
    return sum(cluster.num_tasks(job) for job in cluster.jobs if job in ("chief", "worker")) or 1
