"""Batches that are trained slice by slice."""

import pydantic

from tfx_perf.training.speedups.speedup import Fit, Speedup


class MicroBatches(Speedup):
    """Slices of each batch that run one after the other, with their gradients summed.

    Never tried: batches are sliced only after memory ran out; see `Recovery`.
    """

    name = "micro_batches"
    annotation = pydantic.PositiveInt
    off = 1
    saves_memory = True

    def words(self, value: int) -> str:
        """Returns the number of slices."""
        return f", {value} micro-batches"

    def obstacle(self, fit: Fit) -> str | None:
        """Returns why batches of the model cannot be sliced."""
        return fit.functions.slicing_obstacle
