"""FirstBatch: looks at the first batch that a training takes, without taking one more."""

import time
from typing import Any

import tensorflow as tf

from tfx_perf.tf_internals import iterators
from tfx_perf.training.step.step_runner import Logs, StepRunner, StepRunnerWrapper


class FirstBatch:
    """The first batch of a training, noted on its way to the first step.

    Reading the user's data for it once more would change what a seeded shuffle gives afterwards,
    and take examples from a stream that has each but once.

    Attributes:
        batch: an element of the training data; None before, and where it cannot be noted.
        seconds: what it took to come; None likewise.
        is_over: whether the first steps have begun.
    """

    def __init__(self) -> None:
        """Has no batch yet."""
        self.batch: Any = None
        self.seconds: float | None = None
        self.is_over = False

    def around(self, inner: StepRunner, *, whole: int = 1) -> StepRunner:
        """Returns what runs the same steps, the first ones on batches that have been noted.

        Args:
            inner: runs steps.
            whole: how many steps `inner` takes at the least in one go.
        """
        return _Noting(inner, self, whole=whole)


class _Noting(StepRunnerWrapper):
    """One run of which the first batch is noted."""

    def __init__(self, inner: StepRunner, first: FirstBatch, *, whole: int) -> None:
        super().__init__(inner)
        self._first = first
        self._whole = whole

    def run(self, iterator: Any, steps: int) -> Logs:
        first = self._first
        if first.is_over:
            return self.inner.run(iterator, steps)
        first.is_over = True
        if not iterators.is_of_dataset(iterator):
            return self.inner.run(iterator, steps)
        taken: list[Any] = []
        spec = iterator.element_spec
        try:  # first of all: not every structure can be given back
            held = tf.data.Dataset.from_generator(lambda: iter(taken), output_signature=spec)
        except (TypeError, ValueError):
            return self.inner.run(iterator, steps)
        began = time.perf_counter()
        for batch in iterator:
            first.seconds = first.seconds or time.perf_counter() - began
            taken.append(batch)
            if len(taken) == self._whole:
                break
        if not taken:
            raise tf.errors.OutOfRangeError(None, None, "End of sequence")
        first.batch = taken[0]
        logs = self.inner.run(iter(held), len(taken))
        return self.inner.run(iterator, steps - len(taken)) if steps > len(taken) else logs
