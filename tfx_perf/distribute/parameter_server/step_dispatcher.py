"""StepDispatcher: hands out calls of the train function, only a few ahead of the workers."""

import collections
import contextlib
import importlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from tfx_perf.core import interception
from tfx_perf.training.fit.timer import StepTimer
from tfx_perf.training.keras_api.base_api import Function, KerasApi

# Steps that wait for each worker, in at least two calls. With fewer, a worker may run idle between
# two looks.
_WAITING_STEPS = 40
_LOOK_SECONDS = 0.01
_SAMPLE_SECONDS = 0.05  # between two samples of the step time
_MAKER = "make_train_function"
_BATCHES_PER_CALL = 10  # in evaluation, since a call takes milliseconds
_WAITING_CALLS = 2  # for each worker, so that the next one is ready while the coordinator reads


class StepDispatcher:
    """Wraps the train function of a coordinator; `timer` counts all workers' steps.

    Keras hands out a whole epoch at once. Here only enough calls wait to keep the workers busy, so
    that the coordinator can count steps and save weights in between.
    """

    def __init__(
        self,
        model: Any,
        keras_api: KerasApi,
        *,
        worker_count: int,
        epoch_length: int,
        passed_steps: int,
        on_look: Callable[[int], None],
    ) -> None:
        """Begins after `passed_steps` of an epoch; `on_look` receives the number of steps since."""
        self._model, self._keras_api, self._on_look = model, keras_api, on_look
        self._worker_count = worker_count
        self._epoch_length, self._to_pass = epoch_length, passed_steps
        self._handed_out = self._in_epoch = self._trained = self._new = 0
        self._sampled = 0.0
        self._steps_per_execution = 1
        self._coordinator = tf.distribute.coordinator.ClusterCoordinator(  # one per strategy
            model.distribute_strategy
        )
        self.timer = StepTimer()

    @contextlib.contextmanager
    def taken_over(self, *, steps_per_execution: int | None) -> Iterator[None]:
        """Wraps the train function of every `fit`; None keeps Keras' steps per execution."""
        model, keras_api = self._model, self._keras_api
        before = keras_api.execution_steps(model), model.train_function
        if steps_per_execution is not None:
            keras_api.set_steps_per_execution(model, steps_per_execution)
        model.train_function = None  # an earlier function is not wrapped
        self._steps_per_execution = keras_api.get_steps_per_execution(model)

        def making(original: Callable[..., Any]) -> Callable[..., Any]:
            return lambda force=False: self._around(original(force))

        try:
            with interception.replacing(model, _MAKER, making):
                yield
        except BaseException:
            with contextlib.suppress(Exception):  # it may only follow from the current error
                self._coordinator.join()  # otherwise waiting calls would wait for data forever
            raise
        finally:
            keras_api.set_execution_steps(model, before[0])
            model.train_function = before[1]

    def callback(self) -> Any:
        """Returns the callback that must run before the user's."""
        return self._keras_api.callback(
            on_epoch_begin=self._begin,
            on_test_begin=lambda logs=None: self._look(is_end=True),
            on_epoch_end=lambda epoch, logs=None: self._look(is_end=True),
        )

    def _begin(self, epoch: int, logs: Any = None) -> None:
        self._in_epoch = 0
        self._sampled = time.perf_counter()
        self.timer.on_epoch_begin(epoch)
        self.timer.begin_call()

    def _around(self, function: Function) -> Function:
        def hand_out(iterator: Any) -> Any:
            steps = min(self._steps_per_execution, self._epoch_length - self._in_epoch)
            self._in_epoch += steps
            if self._to_pass >= steps:
                self._to_pass -= steps
                return None
            logs = function(iterator)
            self._handed_out += steps
            most = self._worker_count * max(_WAITING_STEPS, 2 * self._steps_per_execution)
            while self._handed_out - self._trained >= most and not self._coordinator.done():
                time.sleep(_LOOK_SECONDS)
                self._look()
            return logs

        return hand_out

    def _look(self, *, is_end: bool = False) -> None:
        """Counts the trained steps; a step that a lost worker had begun counts twice."""
        counter = self._keras_api.step_counter(self._model, "train_step")
        assert counter is not None  # tf_keras has one
        count = int(counter)
        self._new += count - self._trained
        self._trained = count
        now = time.perf_counter()
        if self._new and (is_end or now >= self._sampled + _SAMPLE_SECONDS):
            self.timer.end_call(self._new)
            self.timer.begin_call()
            self._new, self._sampled = 0, now
            self._on_look(count)


@contextlib.contextmanager
def evaluated(model: Any, *, worker_count: int) -> Iterator[None]:
    """Has a tf_keras model's `evaluate`, also in `fit`, send batches to workers in the context."""
    module = importlib.import_module("tf_keras.src.engine.data_adapter")
    sender = _Sender(model, most_waiting=_WAITING_CALLS * worker_count)
    one = tf.Variable(1, dtype=tf.int64)

    base: Any = module.DataHandler

    class Handler(base):
        """Reads the data in this process and distributes nothing."""

        def sync(self) -> None:
            sender.wait()

    def choosing(original: Callable[..., Any]) -> Callable[..., Any]:
        def choose(*args: Any, **kwargs: Any) -> Any:
            is_evaluation = "pss_evaluation_shards" in kwargs
            if not is_evaluation or kwargs["model"] is not model:
                return original(*args, **kwargs)
            data = kwargs["x"]
            if isinstance(data, tf.data.Dataset):
                data = data.skip(0)  # readable even if the cluster has renamed its device since
            changed = {"x": data, "steps_per_execution": one, "distribute": False}
            return Handler(*args, **{**kwargs, **changed})

        return choose

    before, shards = model.test_function, model._pss_evaluation_shards
    model._pss_evaluation_shards = 0  # in case the user has set it
    try:
        with (
            interception.replacing(module, "get_data_handler", choosing),
            interception.replacing(model, "make_test_function", lambda original: sender.making),
        ):
            yield
    finally:
        model.test_function, model._pss_evaluation_shards = before, shards


class _Sender:
    """Sends batches to workers, in at most `most_waiting` unfinished calls."""

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
        """Returns the replacement for tf_keras' test function."""
        return self._send

    def wait(self) -> None:
        """Waits until all sent batches are evaluated."""
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
        except StopIteration:  # with which tf_keras ends, without waiting for workers
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
