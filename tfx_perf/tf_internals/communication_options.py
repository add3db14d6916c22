"""How a strategy reduces over its replicas, whoever has made it."""

import contextlib
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from tfx_perf import interception


@contextlib.contextmanager
def replaced(
    strategy: tf.distribute.Strategy, options: tf.distribute.experimental.CommunicationOptions
) -> Iterator[None]:
    """Has everything that a strategy reduces or gathers have other options in the context.

    Args:
        strategy: a `MirroredStrategy` or `MultiWorkerMirroredStrategy`.
        options: those that have their default leave the strategy's own.
    """

    def merged(own: Any) -> Any:
        return own.merge(options)

    extended = strategy.extended
    with contextlib.ExitStack() as undo:
        undo.enter_context(interception.replacing(extended, "_communication_options", merged))
        for name in ("_cross_device_ops", "_host_cross_device_ops"):
            # What gathers over workers asks nobody else.
            for launcher in getattr(getattr(extended, name, None), "_launchers", ()):
                undo.enter_context(interception.replacing(launcher, "_options", merged))
        yield
