"""Evaluation by tf_keras of batches that a coordinator reads and sends to its workers.

tf_keras' own has each worker read all data, and evaluates some examples twice. Told to divide them
(`pss_evaluation_shards`), it passes over regularizers, `add_loss` and what the model overrides, and
fails on several outputs and on tables.
"""

import collections
import contextlib
import importlib
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from tfx_perf import interception

# That wait for each worker, so that it has a next one while the coordinator reads.
_WAITING_BATCHES = 4


@contextlib.contextmanager
def evaluated(model: Any, *, worker_count: int) -> Iterator[None]:
    """Has a model's `evaluate`, of `fit` and of callbacks, send batches while the context lasts.

    Args:
        model: of tf_keras, compiled, under a `ParameterServerStrategy`.
        worker_count: how many take batches.
    """
    module = importlib.import_module("tf_keras.src.engine.data_adapter")
    sender = _Sender(model, most_waiting=_WAITING_BATCHES * worker_count)
    one = tf.Variable(1, dtype=tf.int64)

    base: Any = module.DataHandler

    class Handler(base):
        """Reads here, and has nothing distributed."""

        def sync(self) -> None:
            sender.wait()

    def choosing(own: Callable[..., Any]) -> Callable[..., Any]:
        def choose(*args: Any, **kwargs: Any) -> Any:
            is_evaluation = "pss_evaluation_shards" in kwargs
            if not is_evaluation or kwargs["model"] is not model:
                return own(*args, **kwargs)
            given = {**kwargs, "x": _of_this_cluster(kwargs["x"])}
            return Handler(*args, **{**given, "steps_per_execution": one, "distribute": False})

        return choose

    before, shards = model.test_function, model._pss_evaluation_shards
    model._pss_evaluation_shards = 0  # if the user has said so
    try:
        with (
            interception.replacing(module, "get_data_handler", choosing),
            interception.replacing(model, "make_test_function", lambda own: sender.making),
        ):
            yield
    finally:
        model.test_function, model._pss_evaluation_shards = before, shards


def _of_this_cluster(data: Any) -> Any:
    """Returns a dataset that can be read, also if it was made before the cluster was known.

    Its device has another name since then; what is made of it has the new one.
    """
    is_dataset = isinstance(data, tf.data.Dataset)
    return data.skip(0) if is_dataset else data


class _Sender:
    """Sends batches, no more than workers will soon take.

    Args:
        model: see `evaluated`.
        most_waiting: how many may be sent and not evaluated.
    """

    def __init__(self, model: Any, *, most_waiting: int) -> None:
        self._strategy, self._most_waiting = model.distribute_strategy, most_waiting
        self._waiting: collections.deque[Any] = collections.deque()
        self._coordinator = tf.distribute.coordinator.ClusterCoordinator(self._strategy)
        counter = model._test_counter

        @tf.function(reduce_retracing=True)
        def step(batch: Any) -> Any:
            logs = self._strategy.run(model.test_step, args=(batch,))
            with tf.control_dependencies(tf.nest.flatten(logs, expand_composites=True)):
                counter.assign_add(1)
            return logs

        self._step = step

    def making(self, force: bool = False) -> Callable[[Any], Any]:
        """Returns what stands for tf_keras' test function."""
        return self._send

    def wait(self) -> None:
        """Waits until all that was sent is evaluated."""
        self._coordinator.join()
        self._waiting.clear()

    def _send(self, iterator: Any) -> Any:
        try:
            batch = next(iterator)
        except StopIteration:  # of which tf_keras makes the end, without a look at the workers
            self.wait()
            raise
        if len(self._waiting) == self._most_waiting:
            self._waiting.popleft().get()
        logs = self._coordinator.schedule(self._step, args=(batch,))
        self._waiting.append(logs)
        return logs
