"""Reductions over replicas as the settings ask for them."""

import contextlib

import tensorflow as tf

from tfx_perf import errors
from tfx_perf.settings.distribution import CollectiveSettings
from tfx_perf.tf_internals import communication_options


def check(settings: CollectiveSettings, *, has_gpus: bool) -> None:
    """Checks that a machine can reduce as the settings say.

    Args:
        settings: what counts.
        has_gpus: whether the machine has some.

    Raises:
        UserError: NCCL is asked for where there is no GPU.
    """
    if settings.implementation == "nccl" and not has_gpus:
        raise errors.UserError(
            "Expected GPUs, to reduce with NCCL. Received: "
            "distribution.collective.implementation='nccl' on a machine without one. Set it to "
            "ring or auto."
        )


def options(
    strategy: tf.distribute.Strategy, settings: CollectiveSettings
) -> contextlib.AbstractContextManager[None]:
    """Returns a context in which a strategy reduces as the settings say.

    Args:
        strategy: that the model was built under; where it has one replica, nothing is reduced.
        settings: what counts.

    Raises:
        UserError: NCCL is asked for where there is no GPU.
    """
    reduces = isinstance(
        strategy, (tf.distribute.MirroredStrategy, tf.distribute.MultiWorkerMirroredStrategy)
    )
    if not reduces or strategy.num_replicas_in_sync == 1:
        return contextlib.nullcontext()
    check(settings, has_gpus=bool(tf.config.list_physical_devices("GPU")))
    return communication_options.replaced(
        strategy,
        tf.distribute.experimental.CommunicationOptions(
            bytes_per_pack=settings.bytes_per_pack,
            timeout_seconds=settings.timeout_seconds,
            implementation=settings.implementation.upper(),
        ),
    )
