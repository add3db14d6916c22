"""What `fit` trains and evaluates on where there are parameter servers."""

import collections
import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from tfx_perf.core import errors
from tfx_perf.training.fit.fit_arguments import length_of

_WHERE = "under ParameterServerStrategy"
_JOB = "training"


@dataclasses.dataclass(frozen=True)
class FitData:
    """The arguments of one `fit`, and the steps of an epoch over all workers."""

    arguments: dict[str, Any]
    length: int

    @classmethod
    def of(cls, arguments: dict[str, Any]) -> "FitData":
        """Returns the data of `fit`; UserError if tf_keras cannot train on them, or without end."""
        data, validation = arguments["x"], arguments["validation_data"]
        # What can be called makes a dataset: a DatasetCreator of tf_keras.
        if not (isinstance(data, tf.data.Dataset) or callable(data)):
            raise errors.UserError(
                f"Expected x to be a tf.data.Dataset {_WHERE}. Received: x={type(data).__name__}. "
                "Of arrays tf.data.Dataset.from_tensor_slices((x, y)).batch(size) makes one."
            )
        length = length_of(data, arguments["steps_per_epoch"])
        if length == 0:
            raise errors.UserError("Expected training data. Received: x of 0 batches.")
        if not length:
            raise errors.UserError(
                f"Expected steps_per_epoch, or a tf.data.Dataset of known length, {_WHERE}. "
                f"Received: steps_per_epoch={arguments['steps_per_epoch']}, "
                f"x={type(data).__name__}. An epoch would never end."
            )
        if arguments["class_weight"]:
            raise errors.UserError(
                f"Expected no class_weight {_WHERE}, where tf_keras passes over it. Received: "
                f"class_weight={arguments['class_weight']}. Give the examples sample weights."
            )
        steps = arguments["validation_steps"]
        if not steps and _is_endless(validation):
            raise errors.UserError(
                "Expected validation_steps, or validation_data that end. Received: "
                f"validation_steps={steps}."
            )
        return cls(arguments, length)

    @contextlib.contextmanager
    def served(self, *, host: str, step: int) -> Iterator[dict[str, Any]]:
        """Yields the arguments of `fit` that change, to go on from a step over all epochs.

        A dataset's own place is not exact: workers had taken batches that they never trained on.
        """
        data, changed = self.arguments["x"], dict[str, Any](steps_per_epoch=self.length)
        with contextlib.ExitStack() as stack:
            if isinstance(data, tf.data.Dataset):
                batches = length_of(data, None)
                endless = data.repeat().skip(step % batches if batches else step)
                changed["x"] = stack.enter_context(served(endless, host=host))
            yield changed


def _is_endless(data: Any) -> bool:
    is_dataset = isinstance(data, tf.data.Dataset)
    return is_dataset and int(data.cardinality()) == tf.data.INFINITE_CARDINALITY


@contextlib.contextmanager
def served(data: tf.data.Dataset, *, host: str) -> Iterator[tf.data.Dataset]:
    """Yields endless data as workers are to read them, which reach this process at `host`."""
    service = tf.data.experimental.service
    dispatcher = service.DispatchServer()
    _, address = dispatcher.target.split("://")
    reader = service.WorkerServer(
        service.WorkerConfig(dispatcher_address=address, worker_address=f"{host}:%port%")
    )
    port = address.rpartition(":")[2]
    is_open = True
    gate = data.take_while(lambda *batch: tf.numpy_function(lambda: is_open, [], tf.bool))
    endless = gate.apply(
        service.distribute(
            service.ShardingPolicy.OFF,  # one reader has all
            f"grpc://{host}:{port}",
            job_name=_JOB,
            compression=None,
        )
    )
    try:
        yield endless
    finally:
        is_open = False
        with contextlib.suppress(tf.errors.OpError):  # of the data; `fit` has raised it
            collections.deque(endless, maxlen=0)
        reader.stop()
        dispatcher.stop()
