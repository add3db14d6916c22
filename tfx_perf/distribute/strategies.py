"""Creates the `tf.distribute` strategies for a user's code, and their scope around it."""

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from tfx_perf.config.distribution import DistributionSettings
from tfx_perf.core import errors, interception, workers
from tfx_perf.core.interception import FitCall
from tfx_perf.tf_internals import clusters, devices

Handler = Callable[[FitCall], Any]


def _create(settings: DistributionSettings) -> tf.distribute.Strategy:
    name = settings.effective_strategy
    if name == "mirrored":
        return tf.distribute.MirroredStrategy(devices.computing())
    if name == "model_parallel":
        # A model that no device can hold is built in the host's memory; `fit` places it.
        return tf.distribute.OneDeviceStrategy("/device:CPU:0")
    if name == "multi_worker":
        return tf.distribute.MultiWorkerMirroredStrategy(
            communication_options=tf.distribute.experimental.CommunicationOptions(
                timeout_seconds=settings.collective_timeout_seconds
            )
        )
    if name == "parameter_server":
        return _parameter_servers()
    return _tpu()


def _tpu() -> tf.distribute.Strategy:
    try:
        # As an argument, `local` is the machine's own TPU; as a variable, it would be looked up.
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(os.environ.get("TPU_NAME"))
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
    except (ImportError, OSError, RuntimeError, ValueError, tf.errors.OpError) as error:
        reason = errors.in_one_line(error)
        raise errors.UserError(
            f"Expected a TPU. Received: distribution.strategy=tpu, but none was found ({reason}). "
            "Set the variable TPU_NAME (local on a machine that has one), or use another strategy."
        ) from error
    return tf.distribute.TPUStrategy(resolver)


def _parameter_servers() -> tf.distribute.Strategy:
    """Returns a strategy that divides variables of over 256 KiB among `TF_CONFIG`'s servers."""
    servers = workers.these_servers()
    if servers is None:
        raise errors.UserError(
            "Expected parameter servers in TF_CONFIG. Received: none. Set "
            "distribution.parameter_servers, which starts them."
        )
    partitioner = tf.distribute.experimental.partitioners.MinSizePartitioner(
        max_shards=servers.server_count
    )
    return tf.distribute.ParameterServerStrategy(
        tf.distribute.cluster_resolver.TFConfigClusterResolver(), variable_partitioner=partitioner
    )


@contextlib.contextmanager
def scope(settings: DistributionSettings) -> Iterator[Callable[[Handler], Handler]]:
    """Has code in the context build its models under the strategy of the settings.

    Yields a decorator that runs a handler of `fit` outside of the scope, as after a `with` block.
    TensorFlow refuses nested scopes, so this one is left for good if the code enters another.
    UserError: this machine does not support the strategy.
    """
    strategy, is_open = _create(settings), False

    def set_open(opens: bool) -> None:
        nonlocal is_open
        tf.distribute.experimental_set_strategy(strategy if opens else None)
        is_open = opens

    def outside(handler: Handler) -> Handler:
        def handle(call: FitCall) -> Any:
            if not is_open:
                return handler(call)
            set_open(False)
            try:
                return handler(call)
            finally:
                set_open(True)

        return handle

    def leaving(original: Callable[..., Any]) -> Callable[..., Any]:
        def scope_of(other: tf.distribute.Strategy) -> Any:
            if is_open and other is not strategy:
                set_open(False)
            return original(other)

        return scope_of

    has_servers = isinstance(strategy, tf.distribute.ParameterServerStrategy)
    set_open(True)
    try:
        with (
            clusters.made_once(strategy) if has_servers else contextlib.nullcontext(),
            interception.replacing(tf.distribute.Strategy, "scope", leaving),
        ):
            yield outside
    finally:
        if is_open:
            set_open(False)
