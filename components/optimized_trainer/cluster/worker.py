"""Which of the workers a process is."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Worker:
    """One of the processes that train together.

    Attributes:
        index: from 0; the first one is TensorFlow's chief.
        count: how many there are.
    """

    index: int
    count: int

    @property
    def is_chief(self) -> bool:
        """Whether its model and its figures are the training's."""
        return self.index == 0
