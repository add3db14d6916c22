"""DataPosition: a training's place in its data, which can be saved and restored."""

import dataclasses
import logging
import pathlib
from typing import Any, ClassVar

import tensorflow as tf

from tfx_perf.core import errors, records
from tfx_perf.tf_internals import ancestry
from tfx_perf.tf_internals import iterators as iterators_lib
from tfx_perf.tf_internals.iterators import FitIterators
from tfx_perf.training.recovery.training_state import StateMismatchError

_FILE, _NAME = "data", "state"
# A larger state (shuffle buffers, data cached in memory) is not written with every checkpoint.
_LARGEST_BYTES = 2**30
_LARGEST_KEPT_BYTES = 2**26  # in memory, which may be scarcer than disk
# The key under which a shuffle that draws new seeds for every pass saves how many it has drawn. It
# does so only until its input has ended.
_SEEDS_KEY = b"epoch_num_random_samples"

_ENDED = (
    "Expected the data to be the same as before the training was interrupted. Received: they end "
    "after {done} of {count} batches. Give fit data that can be read again from their beginning, "
    "or set checkpoint_every_steps and checkpoint_every_seconds to 0."
)

_LOGGER = logging.getLogger(__name__)


class Position(records.Record):
    """A training's place in its data, without the state of the iterator."""

    SCHEMA: ClassVar[str] = "tfx_perf.data_position/1"

    taken: tuple[int, ...] = ()  # batches taken from each iterator that `fit` has made
    current: int = 0  # index of the iterator in use
    is_saved: bool = False  # whether the iterator's state is; if not, batches are read again


@dataclasses.dataclass(frozen=True)
class PositionSnapshot:
    """A position with the iterator's state in memory: `tf.variant` [parts]; None if not saved."""

    position: Position
    state: tf.Tensor | None = None
    note: str | None = None  # why it cannot be saved

    def write(self, folder: pathlib.Path) -> Position:
        """Writes the state, returns the position; raises OSError or `tf.errors.OpError`."""
        if self.state is not None:
            tf.raw_ops.SaveV2(
                prefix=str(folder / _FILE),
                tensor_names=[_NAME],
                shape_and_slices=[""],
                tensors=[self.state],
            )
        return self.position

    @classmethod
    def read(cls, position: Position, folder: pathlib.Path) -> "PositionSnapshot":
        """Returns the position that `write` wrote."""
        if not position.is_saved:
            return cls(position)
        (state,) = tf.raw_ops.RestoreV2(
            prefix=str(folder / _FILE),
            tensor_names=[_NAME],
            shape_and_slices=[""],
            dtypes=[tf.variant],
        )
        return cls(position, state)


