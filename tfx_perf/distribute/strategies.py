"""Creates the `tf.distribute` strategies for a user's code, and their scope around it."""

import contextlib
import os
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfx_perf.config.distribution import DistributionSettings
from tfx_perf.core import errors, interception, workers
from tfx_perf.core.interception import FitCall
from tfx_perf.tf_internals import clusters, devices


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


class StrategyScope:
    """A context in which models are built under the strategy of the settings.

    TensorFlow refuses nested scopes, so this one is left for good if the code enters another.
    """

    def __init__(self, settings: DistributionSettings) -> None:
        """Creates no strategy yet."""
        self._settings = settings
        self._strategy: tf.distribute.Strategy | None = None
        self._is_open = False
        self._undo = contextlib.ExitStack()

    def __enter__(self) -> "StrategyScope":
        """Creates the strategy; UserError if this machine does not support it."""
        self._strategy = _create(self._settings)
        self._open()
        if isinstance(self._strategy, tf.distribute.ParameterServerStrategy):
            self._undo.enter_context(clusters.made_once(self._strategy))
        self._undo.enter_context(
            interception.replacing(tf.distribute.Strategy, "scope", self._leaving_scope)
        )
        return self

    def __exit__(self, *_: object) -> None:
        """Leaves the scope, unless it was left before."""
        self._undo.close()
        if self._is_open:
            self._leave()

    def outside(self, handler: Callable[[FitCall], Any]) -> Callable[[FitCall], Any]:
        """Returns a handler of `fit` that runs outside of the scope, as after a `with` block."""

        def handle(call: FitCall) -> Any:
            if not self._is_open:
                return handler(call)
            self._leave()
            try:
                return handler(call)
            finally:
                self._open()

        return handle

    def _leaving_scope(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def scope(strategy: tf.distribute.Strategy) -> Any:
            if self._is_open and strategy is not self._strategy:
                self._leave()
            return original(strategy)

        return scope

    def _open(self) -> None:
        tf.distribute.experimental_set_strategy(self._strategy)
        self._is_open = True

    def _leave(self) -> None:
        tf.distribute.experimental_set_strategy(None)
        self._is_open = False
