"""Evaluation by tf_keras of batches that a coordinator reads and sends to its workers.

tf_keras has each worker read all data, and evaluates some examples twice. Told to divide them
(`pss_evaluation_shards`), it ignores regularizers, `add_loss` and overridden methods, and fails on
several outputs and on tables.
"""

import collections
import contextlib
import importlib
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from tfx_perf.core import interception

_BATCHES_PER_CALL = 10  # as steps in training: a call takes milliseconds
_WAITING_CALLS = 2  # for each worker, so that it has a next one while the coordinator reads


@contextlib.contextmanager
def evaluated(model: Any, *, worker_count: int) -> Iterator[None]:
    """Has a tf_keras model's `evaluate`, also in `fit`, send batches while the context lasts."""
    module = importlib.import_module("tf_keras.src.engine.data_adapter")
    sender = _Sender(model, most_waiting=_WAITING_CALLS * worker_count)
    one = tf.Variable(1, dtype=tf.int64)

    base: Any = module.DataHandler

    class Handler(base):
        """Reads the data here, and distributes nothing."""

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
    """Returns a readable dataset, also if its device was renamed since by the cluster."""
    is_dataset = isinstance(data, tf.data.Dataset)
    return data.skip(0) if is_dataset else data


class _Sender:
    """Sends batches, of which at most `most_waiting` are not done."""

    def __init__(self, model: Any, *, most_waiting: int) -> None:
        strategy, counter = model.distribute_strategy, model._test_counter
        self._most_waiting = most_waiting
        self._waiting: collections.deque[Any] = collections.deque()
        self._batches: list[Any] = []
        self._logs: dict[str, Any] = {}  # of one evaluation, known at its end
        self._coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)

        @tf.function(reduce_retracing=True)
        def step(batch: Any) -> Any:
            logs = strategy.run(model.test_step, args=(batch,))
            with tf.control_dependencies(tf.nest.flatten(logs, expand_composites=True)):
                counter.assign_add(1)
            return logs

        @tf.function(reduce_retracing=True)
        def steps(batches: tuple[Any, ...]) -> Any:
            return [step(batch) for batch in batches][-1]

        self._steps = steps

    def making(self, force: bool = False) -> Callable[[Any], dict[str, Any]]:
        """Returns a function in the place of tf_keras' test function."""
        return self._send

    def wait(self) -> None:
        """Waits until all that was sent is evaluated."""
        if self._batches:
            self._call()
        self._coordinator.join()
        logs, self._logs = self._logs, {}
        if self._waiting:
            logs.update(self._waiting.pop().fetch())
        self._waiting.clear()

    def _send(self, iterator: Any) -> dict[str, Any]:
        try:
            self._batches.append(next(iterator))
        except StopIteration:  # of which tf_keras makes the end, without a look at the workers
            self.wait()
            raise
        if len(self._batches) == _BATCHES_PER_CALL:
            self._call()
        return self._logs

    def _call(self) -> None:
        if len(self._waiting) == self._most_waiting:
            self._waiting.popleft().get()
        called = self._coordinator.schedule(self._steps, args=(tuple(self._batches),))
        self._waiting.append(called)
        self._batches.clear()
