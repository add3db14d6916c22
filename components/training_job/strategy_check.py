"""Whether the workers really train together, and what stands in their way."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from tfx_perf import errors
from tfx_perf.interception import FitCall
from tfx_perf.settings.distribution import DistributionSettings
from tfx_perf.training.measuring import strategies

_Fit = Callable[[FitCall], Any]


@contextlib.contextmanager
def refusing_mirrored(expected: DistributionSettings) -> Iterator[None]:
    """Refuses to make a `MirroredStrategy` while the context lasts.

    It would take the other workers' devices for its own, and end the process.

    Args:
        expected: who trains together.
    """
    made = tf.distribute.MirroredStrategy.__init__

    def refuse(self: Any, *_: Any, **__: Any) -> None:
        raise errors.UserError(_expected(expected, "MirroredStrategy"))

    tf.distribute.MirroredStrategy.__init__ = refuse
    try:
        yield
    finally:
        tf.distribute.MirroredStrategy.__init__ = made


def checked(fit: _Fit, expected: DistributionSettings) -> _Fit:
    """Returns `fit` with checks of the model.

    What it returns raises a `UserError` if the model was not built for all the workers.

    Args:
        fit: what trains.
        expected: who trains together.
    """

    def carry_out(call: FitCall) -> Any:
        strategy = call.model.distribute_strategy
        servers = expected.servers
        is_built_for_all = (
            strategies.servers_of(strategy) == servers
            if servers
            else strategies.worker_count(strategy) == expected.worker_count
        )
        if not is_built_for_all:
            raise errors.UserError(_expected(expected, strategies.in_words(strategy)))
        return fit(call)

    return carry_out


def _expected(expected: DistributionSettings, received: str) -> str:
    count = expected.worker_count
    if expected.servers:
        return (
            "Expected run_fn to build its model under tf.distribute.ParameterServerStrategy, for "
            f"{count} workers. Received: {received}, with which the coordinator would train alone. "
            "Leave out the strategy: run_fn is run in the scope of the right one."
        )
    return (
        "Expected run_fn to build its model under tf.distribute.MultiWorkerMirroredStrategy, for "
        f"{count} workers. Received: {received}, with which each would train alone. Leave out the "
        "strategy: run_fn is run in the scope of the right one."
    )
