"""What a training with parameter servers goes on from: weights and optimizer."""

import pathlib
from typing import Any

import tensorflow as tf

from tfx_perf import workers
from tfx_perf.tf_internals.built_optimizer import build_optimizer

_PREFIX = "state"
# Else each server writes its own part, to a folder that it need not see.
_DEVICE = f"/job:{workers.COORDINATOR}"


def save(model: Any, folder: pathlib.Path) -> None:
    """Writes the variables while workers go on: each as it is when it is read.

    Args:
        model: compiled.
        folder: that is there.
    """
    options = tf.train.CheckpointOptions(experimental_io_device=_DEVICE)
    tf.train.Checkpoint(model=model).write(str(folder / _PREFIX), options)


def restore(model: Any, folder: pathlib.Path) -> None:
    """Reads the variables; those that are not there yet, when they are made.

    Args:
        model: as it was saved.
        folder: that `save` wrote into.
    """
    build_optimizer(model)
    options = tf.train.CheckpointOptions(experimental_io_device=_DEVICE)
    tf.train.Checkpoint(model=model).read(str(folder / _PREFIX), options)
