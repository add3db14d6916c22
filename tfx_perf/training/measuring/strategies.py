"""What can be said of a `tf.distribute` strategy."""

import itertools
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfx_perf import workers
from tfx_perf.tf_internals import clusters

ONE_DEVICE = "one_device"
"""The name of no strategy, as it is in the settings."""

_OUTSIDE_OF_SCOPES = "_DefaultDistributionStrategy"
_COMPUTING = "chief", "worker", "ps"  # jobs of a cluster


def name(strategy: tf.distribute.Strategy) -> str:
    """Returns the name that users know it by."""
    if isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return "MultiWorkerMirroredStrategy"  # the class's own name is another
    if isinstance(strategy, tf.distribute.ParameterServerStrategy):
        return "ParameterServerStrategy"  # likewise
    found = type(strategy).__name__
    return ONE_DEVICE if found == _OUTSIDE_OF_SCOPES else found


def counts(strategy: tf.distribute.Strategy) -> dict[str, Any]:
    """Returns how many replicas, processes and machines train together, as records have them."""
    servers = servers_of(strategy)
    return {
        "replica_count": strategy.num_replicas_in_sync,
        "worker_count": servers.worker_count if servers else worker_count(strategy),
        "host_count": host_count(strategy),
        **({"parameter_server_count": servers.server_count} if servers else {}),
    }


def environment(strategy: tf.distribute.Strategy) -> dict[str, str]:
    """Returns what figures depend on beside `devices.describe`.

    Counts of one are left out, but of parameter servers, of which one is more than none.
    """
    told = {key: str(count) for key, count in counts(strategy).items() if count != 1}
    if servers := servers_of(strategy):
        told["parameter_server_count"] = str(servers.server_count)
    return {"strategy": name(strategy), **told}


def in_words(strategy: tf.distribute.Strategy) -> str:
    """Returns its name for a sentence."""
    found = name(strategy)
    return "no strategy" if found == ONE_DEVICE else found


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


def replica_in_words(strategy: tf.distribute.Strategy, index: int) -> str:
    """Returns how people know a replica: by its worker, if that has no other.

    Args:
        strategy: whose replica it is.
        index: among all replicas, from 0.
    """
    count = worker_count(strategy)
    if count == 1:
        return f"replica {index}"
    of_each = strategy.num_replicas_in_sync // count
    worker = f"worker {index // of_each}"
    return worker if of_each == 1 else f"replica {index}, of {worker}"


def host_count(strategy: tf.distribute.Strategy | None) -> int:
    """Returns on how many machines processes train together, by their addresses."""
    if servers_of(strategy):
        cluster = clusters.cluster_of(strategy)
    elif strategy is not None and worker_count(strategy) > 1:
        cluster = strategy.cluster_resolver.cluster_spec().as_dict()
    else:
        return 1
    addresses = itertools.chain.from_iterable(cluster.get(job, ()) for job in _COMPUTING)
    return len({address.rpartition(":")[0] for address in addresses})


def servers_of(strategy: tf.distribute.Strategy | None) -> workers.ParameterServers | None:
    """Returns what serves this process; None if the strategy has no parameter servers."""
    if not isinstance(strategy, tf.distribute.ParameterServerStrategy):
        return None
    cluster = clusters.cluster_of(strategy)
    return workers.ParameterServers(len(cluster["worker"]), len(cluster["ps"]))
