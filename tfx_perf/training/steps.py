"""Train and test functions that run many steps for one call from Python.

They go into `model.train_function` and `model.test_function`, where Keras keeps its own:
everything else in `fit` (epochs, callbacks, validation, History) stays Keras'.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfx_perf.training.keras_line import KerasLine
from tfx_perf.training.quick_function import QuickFunction

Logs = dict[str, Any]
Step = Callable[[Any], Logs]


class Countdown:
    """How many steps are left in the running epoch or evaluation.

    `fit` hands the train function only an iterator; near the end of an epoch fewer steps
    than usual must be taken from it, and Keras 3 does not say how many.

    Attributes:
        last_call_steps: how many steps the last call took.
    """

    def __init__(self) -> None:
        self._left: int | None = None
        self.last_call_steps = 0

    def begin(self, steps: int | None) -> None:
        """Starts an epoch or evaluation of `steps` steps; None if nobody knows."""
        self._left = steps

    def take(self, steps: int) -> int:
        """Returns how many steps the next call may take, at most `steps`."""
        taken = steps if self._left is None else min(steps, self._left)
        if self._left is not None:
            self._left -= taken
        self.last_call_steps = taken
        return taken


def train_step(model: Any, line: KerasLine, *, xla: bool) -> Step:
    """Returns the function that trains on one batch in replica context.

    Without XLA it is the model's own `train_step`. With it, forward and backward pass are
    compiled and the optimizer is applied outside: the one placement that is legal under
    every strategy, because `merge_call` cannot cross a nested `tf.function`.
    """
    if not xla:
        return model.train_step

    def forward_backward(x: Any, y: Any, weight: Any) -> tuple[list[tf.Tensor], Any]:
        with tf.GradientTape() as tape:
            y_pred = line.forward(model, x)
            loss = line.loss(model, x, y, y_pred, weight)
        return tape.gradient(loss, model.trainable_variables), y_pred

    compiled = QuickFunction(forward_backward, jit_compile=True, reduce_retracing=True)

    def step(batch: Any) -> Logs:
        x, y, weight = line.unpack(batch)
        gradients, y_pred = compiled(x, y, weight)
        model.optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return line.metrics(model, x, y, y_pred, weight)

    return step


class MultiStep:
    """Runs `step` several times on an iterator in one graph call.

    Called as Keras calls its train function: with the iterator, returning the last logs.
    """

    def __init__(
        self,
        step: Step,
        *,
        strategy: tf.distribute.Strategy,
        countdown: Countdown,
        reduction: str,
        counter: tf.Variable | None,
    ) -> None:
        """Wraps a step.

        Args:
            step: what to do with one batch, in replica context.
            strategy: the strategy that the model was built under.
            countdown: says how many of `steps_per_call` steps the epoch still has.
            reduction: `MEAN` or `SUM`, of the logs over the replicas.
            counter: where Keras counts the steps for its callbacks, if it does.
        """
        self.steps_per_call = 1
        self._step = step
        self._strategy = strategy
        self._countdown = countdown
        self._reduction = reduction
        self._counter = counter
        self._function = QuickFunction(self._run, reduce_retracing=True)

    def __call__(self, iterator: Any) -> Logs:
        """Runs up to `steps_per_call` steps; raises OutOfRangeError if the data ends before."""
        return self.run(iterator, self._countdown.take(self.steps_per_call))

    def run(self, iterator: Any, steps: int) -> Logs:
        """Runs exactly `steps` steps, at least one, whatever is left of the epoch."""
        return self._function(iterator, tf.constant(steps, tf.int32))

    def _once(self, iterator: Any) -> Logs:
        logs = self._strategy.run(self._step, args=(next(iterator),))
        return tf.nest.map_structure(self._over_replicas, logs)

    def _over_replicas(self, value: Any) -> tf.Tensor:
        values = self._strategy.experimental_local_results(value)
        if len(values) == 1:
            return values[0]
        return self._strategy.reduce(self._reduction, value, axis=None)

    def _run(self, iterator: Any, steps: tf.Tensor) -> Logs:
        # The first step stands before the loop, because the loop needs the logs' structure.
        logs = self._once(iterator)
        _, logs = tf.while_loop(
            lambda done, _: done < steps,
            lambda done, _: (done + 1, self._once(iterator)),
            [tf.constant(1), logs],
        )
        if self._counter is not None:
            self._counter.assign_add(tf.cast(steps, self._counter.dtype))
        return logs
