"""A worker whose share of the data is empty is told so."""

import contextlib
from collections.abc import Iterator

import tensorflow as tf

from tfx_perf import errors
from tfx_perf.training.team import Team

_TOO_FEW_FILES = "FILE based sharding"
_NO_STEP = "(Empty logs)"


@contextlib.contextmanager
def told(team: Team) -> Iterator[None]:
    """Has a `fit` of several workers say what it lacks, while the context lasts.

    TensorFlow gives the first workers its own error, and the others the end of their data: Keras 3
    lets that through, and tf_keras finds that no step has been made.

    Args:
        team: who trains.

    Raises:
        UserError: this worker gets no batch, or there are fewer files than workers.
    """
    try:
        yield
    except (StopIteration, ValueError, tf.errors.InvalidArgumentError) as error:
        received = _received(error, team)
        if team.count == 1 or received is None:
            raise
        raise errors.UserError(
            f"Expected batches for each of {team.count} workers. Received: {received}. Have the "
            "workers divide rows: `options.experimental_distribute.auto_shard_policy = "
            "tf.data.experimental.AutoShardPolicy.DATA` in the dataset's `tf.data.Options`; or "
            f"have at least {team.count} files, and rows for every worker."
        ) from error


def _received(error: Exception, team: Team) -> str | None:
    """Returns what is too little; None if it is another error."""
    if _TOO_FEW_FILES in str(error):
        return "fewer files than workers"
    if isinstance(error, StopIteration) or _NO_STEP in str(error):
        return f"none for worker {team.index}"
    return None
