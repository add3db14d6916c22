"""Records: the cost of replicas training together, and the layers of each device."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from tfx_perf.core import records

_LEAST_IMBALANCE = 0.005  # less is shown as 0%


def communication_share(wait_shares: Sequence[float]) -> float:
    """Returns the share of a step that the last replica waits, which is the shortest wait."""
    return min(1.0, *wait_shares)


def load_imbalance(wait_shares: Sequence[float]) -> float:
    """Returns the share of a step that replicas wait for the slowest, on average."""
    return min(1.0, float(np.mean(wait_shares)) - min(wait_shares))


class ReplicaAccount(records.Record):
    """One replica's share of a training's time."""

    worker: int  # from 0
    wait_time_seconds: float  # of a step, from its own gradients to their sum
    peak_memory_bytes: int | None = None  # of its worker; None if unknown


class RunBefore(records.Record):
    """An earlier run of the same training, distributed differently, with its record at `source`."""

    REMOVED: ClassVar = frozenset({"plan"})

    source: str
    examples_per_second: float


class CommunicationAccount(records.Record):
    """The cost of replicas training together."""

    REMOVED: ClassVar = frozenset({"network", "network_is_in_noise", "reduced_tensors_per_step"})

    step_time_seconds: float  # mean after warm-up, without epochs' first calls
    epoch_start_seconds: float = 0.0  # what those calls add to the mean
    reduced_bytes_per_step: int  # by the first replica of the worker that contributes most
    replicas: tuple[ReplicaAccount, ...]

    @property
    def worker_count(self) -> int:
        """How many processes the replicas are in."""
        return len({each.worker for each in self.replicas})

    @property
    def communication_share(self) -> float:
        """The step share that the last replica waits; see `communication_share`."""
        return communication_share(self._wait_shares)

    @property
    def load_imbalance(self) -> float:
        """The step share spent waiting for the slowest; see `load_imbalance`."""
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
        """Index of the replica that computes longest, so waits least; None if all are alike."""
        if self.load_imbalance < _LEAST_IMBALANCE:
            return None
        return self._wait_shares.index(min(self._wait_shares))

    @property
    def _wait_shares(self) -> list[float]:
        return [each.wait_time_seconds / self.step_time_seconds for each in self.replicas]


class DevicePart(records.Record):
    """One device's part of a model."""

    device: str  # e.g. `/device:GPU:0`
    layers: tuple[str, ...]  # in the order in which they run
    table_rows: dict[str, int]  # its rows of each embedding that is divided over all devices
    weight_bytes: int  # of its layers, and of those rows
    placed_bytes: int  # of weights, gradients, slots, and a batch's outputs with gradients
    capacity_bytes: int


class Placement(records.Record):
    """A model whose layers are on several devices."""

    parts: tuple[DevicePart, ...]  # in the order in which they compute
    crossing_bytes_per_step: int | None  # outputs, and gradients back; None if unknown
