"""What it costs that replicas train together; see `communication`, which measures it."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from tfx_perf.core import records

_LEAST_IMBALANCE = 0.005  # less is 0 % in words


def communication_share(wait_shares: Sequence[float]) -> float:
    """Returns the share of a step that the replica waits which waits least: it came last.

    Args:
        wait_shares: of a step, of each replica.
    """
    return min(1.0, *wait_shares)


def load_imbalance(wait_shares: Sequence[float]) -> float:
    """Returns the share of a step that replicas wait for the slowest, on average.

    Args:
        wait_shares: of a step, of each replica.
    """
    return min(1.0, float(np.mean(wait_shares)) - min(wait_shares))


class ReplicaAccount(records.Record):
    """One replica's share of a training's time.

    Attributes:
        worker: whose replica it is, from 0.
        wait_time_seconds: of a step, from its own gradients to their sum: the transfer, and
            waiting for the slowest.
        peak_memory_bytes: of its worker; None if unknown.
    """

    worker: int
    wait_time_seconds: float
    peak_memory_bytes: int | None = None


class RunBefore(records.Record):
    """A run before of the same training, otherwise distributed.

    Attributes:
        source: where its record lies.
        examples_per_second: of that run.
    """

    GONE: ClassVar = frozenset({"plan"})

    source: str
    examples_per_second: float


class CommunicationAccount(records.Record):
    """What it costs that replicas train together.

    Attributes:
        step_time_seconds: mean, after warm-up, without the first call of each epoch where it has
            others.
        epoch_start_seconds: what those calls add to the mean over all steps.
        reduced_bytes_per_step: what one replica gives to the reductions, the first one of the
            worker that gives most.
        replicas: all of them, in order.
    """

    GONE: ClassVar = frozenset({"network", "network_is_in_noise", "reduced_tensors_per_step"})

    step_time_seconds: float
    epoch_start_seconds: float = 0.0
    reduced_bytes_per_step: int
    replicas: tuple[ReplicaAccount, ...]

    @property
    def worker_count(self) -> int:
        """How many processes they are in."""
        return len({each.worker for each in self.replicas})

    @property
    def communication_share(self) -> float:
        """See the function of that name."""
        return communication_share(self._wait_shares)

    @property
    def load_imbalance(self) -> float:
        """See the function of that name."""
        return load_imbalance(self._wait_shares)

    @property
    def wait_share(self) -> float:
        """The share of a step that a replica waits for the others, on average."""
        return min(1.0, float(np.mean(self._wait_shares)))

    @property
    def epoch_start_share(self) -> float:
        """The share of all time that the beginnings of epochs take."""
        return self.epoch_start_seconds / (self.step_time_seconds + self.epoch_start_seconds)

    @property
    def slowest(self) -> int | None:
        """Index of the replica that computes longest and so waits least; None if all do alike."""
        if self.load_imbalance < _LEAST_IMBALANCE:
            return None
        return self._wait_shares.index(min(self._wait_shares))

    @property
    def _wait_shares(self) -> list[float]:
        return [each.wait_time_seconds / self.step_time_seconds for each in self.replicas]
