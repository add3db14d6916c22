"""Measures the network between workers by a few reductions."""

import time
from typing import Any

import numpy as np
import tensorflow as tf

from tfx_perf.training.measuring.network import Network
from tfx_perf.training.team import Team

_REPEATS = 3
_LEAST_BYTES, _MOST_BYTES = 2**20, 2**22  # of a reduction that is timed
_CHAINED = 10  # reductions of nothing
_SHORTEST_SECONDS = 1e-6  # what may be told from nothing
_NANO = 1e9


def measured(strategy: tf.distribute.Strategy, *, size_bytes: int) -> Network:
    """Returns what reductions of nothing and of some bytes tell, as the slowest worker sees them.

    Every worker has to call it.

    Args:
        strategy: of several workers.
        size_bytes: what a step reduces; larger reductions take no more than a few of its steps.
    """
    team = Team(strategy)

    def seconds(count: int, *, chained: int = 1) -> float:
        """Returns what a call takes that reduces so many numbers, several times in turn."""

        @tf.function(autograph=False)
        def reduced() -> Any:
            def reduce() -> tf.Tensor:
                context = tf.distribute.get_replica_context()
                values = tf.zeros(count, tf.float32)
                for _ in range(chained):
                    values = context.all_reduce(tf.distribute.ReduceOp.SUM, values)
                return values[0]

            return strategy.experimental_local_results(strategy.run(reduce))[0]

        times = []
        for _ in range(_REPEATS + 1):
            began = time.perf_counter()
            reduced().numpy()
            times.append(time.perf_counter() - began)
        return float(np.median(times[1:]))  # the first one is traced

    count = min(max(size_bytes, _LEAST_BYTES), _MOST_BYTES) // 4
    # The call itself takes time, too, the same for all of them.
    times = seconds(1), seconds(1, chained=1 + _CHAINED), seconds(count)
    said = team.gathered([int(each * _NANO) for each in times]).max(axis=0) / _NANO
    once_seconds, chain_seconds, some_seconds = said.tolist()
    messages = 2 * (team.count - 1)
    transfer_seconds = max(some_seconds - once_seconds, _SHORTEST_SECONDS)
    return Network(
        latency_seconds=max(chain_seconds - once_seconds, 0.0) / _CHAINED / messages,
        bytes_per_second=messages / team.count * 4 * count / transfer_seconds,
    )
