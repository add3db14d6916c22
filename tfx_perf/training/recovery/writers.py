"""Writers: who has written a checkpoint, and what each of another number has of it."""

import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfx_perf import records
from tfx_perf.training.team import Team, folder_of


class Writers(records.Record):
    """The processes that train together, with their replicas.

    Attributes:
        workers: how many processes.
        replicas: of all of them together.
    """

    workers: int = 1
    replicas: int = 1

    @classmethod
    def of(cls, model: Any) -> "Writers":
        """Returns those that train a model, this process among them."""
        strategy = model.distribute_strategy
        return cls(workers=Team(strategy).count, replicas=strategy.num_replicas_in_sync)

    def part(self, folder: pathlib.Path, worker: int) -> pathlib.Path:
        """Returns what one of them has written; if there was no such one, the first one's.

        Args:
            folder: of the checkpoint.
            worker: its index.
        """
        return folder / folder_of(worker if worker < self.workers else 0, self.workers)

    def __str__(self) -> str:
        """Returns how many they are, in words."""
        if self.workers > 1:
            return f"{self.workers} workers"
        return f"{self.replicas} replicas" if self.replicas > 1 else "one device"


def redistributed(
    values: Sequence[np.ndarray], aggregation: tf.VariableAggregation, *, replica: int
) -> np.ndarray:
    """Returns what a replica begins with of a variable of which others had one value each.

    Sums stay what they were over all of them, as metrics are read. What would be averaged, e.g.
    moving averages, is.

    Args:
        values: of the replicas that were, in their order.
        aggregation: how the variable is read over replicas.
        replica: index of the one that is now, over all workers.
    """
    first = np.asarray(values[0])
    if aggregation == tf.VariableAggregation.SUM:
        return np.sum(values, axis=0, dtype=first.dtype) if replica == 0 else np.zeros_like(first)
    if aggregation == tf.VariableAggregation.MEAN:
        return np.mean(values, axis=0, dtype=first.dtype)
    return np.asarray(values[replica]) if replica < len(values) else first
