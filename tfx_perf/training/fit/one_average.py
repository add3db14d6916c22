"""Averages that each replica has kept for itself, those of BatchNorm say, become one model's."""

import zlib
from typing import Any

import numpy as np
import tensorflow as tf

from tfx_perf.training.keras_api import variables
from tfx_perf.training.team import Team


def of_all_replicas(model: Any, *, team: Team) -> None:
    """Gives each replica the mean over all of what they have kept apart; all workers call it.

    A model that is saved has it, and all evaluate with it. What is the same on all replicas stays
    as it is, to the last bit.

    Args:
        model: has been trained.
        team: that has trained it.

    Raises:
        LostWorkerError: there are not all workers any more.
    """
    strategy = model.distribute_strategy
    if strategy.num_replicas_in_sync == 1:
        return
    kept = [variables.inner(each) for each in model.non_trainable_weights]
    differing = _differing([each for each in kept if each.dtype.is_floating], team)
    if not differing:
        return

    def average() -> None:
        # What is read of a variable has no device of its own, by which replicas would be found.
        values = [tf.identity(tf.convert_to_tensor(each)) for each in differing]
        context = tf.distribute.get_replica_context()
        means = context.all_reduce(tf.distribute.ReduceOp.MEAN, values)
        for variable, mean in zip(differing, means, strict=True):
            variable.assign(mean)

    tf.function(lambda: strategy.run(average), autograph=False)()


def _differing(kept: list[tf.Variable], team: Team) -> list[tf.Variable]:
    """Returns those that are not the same on all replicas."""
    if not kept:
        return []
    said = team.gathered([_digest(each) for each in kept])
    is_same = np.all((said == said[0]) & (said >= 0), axis=0)
    return [variable for variable, same in zip(kept, is_same, strict=True) if not same]


def _digest(variable: tf.Variable) -> int:
    """Returns a number for the value; a negative one if replicas of this process have several."""
    parts = variables.components(variable) or (variable,)
    found = {zlib.crc32(part.numpy().tobytes()) for part in parts}
    return found.pop() if len(found) == 1 else -1
