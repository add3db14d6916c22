"""FirstBatch: looks at the first batch that a training takes, without taking one more."""

import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.data.ops import iterator_ops

Run = Callable[[Any, int], Any]  # takes an iterator and a number of steps, returns logs


class FirstBatch:
    """Notes the first batch of a training on its way to the first step.

    Reading the user's data for it once more would change what a seeded shuffle gives afterwards,
    and take examples from a stream that has each but once.

    Attributes:
        batch: an element of the training data; None before, and where it cannot be noted.
        seconds: what it took to come; None likewise.
    """

    def __init__(self) -> None:
        """Has no batch yet."""
        self.batch: Any = None
        self.seconds: float | None = None
        self._is_over = False

    def around(self, run: Run, *, whole: int = 1) -> Run:
        """Returns what runs the same steps, the first ones on batches that have been noted.

        Args:
            run: runs steps.
            whole: how many steps `run` takes at the least in one go.
        """

        def noting(iterator: Any, steps: int) -> Any:
            if self._is_over:
                return run(iterator, steps)
            self._is_over = True
            if not isinstance(iterator, iterator_ops.OwnedIterator):
                return run(iterator, steps)
            taken: list[Any] = []
            spec = iterator.element_spec
            try:  # first of all: not every structure can be given back
                held = tf.data.Dataset.from_generator(lambda: iter(taken), output_signature=spec)
            except (TypeError, ValueError):
                return run(iterator, steps)
            began = time.perf_counter()
            for batch in iterator:
                self.seconds = self.seconds or time.perf_counter() - began
                taken.append(batch)
                if len(taken) == whole:
                    break
            if not taken:
                raise tf.errors.OutOfRangeError(None, None, "End of sequence")
            self.batch = taken[0]
            logs = run(iter(held), len(taken))
            return run(iterator, steps - len(taken)) if steps > len(taken) else logs

        return noting
