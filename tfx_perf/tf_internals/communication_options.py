"""How a strategy reduces over its replicas, whoever has made it."""

import contextlib
from typing import Any

import tensorflow as tf

from tfx_perf import interception


def replaced(
    strategy: tf.distribute.Strategy, options: tf.distribute.experimental.CommunicationOptions
) -> contextlib.AbstractContextManager[None]:
    """Returns a context in which everything that a strategy reduces or gathers has other options.

    Args:
        strategy: a `MirroredStrategy` or `MultiWorkerMirroredStrategy`.
        options: those that have their default leave the strategy's own.
    """

    def merged(own: Any) -> Any:
        return own.merge(options)

    return interception.replacing(strategy.extended, "_communication_options", merged)
