"""DataPosition: where in its data a training stands, to be saved and found again."""

import logging
import pathlib
from typing import Any

import tensorflow as tf
from tensorflow.python.data.ops import iterator_ops

from tfx_perf.training.recovery.checkpoint import Checkpoint

_FILE = "data"
# A larger state (shuffle buffers, data cached in memory) is not written again and again.
_LARGEST_BYTES = 2**30

_LOGGER = logging.getLogger(__name__)


class DataPosition:
    """Follows the iterators that Keras hands to the train function.

    A state that cannot be saved (a Python function in the pipeline, a random operation) is
    found again by reading the data from their beginning, without training on them. That is
    exact for data that come in the same order every time.

    Attributes:
        passes: iterators that were used up before the present one.
        steps: batches that were taken from the present one.
        note: why the state is not saved; None if it is.
    """

    def __init__(self) -> None:
        """Stands at the beginning."""
        self.passes = 0
        self.steps = 0
        self.note: str | None = None
        self._keras: Any = None
        self._used: Any = None

    def follow(self, iterator: Any) -> Any:
        """Returns the iterator to take batches from when Keras hands over `iterator`."""
        if iterator is not self._keras:
            if self._keras is not None:
                self.passes += 1
                self.steps = 0
            self._keras = self._used = iterator
        return self._used

    def save(self, folder: pathlib.Path) -> bool:
        """Writes the state of the iterator, if it has begun; returns whether there is a file."""
        if self.note or not self.steps:
            return False
        if not isinstance(self._used, iterator_ops.OwnedIterator):
            self.note = f"a {type(self._used).__name__} has no state that can be saved"
            return False
        try:
            tf.train.Checkpoint(iterator=self._used).write(str(folder / _FILE))
        except (tf.errors.FailedPreconditionError, tf.errors.UnimplementedError) as error:
            # "{{function_node ...}} EagerPyFunc is stateful. [Op:SerializeIterator]"
            self.note = error.message.partition("}} ")[2].partition(".")[0] or error.message
            for path in folder.glob(f"{_FILE}.*"):
                path.unlink()
            return False
        size = sum(path.stat().st_size for path in folder.glob(f"{_FILE}.*"))
        if size > _LARGEST_BYTES:
            self.note = f"the state of the data takes {size / 2**30:.1f} GiB"
        return True

    def restore(
        self,
        folder: pathlib.Path,
        checkpoint: Checkpoint,
        *,
        pass_steps: int | None,
        makes_spares: bool,
    ) -> None:
        """Goes to where the checkpoint was made.

        Args:
            folder: of the checkpoint.
            checkpoint: its manifest.
            pass_steps: batches of a whole pass; None reads a pass to its end.
            makes_spares: whether Keras makes two iterators for each pass and uses one, as
                Keras 3 does. The data are shuffled anew for each.
        """
        if checkpoint.data_saved:
            tf.train.Checkpoint(iterator=self._used).read(str(folder / _FILE)).assert_consumed()
        else:
            _LOGGER.warning(
                "The position in the data was not saved; the batches before it are read again."
            )
            for _ in range(checkpoint.data_passes):
                self._skip(None if pass_steps is None else pass_steps - self.steps)
                data = self._used._dataset
                spare = iter(data) if makes_spares else None
                self._used, self.steps = iter(data), 0
                del spare
            self._skip(checkpoint.data_steps - self.steps)
        self.passes, self.steps = checkpoint.data_passes, checkpoint.data_steps

    def _skip(self, count: int | None) -> None:
        left = count
        while left is None or left > 0:
            try:
                next(self._used)
            except StopIteration:
                return
            left = None if left is None else left - 1
