"""Measures the network between workers by a few reductions."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tfx_perf.training.measuring.network import Network
from tfx_perf.training.team import Team

_REPEATS = 5
_LEAST_BYTES, _MOST_BYTES = 2**20, 2**22  # of a reduction that is timed
_CHAINED = 10  # reductions of nothing
_NANO = 1e9


def measured(strategy: tf.distribute.Strategy, *, size_bytes: int) -> Network | None:
    """Returns what reductions of nothing and of some bytes tell, as the slowest worker sees them.

    Every worker has to call it.

    Args:
        strategy: of several workers.
        size_bytes: what a step reduces; larger reductions take no more than a few of its steps.

    Returns:
        None if the noise of their timing is larger than what they tell.
    """
    team = Team(strategy)

    def reducing(count: int, *, chained: int = 1) -> Any:
        """Returns what reduces so many numbers, several times in turn."""

        @tf.function(autograph=False)
        def reduced() -> Any:
            def reduce() -> tf.Tensor:
                context = tf.distribute.get_replica_context()
                values = tf.zeros(count, tf.float32)
                for _ in range(chained):
                    values = context.all_reduce(tf.distribute.ReduceOp.SUM, values)
                return values[0]

            return strategy.experimental_local_results(strategy.run(reduce))[0]

        return reduced

    count = min(max(size_bytes, _LEAST_BYTES), _MOST_BYTES) // 4
    # The call itself takes time, too, the same for all of them.
    calls = reducing(1), reducing(1, chained=1 + _CHAINED), reducing(count)
    rounds = [[_seconds(call) for call in calls] for _ in range(_REPEATS + 1)]
    own = np.array(rounds[1:])  # the first ones are traced
    said = team.gathered([int(each * _NANO) for each in own.flat]).max(axis=0) / _NANO
    once, chain, some = said.reshape(own.shape).T.tolist()
    return Network.fitted(
        once=once,
        chain=chain,
        some=some,
        chained=_CHAINED,
        size_bytes=4 * count,
        workers=team.count,
    )


def _seconds(call: Callable[[], tf.Tensor]) -> float:
    """Returns what a call takes."""
    began = time.perf_counter()
    call().numpy()
    return time.perf_counter() - began
