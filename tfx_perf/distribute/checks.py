"""Workers that would not train the same, or get no batch, are told so."""

import contextlib
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tfx_perf.core import errors
from tfx_perf.core.interception import FitCall
from tfx_perf.training.fit.fit_arguments import length_of
from tfx_perf.training.replicas.sync import Sync

_TOO_FEW_FILES = "FILE based sharding"
_NO_STEP = "(Empty logs)"


def check_same_start(call: FitCall, sync: Sync) -> None:
    """Raises UserError if a worker is about to train something else than the first one."""
    arguments, model = call.arguments, call.model
    weights = model.trainable_variables if model.built else ()
    remedy = "Have every worker build, compile and fit the same"
    _compare(
        {
            "epochs": arguments["epochs"] - arguments["initial_epoch"],
            "steps_per_epoch": length_of(arguments["x"], arguments["steps_per_epoch"]),
            "validation data": arguments["validation_data"] is not None,
            "batches": getattr(arguments["x"], "element_spec", type(arguments["x"])),
            "an optimizer": type(model.optimizer).__name__,
            "variables": [(each.shape, each.dtype) for each in weights],
        },
        sync=sync,
        remedy=f"{remedy}.",
    )
    _compare(
        {
            f"weights in {getattr(variable, 'path', variable.name)}": _value(variable)
            for variable in weights
        },
        sync=sync,
        remedy=f"{remedy}; set weights on all of them, from the same file or seed.",
    )


def _compare(own: Mapping[str, Any], *, sync: Sync, remedy: str) -> None:
    if not own:  # nothing is built, and TensorFlow gathers no empty tensors
        return
    said = sync.all_gather([zlib.crc32(_bytes(value)) for value in own.values()])
    for name, of_all in zip(own, said.T, strict=True):
        others = np.flatnonzero(of_all != of_all[0])
        if len(others):
            raise errors.UserError(
                f"Expected all {sync.size} workers to train the same. Received: worker "
                f"{others[0]} has other {name} than worker 0. {remedy}"
            )


def _bytes(value: Any) -> Any:
    return np.ascontiguousarray(value) if isinstance(value, np.ndarray) else str(value).encode()


def _value(variable: Any) -> np.ndarray:
    return tf.convert_to_tensor(variable).numpy()


@contextlib.contextmanager
def checking_share(sync: Sync) -> Iterator[None]:
    """Raises UserError if this worker gets no batch, or there are fewer files than workers.

    TensorFlow gives only the first workers its error, and the others the end of their data.
    """
    try:
        yield
    except (StopIteration, ValueError, tf.errors.InvalidArgumentError) as error:
        received = _received(error, sync)
        if sync.size == 1 or received is None:
            raise
        raise errors.UserError(
            f"Expected batches for each of {sync.size} workers. Received: {received}. Have the "
            "workers divide rows: `options.experimental_distribute.auto_shard_policy = "
            "tf.data.experimental.AutoShardPolicy.DATA` in the dataset's `tf.data.Options`; or "
            f"have at least {sync.size} files, and rows for every worker."
        ) from error


def _received(error: Exception, sync: Sync) -> str | None:
    if _TOO_FEW_FILES in str(error):
        return "fewer files than workers"
    if isinstance(error, StopIteration) or _NO_STEP in str(error):
        return f"none for worker {sync.rank}"
    return None
