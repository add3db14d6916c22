"""Properties of a `tf.distribute` strategy."""

import itertools
from typing import Any

import tensorflow as tf

from tfx_perf.config import PerfConfig
from tfx_perf.core import workers
from tfx_perf.tf_internals import clusters

ONE_DEVICE = "one_device"
"""The settings' name for training without a strategy."""

_OUTSIDE_OF_SCOPES = "_DefaultDistributionStrategy"
_COMPUTING = "chief", "worker", "ps"  # jobs of a cluster


def name(strategy: tf.distribute.Strategy) -> str:
    """Returns a strategy's public name; `ONE_DEVICE` for a model built outside of strategies."""
    if isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return "MultiWorkerMirroredStrategy"  # the class has another name
    if isinstance(strategy, tf.distribute.ParameterServerStrategy):
        return "ParameterServerStrategy"  # likewise
    class_name = type(strategy).__name__
    return ONE_DEVICE if class_name == _OUTSIDE_OF_SCOPES else class_name


def counts(strategy: tf.distribute.Strategy) -> dict[str, Any]:
    """Returns the numbers of replicas, processes and machines that train together, for records."""
    servers = servers_of(strategy)
    return {
        "replica_count": strategy.num_replicas_in_sync,
        "worker_count": servers.worker_count if servers else worker_count(strategy),
        "host_count": host_count(strategy),
        **({"parameter_server_count": servers.server_count} if servers else {}),
    }


def environment(strategy: tf.distribute.Strategy) -> dict[str, str]:
    """Returns facts that figures depend on besides `devices.describe`, without counts of one."""
    told = {key: str(count) for key, count in counts(strategy).items() if count != 1}
    if servers := servers_of(strategy):
        told["parameter_server_count"] = str(servers.server_count)
    return {"strategy": name(strategy), **told}


def describe(strategy: tf.distribute.Strategy) -> str:
    """Returns a strategy's name for a sentence."""
    strategy_name = name(strategy)
    return "no strategy" if strategy_name == ONE_DEVICE else strategy_name


def of_replicas(strategy: tf.distribute.Strategy, values: Any, *, reduction: str) -> Any:
    """Reduces this worker's results of `strategy.run`, if several, to one, by `MEAN` or `SUM`."""

    def reduced(value: Any) -> tf.Tensor:
        parts = strategy.experimental_local_results(value)
        return parts[0] if len(parts) == 1 else strategy.reduce(reduction, value, axis=None)

    return tf.nest.map_structure(reduced, values)


def of_workers(strategy: tf.distribute.Strategy, values: Any, *, reduction: str) -> Any:
    """Reduces the results of `of_replicas` over all workers, which wait for each other."""
    workers = worker_count(strategy)
    if workers == 1 or strategy.num_replicas_in_sync > workers:
        return values
    return tf.nest.map_structure(lambda value: strategy.reduce(reduction, value, axis=None), values)


def worker_count(strategy: tf.distribute.Strategy | None) -> int:
    """Returns how many processes train together, this one included."""
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return 1
    cluster = strategy.cluster_resolver.cluster_spec()
    return sum(cluster.num_tasks(job) for job in cluster.jobs if job in ("chief", "worker")) or 1


def describe_replica(strategy: tf.distribute.Strategy, index: int) -> str:
    """Returns a replica's name, or its worker's if that has no other replica."""
    count = worker_count(strategy)
    if count == 1:
        return f"replica {index}"
    of_each = strategy.num_replicas_in_sync // count
    worker = f"worker {index // of_each}"
    return worker if of_each == 1 else f"replica {index}, of {worker}"


def host_count(strategy: tf.distribute.Strategy | None) -> int:
    """Returns the number of machines whose processes train together, by their addresses."""
    if servers_of(strategy):
        cluster = clusters.cluster_of(strategy)
    elif strategy is not None and worker_count(strategy) > 1:
        cluster = strategy.cluster_resolver.cluster_spec().as_dict()
    else:
        return 1
    addresses = itertools.chain.from_iterable(cluster.get(job, ()) for job in _COMPUTING)
    return len({address.rpartition(":")[0] for address in addresses})


def servers_of(strategy: tf.distribute.Strategy | None) -> workers.ParameterServers | None:
    """Returns this process' parameter servers; None if the strategy has none."""
    if not isinstance(strategy, tf.distribute.ParameterServerStrategy):
        return None
    cluster = clusters.cluster_of(strategy)
    return workers.ParameterServers(len(cluster["worker"]), len(cluster["ps"]))


_MADE = {
    "mirrored": tf.distribute.MirroredStrategy,
    "model_parallel": tf.distribute.OneDeviceStrategy,
    "multi_worker": tf.distribute.MultiWorkerMirroredStrategy,
    "parameter_server": tf.distribute.ParameterServerStrategy,
    "tpu": tf.distribute.TPUStrategy,
}


def idle_settings(config: PerfConfig, strategy: tf.distribute.Strategy) -> tuple[str, ...]:
    """Returns a sentence, without its period, for each setting without effect in a training."""
    reasons, settings = {}, config.distribution
    wanted, here = settings.effective_strategy, settings.workers_here
    under = f"the code has built the model under {describe(strategy)}"
    if wanted is not None and not _is_built_under(wanted, strategy):
        key = next(key for key in ("strategy", "workers", "job") if getattr(settings, key))
        if here > workers.this().count:  # the others were not started
            under += (
                f"; tfx-perf launch --workers {here} starts a script that builds it under "
                "tf.distribute.MultiWorkerMirroredStrategy"
            )
        reasons[key] = under
    elif wanted == "mirrored" and strategy.num_replicas_in_sync == 1:
        several = "tf.config.set_logical_device_configuration makes several of its CPU"
        reasons["strategy"] = f"the machine has one device; {several}"
    if strategy.num_replicas_in_sync == 1:
        alone = "only one replica trains, so there is nothing to reduce"
        of_replicas = ["reduction_dtype"]
        if servers_of(strategy):
            alone = "with parameter servers each worker reduces and draws random numbers by itself"
            of_replicas.append("sharding_invariant_random")
        reasons.update((name, alone) for name in of_replicas if getattr(settings, name))
    default = type(settings)()
    of_several = {}
    if not settings.servers:
        of_several["heartbeat_timeout_seconds"] = "there are no parameter servers"
    if not settings.delegates_training:
        of_several |= dict.fromkeys(("restarts", "start_timeout_seconds"), "one process trains")
    reasons |= {
        key: reason
        for key, reason in of_several.items()
        if getattr(settings, key) != getattr(default, key)
    }
    sentences = [
        f"distribution.{key}{'' if key == 'job' else f'={getattr(settings, key)}'} has no effect: "
        f"{reason}"
        for key, reason in reasons.items()
    ]
    if config.training.precision == "auto" and (worker_count(strategy) > 1 or servers_of(strategy)):
        sentences.append(
            "training.precision=auto has no effect: these workers try no other precision; set the "
            "one that you want, e.g. mixed_bfloat16"
        )
    return tuple(sentences)


def _is_built_under(wanted: str, strategy: tf.distribute.Strategy) -> bool:
    if wanted == ONE_DEVICE:
        return name(strategy) in (wanted, "OneDeviceStrategy")
    return isinstance(strategy, _MADE[wanted])
