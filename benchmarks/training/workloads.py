"""The trainings that are compared."""

import dataclasses

from benchmarks.input import workloads as data_sets
from benchmarks.input.workloads import workload as workload_lib


@dataclasses.dataclass(frozen=True)
class Workload:
    """One training.

    Attributes:
        description: for people.
        data: name of a data set of the input benchmark.
        batch_size: examples in a step.
        run_fn: import path of the user's function.
    """

    description: str
    data: str
    batch_size: int
    run_fn: str

    @property
    def data_set(self) -> workload_lib.Workload:
        """The data set, with this training's batch size."""
        return dataclasses.replace(data_sets.WORKLOADS[self.data], batch_size=self.batch_size)


def _run_fn(name: str) -> str:
    return f"benchmarks.training.user_modules.{name}.run_fn"


WORKLOADS = {
    "dense": Workload("4 x 2,048 units, Fashion-MNIST", "fashion-raw", 256, _run_fn("dense")),
    "cnn": Workload("2 convolutions, Fashion-MNIST", "fashion-raw", 128, _run_fn("cnn")),
    "transformer": Workload(
        "4 layers of width 128, 64 words", "text-sparse", 32, _run_fn("transformer")
    ),
    "lstm": Workload("64 units, 64 words", "text-sparse", 64, _run_fn("lstm")),
}
TAXI_BATCH_SIZES = {"taxi-40": 40, "taxi-1024": 1024}
"""Batch sizes of TFX's taxi template with its own module, run by `tfx-perf demo`."""
NAMES = (*TAXI_BATCH_SIZES, *WORKLOADS)
