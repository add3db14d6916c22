"""The `tf.distribute` strategies that are made for a user's code, by the name in the settings."""

import os
from collections.abc import Callable, Mapping

import tensorflow as tf

from tfx_perf import errors
from tfx_perf.training.parameter_servers import strategy as parameter_servers


def devices() -> list[str]:
    """Returns the names of this machine's GPUs, or of its CPUs where there is none.

    TensorFlow's devices can be configured no more after that.
    """
    found = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
    return [device.name for device in found]


def no_tpu(reason: str) -> errors.UserError:
    """Returns the error of the strategy `tpu` where there is none.

    Args:
        reason: how that is known.
    """
    return errors.UserError(
        f"Expected a TPU. Received: distribution.strategy=tpu, but there is none ({reason}). Name "
        "it in the variable TPU_NAME, which is local on a machine that has one, or use another "
        "strategy."
    )


def _mirrored() -> tf.distribute.Strategy:
    return tf.distribute.MirroredStrategy(devices())


def _tpu() -> tf.distribute.Strategy:
    try:
        # As its argument, `local` is the machine's own; as a variable, it would be looked up.
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(os.environ.get("TPU_NAME"))
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
    except (ImportError, OSError, RuntimeError, ValueError, tf.errors.OpError) as error:
        raise no_tpu(errors.in_one_line(error)) from error
    return tf.distribute.TPUStrategy(resolver)


def _on_host() -> tf.distribute.Strategy:
    # A model that no device can hold is built in the host's memory; `fit` places it.
    return tf.distribute.OneDeviceStrategy("/device:CPU:0")


MAKERS: Mapping[str, Callable[[], tf.distribute.Strategy]] = {
    # TensorFlow's own, outside of all scopes. Under `OneDeviceStrategy`, as under any other,
    # Keras never chooses XLA.
    "one_device": tf.distribute.get_strategy,
    "mirrored": _mirrored,
    "model_parallel": _on_host,
    "multi_worker": tf.distribute.MultiWorkerMirroredStrategy,
    "parameter_server": parameter_servers.make,
    "tpu": _tpu,
}
"""What makes a strategy, by name.

Raises:
    UserError: this machine has not what it takes.
"""
