"""What replicas and workers do together at the end of an epoch."""

import logging
import zlib
from typing import Any

import numpy as np
import tensorflow as tf

from tfx_perf.training.keras_api import variables
from tfx_perf.training.keras_api.base_api import KerasApi
from tfx_perf.training.replicas.sync import Sync

_LOGGER = logging.getLogger(__name__)


def stopping_together(model: Any, keras_api: KerasApi, sync: Sync) -> Any:
    """Returns the last callback, which stops all workers after an epoch in which one would."""

    def ask(epoch: int, logs: Any = None) -> None:
        stops = sync.all_gather([bool(model.stop_training)])[:, 0]
        if stops.any() and not model.stop_training:
            first = int(np.argmax(stops))
            _LOGGER.warning("Worker %d stops the training after epoch %d.", first, epoch + 1)
            model.stop_training = True

    return keras_api.callback(on_epoch_end=ask)


def averaging(model: Any, keras_api: KerasApi, sync: Sync) -> Any:
    """Returns the first callback, which gives each replica the mean over all after each epoch.

    Averages as of BatchNorm move in proportion: replicas that begin an epoch with their mean end it
    with the same mean. All validate with it, and later callbacks save it. What is the same on all
    replicas stays so, to the last bit.
    """
    averages = _Averages(model, sync)

    def at_end_of_epoch(*_: Any) -> None:  # which a validation comes before
        averages.become_one()

    return keras_api.callback(on_test_begin=at_end_of_epoch, on_epoch_end=at_end_of_epoch)


class _Averages:
    """Variables whose values the replicas keep apart."""

    def __init__(self, model: Any, sync: Sync) -> None:
        self._model, self._sync = model, sync
        self._averaged: list[tf.Variable] = []  # by what was traced last
        self._average: Any = None

    def become_one(self) -> None:
        """Gives each replica the mean over all; LostWorkerError if not all workers are there."""
        kept = [variables.inner(each) for each in self._model.non_trainable_weights]
        differing = self._differing([each for each in kept if each.dtype.is_floating])
        if not differing:
            return
        if [id(each) for each in differing] != [id(each) for each in self._averaged]:
            self._averaged = differing
            self._average = _to_means(differing, self._model.distribute_strategy)
        self._average()

    def _differing(self, kept: list[tf.Variable]) -> list[tf.Variable]:
        """Returns those that are not the same on all replicas."""
        if not kept:
            return []
        said = self._sync.all_gather([_digest(each) for each in kept])
        is_same = np.all((said == said[0]) & (said >= 0), axis=0)
        return [variable for variable, same in zip(kept, is_same, strict=True) if not same]


def _to_means(differing: list[tf.Variable], strategy: tf.distribute.Strategy) -> Any:
    """Returns what gives each replica the means of variables."""

    def average() -> None:
        # What is read of a variable has no device of its own, by which replicas would be found.
        values = [tf.identity(tf.convert_to_tensor(each)) for each in differing]
        context = tf.distribute.get_replica_context()
        means = context.all_reduce(tf.distribute.ReduceOp.MEAN, values)
        for variable, mean in zip(differing, means, strict=True):
            variable.assign(mean)

    return tf.function(lambda: strategy.run(average), autograph=False)


def _digest(variable: tf.Variable) -> int:
    """Returns a number for the value; a negative one if replicas of this process have several."""
    parts = variables.components(variable) or (variable,)
    found = {zlib.crc32(part.numpy().tobytes()) for part in parts}
    return found.pop() if len(found) == 1 else -1
