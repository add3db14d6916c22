"""The user's training, run up to its `fit`, as the train step that the search measures with."""

import copy
import dataclasses
import logging
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tfx.components.trainer import fn_args_utils

from tfx_perf.core import errors, interception
from tfx_perf.core.interception import FitCall
from tfx_perf.input import measure
from tfx_perf.input.candidates.source import Factory
from tfx_perf.memory import batches
from tfx_perf.tf_internals import ancestry, autograph, datasets
from tfx_perf.training.fit import timer
from tfx_perf.training.loop import eligibility
from tfx_perf.training.loop.fit_loop import FitLoop
from tfx_perf.training.speedups.plan import PLAIN_FIT, TrainingPlan

_LOGGER = logging.getLogger(__name__)


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
                f"Received: x={type(data).__name__}. Only a Dataset can be replaced."
            )
        self._model = call.model
        self.default = datasets.endless(data)
        self._spec = data.element_spec
        # Unshuffled if possible: a shuffle reads thousands of examples for its first batch.
        self._batch = batches.first_batch(batches.dataset_of(call))
        self.batch_size = batches.batch_size_of(self._batch)  # over all replicas
        self._loop = FitLoop(call)
        self.step_count = self._loop.total_length  # of the user's `fit`; None if unknown
        self.epoch_count = call.arguments["epochs"] - call.arguments["initial_epoch"]
        self._is_taken_over = eligibility.obstacle(call, self._loop) is None

    def prepare(self) -> None:
        """Trains on the batch once, which creates all variables; call it before other methods."""
        if self._is_taken_over:
            self._loop.prepare()
        else:  # one call of the train function must be one step
            self._loop.keras_api.set_steps_per_execution(self._model, 1)
        self._loop.try_out(self._plan(1), self.repeated_batch(), step_count=1)

    def consume(self, dataset: tf.data.Dataset) -> measure.Take:
        """Returns a `measure.Take`, which trains on a number of batches of a new iterator."""
        iterator = self._loop.iterator_over(datasets.endless(dataset))

        def take(count: int) -> None:
            turn = self._loop.turn(self._plan(count))
            for _ in range(count // turn.steps_per_execution):
                logs = turn.function(iterator)
            timer.wait_for(logs)

        return take

    def repeated_batch(self) -> tf.data.Dataset:
        """Returns an endless dataset of one batch of the user's data, held in memory."""
        return datasets.without_autotune(datasets.repeated(self._batch, spec=self._spec))

    def _plan(self, steps_per_execution: int) -> TrainingPlan:
        return (
            TrainingPlan(steps_per_execution=steps_per_execution)
            if self._is_taken_over
            else PLAIN_FIT
        )


@dataclasses.dataclass(frozen=True)
class _FactoryCall:
    patterns: list[str]
    options: Any
    schema: Any
    dataset: tf.data.Dataset


class CapturedTraining(TrainConsumer):
    """Implements `tfx_perf.input.measure.TrainStep` with an unmodified `run_fn`.

    The code is run up to `fit` once for the model, and again, with another dataset factory in
    `fn_args.data_accessor`, for every requested dataset. The code's own transformations of the
    factory's dataset (map, repeat, shard) are then part of the measurement. `options` and `schema`
    (or None) are those that the code passes to the factory for its training data.
    """

    def __init__(
        self, run_fn: Callable[[fn_args_utils.FnArgs], None], arguments: fn_args_utils.FnArgs
    ) -> None:
        """Runs `run_fn` up to its first `fit`, whose data must come from the accessor's factory."""
        self._run_fn = run_fn
        self._arguments = arguments
        self._default: Factory = arguments.data_accessor.tf_dataset_factory
        calls: list[_FactoryCall] = []

        def record(file_pattern: Any, options: Any, schema: Any = None) -> tf.data.Dataset:
            dataset = self._default(file_pattern, options, schema)
            calls.append(_FactoryCall(_as_list(file_pattern), options, schema, dataset))
            return dataset

        fit = self._fit_call(record)
        super().__init__(fit)
        training_call = _origin(fit.arguments["x"], calls)
        self.options = training_call.options
        self.schema = training_call.schema
        self._patterns = training_call.patterns

    def prepare(self) -> None:
        """Trains one step."""
        try:
            super().prepare()
        except (Exception, SystemExit) as error:  # whatever the user's code does in a step
            if autograph.asks_for_conversion(error):
                raise
            _LOGGER.warning("The training step failed.", exc_info=True)
            raise measure.StepFailedError(errors.in_one_line(error)) from error

    def trained_example_count(self, split_example_count: int | None) -> float | None:
        """Returns how many examples `fit` reads; None if that is not known."""
        if self.step_count is not None:
            return float(self.step_count * self.batch_size)
        passes = self.options.num_epochs
        if not (split_example_count and passes):
            return None
        return float(self.epoch_count * passes * split_example_count)

    def dataset(self, factory: Factory) -> tf.data.Dataset:
        """Returns `fit`'s dataset, made endless, with `factory` reading only the training files."""

        def chosen(file_pattern: Any, options: Any, schema: Any = None) -> tf.data.Dataset:
            is_trained_on = _as_list(file_pattern) == self._patterns
            build = factory if is_trained_on else self._default
            return build(file_pattern, options, schema)

        return datasets.endless(self._fit_call(chosen).arguments["x"])

    def _fit_call(self, factory: Factory) -> interception.FitCall:
        arguments = copy.copy(self._arguments)
        arguments.data_accessor = arguments.data_accessor._replace(tf_dataset_factory=factory)
        return interception.capture_fit(lambda: self._run_fn(arguments))


def _as_list(file_pattern: Any) -> list[str]:
    return [file_pattern] if isinstance(file_pattern, str) else list(file_pattern)


def _origin(data: tf.data.Dataset, calls: list[_FactoryCall]) -> _FactoryCall:
    lineage = list(ancestry.lineage(data))
    for call in calls:
        if any(call.dataset is ancestor for ancestor in lineage):
            return call
    raise errors.UserError(
        "Expected fit's data to be made with fn_args.data_accessor.tf_dataset_factory. "
        f"Received: a {type(data).__name__} that is not, after {len(calls)} calls of the factory. "
        "Only what the factory makes can be exchanged."
    )
