"""Settings that do nothing in a training: they are said, so that nobody relies on them."""

from collections.abc import Iterator

import tensorflow as tf

from tfx_perf import workers
from tfx_perf.settings.distribution import CollectiveSettings, DistributionSettings
from tfx_perf.settings.section import Section
from tfx_perf.settings.training import TrainingSettings
from tfx_perf.tf_internals import communication_options
from tfx_perf.training.measuring import strategies

_UNDER = {
    "mirrored": tf.distribute.MirroredStrategy,
    "model_parallel": tf.distribute.OneDeviceStrategy,
    "multi_worker": tf.distribute.MultiWorkerMirroredStrategy,
    "parameter_server": tf.distribute.ParameterServerStrategy,
    "tpu": tf.distribute.TPUStrategy,
}
_OF_REPLICAS = {"reduction_dtype"}
_OF_SERVERS = {"heartbeat_timeout_seconds"}
_OF_WORKERS = {"cpu_binding", "restarts", "start_timeout_seconds"}


def of_distribution(
    settings: DistributionSettings, strategy: tf.distribute.Strategy
) -> tuple[str, ...]:
    """Returns a sentence, without its full stop, for each setting that has no effect.

    Args:
        settings: what the user wants, and what is the default.
        strategy: that the model was built under.
    """
    return tuple(
        f"{setting} has no effect: {reason}" for setting, reason in _found(settings, strategy)
    )


def of_training(
    settings: TrainingSettings, strategy: tf.distribute.Strategy
) -> tuple[str, ...]:
    """Returns the same for the section `training`.

    Args:
        settings: see `of_distribution`, as for the other.
        strategy: likewise.
    """
    has_others = strategies.worker_count(strategy) > 1 or strategies.servers_of(strategy)
    if settings.precision != "auto" or not has_others:
        return ()
    return (
        "training.precision=auto has no effect: these workers try no other precision; set the "
        "one that you want, e.g. mixed_bfloat16",
    )


def _found(
    settings: DistributionSettings, strategy: tf.distribute.Strategy
) -> Iterator[tuple[str, str]]:
    wanted = settings.made_strategy
    if wanted is not None and not _is_built_under(wanted, strategy):
        key = next(key for key in ("strategy", "workers", "job") if getattr(settings, key))
        value = "" if key == "job" else f"={getattr(settings, key)}"
        under = f"the code has built the model under {strategies.in_words(strategy)}"
        if settings.workers_here > workers.this().count:  # nobody has started the others
            under += (
                f"; tfx-perf launch --workers {settings.workers_here} starts a script that builds "
                "it under tf.distribute.MultiWorkerMirroredStrategy"
            )
        yield f"distribution.{key}{value}", under
    elif settings.strategy == "mirrored" and strategy.num_replicas_in_sync == 1:
        several = "tf.config.set_logical_device_configuration makes several of its CPU"
        yield "distribution.strategy=mirrored", f"the machine has one device; {several}"
    if settings.workers == "auto":
        yield "distribution.workers=auto", "only OptimizedTrainer starts workers"
    servers = strategies.servers_of(strategy)
    among = _OF_REPLICAS | ({"sharding_invariant_random"} if servers else set())
    of_replicas = _changed(settings, DistributionSettings(), among=among)
    collective = _changed(settings.collective, CollectiveSettings(), within="collective.")
    if strategy.num_replicas_in_sync == 1:
        alone = "one replica trains, so that there are no others to sum with"
        if servers:
            alone = "beside parameter servers each worker sums and draws by itself"
        yield from ((setting, alone) for setting in (*of_replicas, *collective))
    elif not communication_options.count(strategy):
        own = "the strategy has cross_device_ops that do not take it"
        yield from ((setting, own) for setting in collective)
    if settings.servers is None:
        of_servers = _changed(settings, DistributionSettings(), among=_OF_SERVERS)
        yield from ((setting, "there are no parameter servers") for setting in of_servers)
    if not settings.has_others_train:
        alone = "one process trains"
        of_workers = _changed(settings, DistributionSettings(), among=_OF_WORKERS)
        yield from ((setting, alone) for setting in of_workers)


def _is_built_under(name: str, strategy: tf.distribute.Strategy) -> bool:
    if name == strategies.ONE_DEVICE:
        return strategies.name(strategy) in (name, "OneDeviceStrategy")
    return isinstance(strategy, _UNDER[name])


def _changed(
    given: Section, default: Section, *, among: set[str] | None = None, within: str = ""
) -> list[str]:
    """Returns those that are not as by default, with their values."""
    before = default.model_dump()
    return [
        f"distribution.{within}{name}={value}"
        for name, value in given.model_dump(include=among).items()
        if value != before[name]
    ]
