"""The user's training step as a consumer of input pipelines."""

import tensorflow as tf

from tfx_perf.core import errors
from tfx_perf.core.interception import FitCall
from tfx_perf.input import measure
from tfx_perf.memory import batches
from tfx_perf.tf_internals import datasets
from tfx_perf.training.fit import timer
from tfx_perf.training.loop import Loop, eligibility
from tfx_perf.training.optimizations.plan import PLAIN_FIT, TrainingPlan


def endless(data: tf.data.Dataset) -> tf.data.Dataset:
    """Returns the dataset, repeated unless it never ends anyway."""
    if data.cardinality() == tf.data.INFINITE_CARDINALITY:
        return data
    return data.repeat()


class TrainConsumer:
    """Trains the model of a captured `fit` on whatever dataset it is given.

    Many steps run in one call from Python, as in OptimizedTrainer, so that only the input and the
    step are measured; if OptimizedTrainer cannot take the `fit` over, Keras' own train function
    runs step by step. The weights change: do not use the model afterwards.
    """

    def __init__(self, call: FitCall) -> None:
        """Reads one batch; raises UserError if `fit` was given no dataset or an empty one."""
        data = call.arguments["x"]
        if not isinstance(data, tf.data.Dataset):
            raise errors.UserError(
                "Expected fit to get a tf.data.Dataset. "
                f"Received: x={type(data).__name__}. Only this can be exchanged."
            )
        self._model = call.model
        self._spec = data.element_spec
        self._batch = batches.first_batch(data)
        self.batch_size = batches.batch_size_of(self._batch)  # over all replicas
        self._loop = Loop(call)
        self.step_count = self._loop.total_length  # of the user's `fit`; None if unknown
        self.epoch_count = call.arguments["epochs"] - call.arguments["initial_epoch"]
        self._is_taken_over = eligibility.obstacle(call, self._loop) is None

    def prepare(self) -> None:
        """Trains on the batch once, which makes all variables; call it before the others."""
        if self._is_taken_over:
            self._loop.prepare()
        else:  # so that a step is a step
            self._loop.keras_api.set_steps_per_execution(self._model, 1)
        self._loop.try_out(
            self._plan(1), self.repeated_batch(), step_count=1, stop_when=lambda timer: False
        )

    def consume(self, dataset: tf.data.Dataset) -> measure.Take:
        """Returns a `measure.Consumer`, which trains on a number of batches of a new iterator."""
        iterator = self._loop.iterator_over(endless(dataset))

        def take(count: int) -> None:
            turn = self._loop.turn(self._plan(count))
            for _ in range(count // turn.steps_per_call):
                logs = turn.function(iterator)
            timer.wait_for(logs)

        return take

    def repeated_batch(self) -> tf.data.Dataset:
        """Returns one batch of the user's data from memory, for ever."""
        return datasets.without_autotune(datasets.repeated(self._batch, spec=self._spec))

    def _plan(self, steps_per_call: int) -> TrainingPlan:
        return TrainingPlan(steps_per_call=steps_per_call) if self._is_taken_over else PLAIN_FIT
