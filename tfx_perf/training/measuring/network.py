"""Network: how fast workers exchange what they reduce; see `network_probe`, which measures it."""

from collections.abc import Sequence
from typing import Self

import numpy as np
from scipy import stats

from tfx_perf import records

_NOISE_PROBABILITY = 0.05  # of taking what timing alone does for the network's time


class Network(records.Record):
    """What a ring reduction takes: its messages one after the other.

    Attributes:
        latency_seconds: of a message with nothing in it.
        bytes_per_second: of a worker, in each direction.
    """

    latency_seconds: float
    bytes_per_second: float

    @classmethod
    def fitted(
        cls,
        *,
        once: Sequence[float],
        chain: Sequence[float],
        some: Sequence[float],
        chained: int,
        size_bytes: int,
        workers: int,
    ) -> Self | None:
        """Returns what reductions tell; None if they cannot be told from one of nothing.

        The test is that of Mann and Whitney, one-sided (On a test of whether one of two random
        variables is stochastically larger than the other, 1947): an outlier of a busy machine
        decides nothing.

        Args:
            once: seconds that one reduction of nothing took, several times.
            chain: likewise, with further ones after it.
            some: likewise, of one with something in it.
            chained: how many further ones.
            size_bytes: how much.
            workers: who reduced.
        """
        if not all(_is_surely_longer(each, once) for each in (chain, some)):
            return None
        messages = 2 * (workers - 1)
        chain_seconds, transfer_seconds = (
            float(np.median(each) - np.median(once)) for each in (chain, some)
        )
        return cls(
            latency_seconds=chain_seconds / chained / messages,
            bytes_per_second=messages / workers * size_bytes / transfer_seconds,
        )

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


def _is_surely_longer(times: Sequence[float], others: Sequence[float]) -> bool:
    found = stats.mannwhitneyu(times, others, alternative="greater", method="exact")
    return bool(found.pvalue < _NOISE_PROBABILITY)
