"""What `fit` trains and evaluates on where there are parameter servers."""

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from tfx_perf import errors
from tfx_perf.tf_data import independent
from tfx_perf.training.fit.fit_arguments import length_of
from tfx_perf.training.parameter_servers import serving_data

_WHERE = "under ParameterServerStrategy"


@dataclasses.dataclass(frozen=True)
class FitData:
    """The data of one `fit`.

    Attributes:
        arguments: of `fit`.
        length: steps of an epoch, over all workers.
    """

    arguments: dict[str, Any]
    length: int

    @classmethod
    def of(cls, arguments: dict[str, Any]) -> "FitData":
        """Returns the data, if tf_keras can train on them.

        Args:
            arguments: of the user's `fit`.

        Raises:
            UserError: it cannot, or would never end.
        """
        data, validation = arguments["x"], arguments["validation_data"]
        # What can be called makes a dataset: a DatasetCreator of tf_keras.
        if not (isinstance(data, tf.data.Dataset) or callable(data)):
            raise _no_dataset("x", data)
        if not isinstance(validation, tf.data.Dataset | None):
            raise _no_dataset("validation_data", validation)
        length = length_of(data, arguments["steps_per_epoch"])
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
        if validation is not None and not steps and _is_endless(validation):
            raise errors.UserError(
                "Expected validation_steps, or validation_data that end. Received: "
                f"validation_steps={steps}."
            )
        return cls(arguments, length)

    @contextlib.contextmanager
    def served(self, *, host: str, step: int) -> Iterator[dict[str, Any]]:
        """Yields the arguments of `fit` that are others, as long as the context lasts.

        A dataset begins anew where it ends. Where it stood at a step is known but roughly: workers
        had taken batches that they never trained on.

        Args:
            host: under which workers reach this process.
            step: of the training, over all epochs, to go on from.
        """
        data, found = self.arguments["x"], dict[str, Any](steps_per_epoch=self.length)
        validation = self.arguments["validation_data"]
        if validation is not None:
            found["validation_data"] = _divisible(validation, self.arguments["validation_steps"])
            found["validation_steps"] = None
        with contextlib.ExitStack() as stack:
            if isinstance(data, tf.data.Dataset):
                batches = length_of(data, None)
                endless = data.repeat().skip(step % batches if batches else step)
                found["x"] = stack.enter_context(serving_data.served(endless, host=host))
            yield found


def _no_dataset(name: str, given: Any) -> errors.UserError:
    return errors.UserError(
        f"Expected {name} to be a tf.data.Dataset {_WHERE}. Received: "
        f"{name}={type(given).__name__}."
    )


def _is_endless(data: tf.data.Dataset) -> bool:
    return int(data.cardinality()) == tf.data.INFINITE_CARDINALITY


def _divisible(data: tf.data.Dataset, steps: int | None) -> tf.data.Dataset:
    """Returns validation data that end, of which each worker can take its share of the batches.

    Args:
        data: of the user.
        steps: how many batches are evaluated; None: all, in whatever order is the same for all.
    """
    without = independent.UNORDERED if steps is None else frozenset[str]()
    copy = independent.independent(data, without=without)
    if copy is None:
        raise errors.UserError(
            f"Expected validation_data {_WHERE} that workers can read for themselves. Received: "
            "data that call Python functions, or come from a tf.data service."
        )
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    return (copy if steps is None else copy.take(steps)).with_options(options)