class DataPosition:
    """Follows the iterators that Keras hands to the train function.

    Some states cannot be saved (a Python function in the pipeline, a random operation), or do not
    determine the order of later passes (a shuffle has read its input to its end, as prefetching
    does before the last batches are trained on). Such positions are restored by reading the data
    from their beginning, without training on them. That is exact for data that come in the same
    order every time, as with seeded shuffles.
    """

    def __init__(self, iterators: FitIterators) -> None:
        self.note: str | None = None  # why the state cannot be saved
        self._is_checked = False  # whether inputs of shuffles were checked for hidden state
        self._keras_iterator: Any = None  # the last one that Keras handed over
        self._iterators = iterators
        self._offset = 0  # added to the iterators' numbers, after those of another process
        self._taken: dict[int, int] = {}
        self._used: Any = None

    def follow(self, iterator: Any) -> Any:
        """Returns the iterator to take batches from when Keras hands over `iterator`."""
        if iterator is not self._keras_iterator:
            self._keras_iterator = self._used = iterator
        return self._used

    def release(self) -> None:
        """Releases the iterators: freeing their buffers or a file cache may wait for that."""
        self._keras_iterator = self._used = None

    def count_taken(self, count: int) -> None:
        """Counts batches that were taken from the iterator in use."""
        self._taken[self._current] = self._taken.get(self._current, 0) + count

    @property
    def position(self) -> Position:
        """The training's place, without the iterator's state."""
        count = self._iterators.count + self._offset
        taken = tuple(self._taken.get(number, 0) for number in range(count))
        return Position(taken=taken, current=self._current)

    def snapshot(self, *, in_memory: bool = False) -> PositionSnapshot:
        """Returns the place; saving a state takes 1 s per 100,000 elements in shuffle buffers.

        A place kept `in_memory` has no large state; for data without a seed, the state need not
        determine the order of later passes.
        """
        state = None if self.note else self._state(in_memory)
        if state is None:
            return PositionSnapshot(self.position, note=self.note)
        return PositionSnapshot(self.position.model_copy(update={"is_saved": True}), state)

    def restore(self, snapshot: PositionSnapshot) -> None:
        """Moves to a position; raises StateMismatchError if its state belongs to other data.

        Raises UserError if the data have to be read again, and there are fewer than before.
        """
        position = snapshot.position
        if snapshot.state is None:
            self._read_again(position)
        else:
            try:
                iterators_lib.restore(self._used, snapshot.state)
            except tf.errors.OpError as error:
                reason = error.message.partition(" [Op:")[0]
                raise StateMismatchError(f"the input pipeline has changed: {reason}") from error
            self._offset += position.current - self._current
        self._taken = dict(enumerate(position.taken[: position.current + 1]))

    @property
    def _current(self) -> int:
        return (self._iterators.number_of(self._used) or 0) + self._offset

    def _state(self, in_memory: bool) -> tf.Tensor | None:
        dataset = self._iterators.dataset
        if not iterators_lib.is_of_dataset(self._used):
            self.note = f"a {type(self._used).__name__} has no state that can be saved"
            return None
        if ancestry.caches_in_files(dataset):
            self.note = "saving it would end a file cache that is still being written"
            return None
        if in_memory and ancestry.held_bytes(dataset) > _LARGEST_KEPT_BYTES:
            self.note = "the state of the data may be too large to be kept in memory"
            return None
        is_unseeded = ancestry.is_unseeded(dataset)
        # Unseeded order can only be saved, and matters more than the state of random operations.
        if not is_unseeded and not self._is_checked:
            self._is_checked, self.note = True, ancestry.state_before_shuffles(dataset)
            if self.note:
                return None
        is_free = in_memory and is_unseeded
        # In Keras' datasets of arrays, random operations drew the numbers that the state holds.
        is_of_arrays = ancestry.is_of_arrays(dataset)
        is_whole = not (is_free and is_of_arrays)
        shuffle = ancestry.random_operation(dataset) if is_of_arrays and is_whole else None
        if shuffle is not None:  # which TensorFlow would log as two errors
            self.note = f"{shuffle} is stateful"
            return None
        try:
            state = iterators_lib.saved(self._used, is_whole=is_whole)
        except (tf.errors.FailedPreconditionError, tf.errors.UnimplementedError) as error:
            self.note = ancestry.gist(error)
            return None
        as_bytes = tf.io.serialize_tensor(state).numpy()
        if len(as_bytes) > (_LARGEST_KEPT_BYTES if in_memory else _LARGEST_BYTES):
            self.note = f"the state of the data takes {len(as_bytes) / 2**30:.1f} GiB"
            return None
        leads_on = is_free or as_bytes.count(_SEEDS_KEY) >= ancestry.reshuffle_count(dataset)
        return state if leads_on else None

    def _read_again(self, position: Position) -> None:
        """Creates and reads iterators as they were created and read before."""
        if any(position.taken):
            _LOGGER.info("The data are read again up to where the training was.")
        self._skip(position.taken[self._current] - self._taken.get(self._current, 0))
        for number in range(self._current + 1, position.current + 1):
            made = iter(self._iterators.dataset)
            if position.taken[number] or number == position.current:
                self._used = made
                self._skip(position.taken[number])

    def _skip(self, count: int) -> None:
        if not iterators_lib.is_of_dataset(self._used) and count:
            # Each call from Python would make all workers communicate.
            try:
                _take(self._used, tf.constant(count))
            except tf.errors.OutOfRangeError as error:
                raise errors.UserError(_ENDED.format(done="fewer", count=count)) from error
            return
        for done in range(count):
            if next(self._used, None) is None:
                raise errors.UserError(_ENDED.format(done=done, count=count))


def _take(iterator: Any, count: tf.Tensor) -> None:
    @tf.function(autograph=False)
    def take() -> None:
        def body(done: tf.Tensor) -> tuple[tf.Tensor]:
            batch = tf.nest.flatten(next(iterator), expand_composites=True)
            parts = [part for each in batch for part in getattr(each, "values", (each,))]
            with tf.control_dependencies([part for part in parts if tf.is_tensor(part)]):
                return (done + 1,)

        tf.while_loop(lambda done: done < count, body, [0], parallel_iterations=1)

    take()
