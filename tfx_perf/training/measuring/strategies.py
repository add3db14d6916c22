"""What can be said of a `tf.distribute` strategy."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfx_perf import workers
from tfx_perf.tf_internals import clusters


def name(strategy: tf.distribute.Strategy) -> str:
    """Returns the name that users know it by."""
    if isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return "MultiWorkerMirroredStrategy"  # the class's own name is another
    if isinstance(strategy, tf.distribute.ParameterServerStrategy):
        return "ParameterServerStrategy"  # likewise
    return type(strategy).__name__


def in_words(strategy: tf.distribute.Strategy) -> str:
    """Returns its name for a sentence."""
    found = name(strategy)
    return "no strategy" if found == "_DefaultDistributionStrategy" else found


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


def to_replicas(strategy: tf.distribute.Strategy, parts: Sequence[Any]) -> Any:
    """Returns what `strategy.run` gives to each replica of this worker.

    Args:
        strategy: whose replicas.
        parts: a nested structure of eager tensors for each.
    """
    if len(parts) == 1:
        return parts[0]
    return strategy.experimental_distribute_values_from_function(
        lambda context: parts[context.replica_id_in_sync_group]
    )


def of_workers(strategy: tf.distribute.Strategy, values: Any, *, reduction: str) -> Any:
    """Returns what all workers have come to, as one; they wait for each other.

    Where a worker has several replicas, `of_replicas` has done it.

    Args:
        strategy: see `of_replicas`, as for the others.
        values: what `of_replicas` returned.
        reduction: likewise.
    """
    workers = worker_count(strategy)
    if workers == 1 or strategy.num_replicas_in_sync > workers:
        return values
    return tf.nest.map_structure(
        lambda value: strategy.reduce(reduction, value, axis=None), values
    )


def worker_count(strategy: tf.distribute.Strategy | None) -> int:
    """Returns how many processes train together, this one included."""
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return 1
    cluster = strategy.cluster_resolver.cluster_spec()
    return sum(cluster.num_tasks(job) for job in cluster.jobs if job in ("chief", "worker")) or 1


def host_count(strategy: tf.distribute.Strategy | None) -> int:
    """Returns on how many machines processes train together, by their addresses."""
    if strategy is None or worker_count(strategy) == 1:
        return 1
    cluster = strategy.cluster_resolver.cluster_spec().as_dict()
    addresses = (*cluster.get("chief", ()), *cluster.get("worker", ()))
    return len({address.rpartition(":")[0] for address in addresses})


def servers_of(strategy: tf.distribute.Strategy | None) -> workers.ParameterServers | None:
    """Returns what serves this process; None if the strategy has no parameter servers."""
    if not isinstance(strategy, tf.distribute.ParameterServerStrategy):
        return None
    cluster = clusters.cluster_of(strategy)
    return workers.ParameterServers(len(cluster["worker"]), len(cluster["ps"]))
