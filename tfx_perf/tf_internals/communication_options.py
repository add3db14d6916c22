"""How a strategy reduces over its replicas, whoever has made it."""

import contextlib
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from tfx_perf import interception


def count(strategy: tf.distribute.Strategy) -> bool:
    """Returns whether options change how a strategy reduces.

    They do not where its user has given it `cross_device_ops`, or it is over CPUs and GPUs.

    Args:
        strategy: of several replicas.
    """
    return any(_launchers(strategy))


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
        for launcher in _launchers(strategy):  # what gathers over workers asks nobody else
            undo.enter_context(interception.replacing(launcher, "_options", merged))
        yield


def _launchers(strategy: tf.distribute.Strategy) -> Iterator[Any]:
    for name in ("_cross_device_ops", "_host_cross_device_ops"):
        yield from getattr(getattr(strategy.extended, name, None), "_launchers", ())
