"""How fast datasets are, measured side by side, alone or inside of the user's training step."""

import dataclasses
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import tensorflow as tf

from tfx_perf.core import errors
from tfx_perf.input.candidates.source import Factory

MIN_ROUNDS = 3
MAX_ROUNDS = 9
BEYOND_DOUBT = 2.0
"""A ratio of which fewer rounds are proof, if none of them is below it."""

_BLOCK_SECONDS = 0.3
_WARM_UP_SECONDS = 0.15

Take = Callable[[int], None]
Consumer = Callable[[tf.data.Dataset], Take]


@dataclasses.dataclass(frozen=True)
class Sample:
    """One timed block; the CPU time of all threads matters, because training shares the CPU."""

    examples_per_second: float
    cpu_seconds_per_example: float


Samples = dict[str, list[Sample]]
Decided = Callable[[Samples], bool]


class StepFailedError(errors.MeasurementError):
    """The user's training step raised something; the input can be measured alone."""


class TrainStep(Protocol):
    """The user's training step as a consumer of input; implemented where training code can run."""

    batch_size: int
    default: tf.data.Dataset
    """Endless, what `fit` gets by the default's factory."""

    def prepare(self) -> None:
        """Makes the step ready for `consume`, which may take seconds; may raise StepFailedError."""

    def trained_example_count(self, split_example_count: int | None) -> float | None:
        """Returns how many examples the user's training reads; None if that is not known."""

    def dataset(self, factory: Factory) -> tf.data.Dataset:
        """Returns the endless dataset that `fit` would get if the user's code used `factory`."""

    def repeated_batch(self) -> tf.data.Dataset:
        """Returns one batch of the user's data from memory, for ever."""

    def consume(self, dataset: tf.data.Dataset) -> Take:
        """Returns a function that trains on so many batches of a new iterator, after `prepare`."""


def rates(samples: Sequence[Sample]) -> list[float]:
    """Returns the examples per second of the samples."""
    return [sample.examples_per_second for sample in samples]


def take_only(dataset: tf.data.Dataset) -> Take:
    """Returns a function that takes batches from a new iterator, in a loop inside of a graph."""
    # Its end is waited for: in the background (`unawaited`) it would disturb the next turn.
    return functools.partial(_take, iter(dataset))


@dataclasses.dataclass(frozen=True)
class TimedDataset:
    """An endless dataset; `consumer` makes a new iterator and returns what takes its batches."""

    dataset: tf.data.Dataset
    consumer: Consumer = take_only


def measure(
    timed_datasets: Mapping[str, TimedDataset],
    *,
    batch_size: int,
    deadline_seconds: float,
    decided: Decided = lambda samples: False,
    max_rounds: int = MAX_ROUNDS,
    turn_share: float = 1.0,
    first: Mapping[str, Sample] | None = None,
) -> Samples:
    """Returns the speed of each dataset, one sample a round.

    In a round every dataset has its turn (A B C, then C B A, ...), so that a disturbance of the
    machine strikes all of them; the i-th samples belong together. A turn is a fresh iterator, a
    warm-up that fills buffers and lets autotune settle, and a timed block of whole batches, both
    shortened by `turn_share`; those in `first` had their first turn before. Rounds end once
    `decided` says that more would not change the choice, at `max_rounds`, or at the
    `time.monotonic()` deadline.
    """
    samples: Samples = {name: [] for name in timed_datasets}
    longest_round = 0.0
    for index in range(max_rounds):
        started = time.monotonic()
        if index and started + longest_round > deadline_seconds:
            break
        for name in list(timed_datasets)[:: -1 if index % 2 else 1]:
            taken = first.get(name) if first and not index else None
            samples[name].append(taken or _sample(timed_datasets[name], batch_size, turn_share))
        longest_round = max(longest_round, time.monotonic() - started)
        if decided(samples):
            break
    return samples


def turn_seconds(turn_share: float = 1.0) -> float:
    """Returns how long the warm-up and the block of a turn are at least."""
    return turn_share * (_WARM_UP_SECONDS + _BLOCK_SECONDS)


def _sample(timed: TimedDataset, batch_size: int, turn_share: float) -> Sample:
    take = timed.consumer(timed.dataset)
    take(1)  # fills shuffle buffers; tells nothing about the speed afterwards
    warm_up_ends = time.perf_counter() + turn_share * _WARM_UP_SECONDS
    count = 1
    while True:
        seconds = _timed(take, count)
        if time.perf_counter() > warm_up_ends:
            break
        count *= 2
    count = max(1, round(count * turn_share * _BLOCK_SECONDS / seconds))
    cpu_started = time.process_time()
    seconds = _timed(take, count)
    return Sample(
        examples_per_second=count * batch_size / seconds,
        cpu_seconds_per_example=(time.process_time() - cpu_started) / (count * batch_size),
    )


def _timed(take: Take, count: int) -> float:
    started = time.perf_counter()
    take(count)
    return time.perf_counter() - started


def _take(iterator: tf.data.Iterator, count: int) -> None:
    _loop(iterator, tf.constant(count, tf.int64))


@tf.function(reduce_retracing=True, autograph=False)  # which would take a tenth of a second
def _loop(iterator: tf.data.Iterator, count: tf.Tensor) -> None:
    # A loop in Python would add the same constant to all and hide the differences.
    def take_next(taken: tf.Tensor) -> tuple[tf.Tensor]:
        iterator.get_next()
        return (taken + 1,)

    tf.while_loop(lambda taken: taken < count, take_next, [tf.zeros([], tf.int64)])
