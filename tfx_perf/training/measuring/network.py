"""Network: how fast workers exchange what they reduce, measured by a few reductions."""

import time
from typing import Any

import numpy as np
import tensorflow as tf

from tfx_perf import records
from tfx_perf.training.team import Team

_REPEATS = 3
_LEAST_BYTES, _MOST_BYTES = 2**20, 2**22  # of a reduction that is timed
_CHAINED = 10  # reductions of nothing
_SHORTEST_SECONDS = 1e-6  # what may be told from nothing
_NANO = 1e9


class Network(records.Record):
    """What a ring reduction takes: its messages one after the other.

    Attributes:
        latency_seconds: of a message with nothing in it.
        bytes_per_second: of a worker, in each direction.
    """

    latency_seconds: float
    bytes_per_second: float

    def reduction_seconds(self, size_bytes: float, *, workers: int, tensors: float = 1.0) -> float:
        """Returns what reducing some tensors takes.

        By the ring algorithm, as TensorFlow does it on CPUs: each worker sends 2 (N - 1) messages
        with an Nth of the data (Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms for
        clusters of workstations, 2009).

        Args:
            size_bytes: of all tensors together.
            workers: how many have such tensors.
            tensors: how many, one after the other.
        """
        messages = 2 * (workers - 1)
        transfer_seconds = messages / workers * size_bytes / self.bytes_per_second
        return tensors * messages * self.latency_seconds + transfer_seconds


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
