"""The interface of an input pipeline that may replace TFXIO's default."""

import abc
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tensorflow as tf

    from tfx_perf.input.candidates.limits import Limits
    from tfx_perf.input.candidates.source import RecordSource

DEFAULT = "default"  # the name of TFXIO's own pipeline


class NotApplicable(Exception):  # noqa: N818 (an answer, not an error)
    """The candidate cannot serve this source; the message is the reason."""


class OverMemoryBudget(NotApplicable):
    """The candidate needs `needed_bytes`, or more, and does not fit the memory budget."""

    def __init__(self, message: str, *, needed_bytes: float) -> None:
        super().__init__(message)
        self.needed_bytes = needed_bytes


class Candidate(abc.ABC):
    """One way to build the dataset that TFXIO's factory would build.

    It must yield the same as the default except for the order within a shuffled epoch: the element
    spec, the examples of an epoch, labels, `num_epochs`, `drop_final_batch`, batches that span
    epochs (TFXIO repeats before it batches), and the order when `shuffle` is off. With
    `shuffle_seed` the order is reproducible, and it differs from epoch to epoch.

    Attributes:
        name: its name in plans and reports.
        description: how it works, in one sentence.
        holds_split: whether it keeps the whole split in RAM, so that the files do not matter once
            it is loaded.
    """

    name: str
    description: str
    holds_split = False

    @abc.abstractmethod
    def build(self, source: "RecordSource", *, limits: "Limits") -> "tf.data.Dataset":
        """Returns the dataset for `source`; later calls with the same data share what is in memory.

        Raises:
            NotApplicable: the source or the limits rule the candidate out.
        """

    @property
    def held_bytes(self) -> int:
        """Size of the data that the candidate itself keeps in RAM."""
        return 0

    @property
    def claimed_bytes(self) -> float:
        """The used part of the memory budget: what it keeps, and what its datasets in use take."""
        return self.held_bytes
