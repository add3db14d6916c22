"""The `tf.distribute` strategies that are made for a user's code, by the name in the settings."""

import os

import tensorflow as tf

from tfx_perf import errors
from tfx_perf.distribute.parameter_server import strategy as parameter_servers
from tfx_perf.tf_internals import devices


def made(
    name: str, *, collective_timeout_seconds: float | None = None
) -> tf.distribute.Strategy:
    """Returns a strategy.

    Args:
        name: as `DistributionSettings.made_strategy` has it.
        collective_timeout_seconds: of the workers of `multi_worker`; see the setting.

    Raises:
        UserError: this machine has not what it takes.
    """
    if name == "mirrored":
        return tf.distribute.MirroredStrategy(devices.computing())
    if name == "model_parallel":
        # A model that no device can hold is built in the host's memory; `fit` places it.
        return tf.distribute.OneDeviceStrategy("/device:CPU:0")
    if name == "multi_worker":
        return tf.distribute.MultiWorkerMirroredStrategy(
            communication_options=tf.distribute.experimental.CommunicationOptions(
                timeout_seconds=collective_timeout_seconds
            )
        )
    if name == "parameter_server":
        return parameter_servers.make()
    if name == "tpu":
        return _tpu()
    # TensorFlow's own, outside of all scopes. Under `OneDeviceStrategy`, as under any other,
    # Keras never chooses XLA.
    return tf.distribute.get_strategy()


def _tpu() -> tf.distribute.Strategy:
    try:
        # As its argument, `local` is the machine's own; as a variable, it would be looked up.
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(os.environ.get("TPU_NAME"))
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
    except (ImportError, OSError, RuntimeError, ValueError, tf.errors.OpError) as error:
        reason = errors.in_one_line(error)
        raise errors.UserError(
            f"Expected a TPU. Received: distribution.strategy=tpu, but there is none ({reason}). "
            "Name it in the variable TPU_NAME, which is local on a machine that has one, or use "
            "another strategy."
        ) from error
    return tf.distribute.TPUStrategy(resolver)
