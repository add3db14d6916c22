"""Measures how fast datasets are, side by side, alone or in the user's training step."""

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import tensorflow as tf

from tfx_perf.core import errors
from tfx_perf.input.candidates.source import Factory

MIN_ROUNDS = 3
MAX_ROUNDS = 9
BEYOND_DOUBT = 2.0
"""Fewer than `MIN_ROUNDS` rounds are proof if the ratio is above this in each of them."""

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
    """The user's training step raised an error; the input can still be measured alone."""


class TrainStep(Protocol):
    """The user's training step as a consumer of input; implemented where training code can run."""

    batch_size: int
    default: tf.data.Dataset
    """The endless dataset that `fit` gets with the default's factory."""

    def prepare(self) -> None:
        """Prepares the step for `consume`; may take seconds, and may raise StepFailedError."""

    def trained_example_count(self, split_example_count: int | None) -> float | None:
        """Returns how many examples the user's training reads; None if unknown."""

    def dataset(self, factory: Factory) -> tf.data.Dataset:
        """Returns the endless dataset that `fit` would get if the user's code used `factory`."""

    def repeated_batch(self) -> tf.data.Dataset:
        """Returns one batch of the user's data, repeated from memory without end."""

    def consume(self, dataset: tf.data.Dataset) -> Take:
        """Returns a function that trains on n batches of a new iterator; call `prepare` first."""


def rates(samples: Sequence[Sample]) -> list[float]:
    """Returns the examples per second of the samples."""
    return [sample.examples_per_second for sample in samples]


def take_only(dataset: tf.data.Dataset) -> Take:
    """Returns a function that takes batches from a new iterator, in a loop inside of a graph."""
    # The iterator's end is awaited: in the background (`unawaited`) it would disturb the next turn.
    iterator = iter(dataset)
    return lambda count: _loop(iterator, tf.constant(count, tf.int64))


@dataclasses.dataclass(frozen=True)
class TimedDataset:
    """An endless dataset; `consumer` makes a new iterator and returns a `Take` of its batches."""

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
    """Returns the speed of each dataset, one sample per round.

    In a round every dataset has its turn (A B C, then C B A, ...), so that a disturbance of the
    machine hits all of them; the i-th samples belong together. A turn is a fresh iterator, a
    warm-up that fills buffers and lets autotune settle, and a timed block of whole batches, both
    shortened by `turn_share`. Datasets in `first` have already had their first turn. Rounds end
    once `decided` returns True because more would not change the choice, at `max_rounds`, or at the
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
    """Returns the shortest time that the warm-up and the block of a turn take."""
    return turn_share * (_WARM_UP_SECONDS + _BLOCK_SECONDS)


def _sample(timed: TimedDataset, batch_size: int, turn_share: float) -> Sample:
    take = timed.consumer(timed.dataset)
    take(1)  # fills shuffle buffers; says nothing about the speed afterwards
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


@tf.function(reduce_retracing=True, autograph=False)  # AutoGraph would take a tenth of a second
def _loop(iterator: tf.data.Iterator, count: tf.Tensor) -> None:
    # A loop in Python would add the same constant to all datasets and hide the differences.
    def take_next(taken: tf.Tensor) -> tuple[tf.Tensor]:
        iterator.get_next()
        return (taken + 1,)

    tf.while_loop(lambda taken: taken < count, take_next, [tf.zeros([], tf.int64)])
