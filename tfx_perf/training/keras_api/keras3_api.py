"""Keras3: the KerasApi of Keras 3 on its TensorFlow backend."""

import contextlib
import importlib
import inspect
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf
from typing_extensions import override

from tfx_perf.core import errors, interception
from tfx_perf.tf_internals.graphs import is_graph_function
from tfx_perf.tf_internals.iterators import unawaited
from tfx_perf.training.keras_api import private_attributes, variables
from tfx_perf.training.keras_api.base_api import (
    KerasApi,
    NodeParts,
    PartOfBatch,
    Tensors,
    optimizers,
)
from tfx_perf.training.keras_api.keras_function import TraceState

_SEED = "seed_generator_state"  # Keras' name for the variable of every seed generator


class Keras3(KerasApi):
    """Keras 3 on its TensorFlow backend."""

    package = "keras"
    overcounts = True
    reduction = "MEAN"
    graph_attributes = ("_inputs", "_inputs_struct", "_outputs", "_outputs_struct")
    _resumption = "_initial_epoch"
    _evaluation_counting = "_eval_epoch_iterator"
    _counted_dataset = "_distributed_dataset"
    _epoch_steps = "num_batches"
    _execution_steps = "steps_per_execution"

    @property
    @override
    def called_class(self) -> type:
        return importlib.import_module("keras").Operation

    @override
    def _traceable(self, model: Any, numbers: TraceState) -> Any:
        # It is in the closure of a function that checks its results. It changes no numbers.
        held = inspect.getclosurevars(model.train_function).nonlocals.values()
        return next(filter(is_graph_function, (model.train_function, *held)), None)

    @override
    def variable_like(self, variable: Any, value: tf.Tensor) -> Any:
        kind = importlib.import_module("keras").Variable
        return kind(value, dtype=variable.dtype, trainable=variable.trainable, name=variable.name)

    @override
    def is_seed(self, name: str, variable: tf.Variable) -> bool:
        return _SEED in variable.name

    @override
    def replica_sums(self, model: Any) -> list[tf.Variable]:
        accumulators = [
            accumulator
            for optimizer in optimizers(model)
            for accumulator in getattr(optimizer, "_accumulated_gradients", ())
        ]
        return [variables.inner(each) for each in accumulators if each is not None]

    @override
    @contextlib.contextmanager
    def counting(self, model: Any, part: PartOfBatch) -> Iterator[None]:
        """Weights the losses of single outputs.

        Keras weights their means by the batch size if it is known while tracing, otherwise by 1.
        The size of a part is never known then.
        """
        compiled = model._compile_loss

        def weighing(original: Callable[..., Any]) -> Callable[..., Any]:
            def update(value: Any, sample_weight: Any = None) -> Any:
                is_given = sample_weight is not None
                return original(value, sample_weight=sample_weight if is_given else part.counts_as)

            return update

        is_counted = part.counts_as is not None and compiled is not None
        counted = compiled.metrics if is_counted else ()
        with interception.replacing_all((each, "update_state", weighing) for each in counted):
            yield

    @override
    def forward(self, model: Any, x: Tensors) -> Tensors:
        return model(x, training=True) if model._call_has_training_arg else model(x)

    @override
    def losses(self, model: Any) -> list[Any]:
        compiled = model._compile_loss
        return [] if compiled is None else tf.nest.flatten(compiled._user_loss)

    @override
    def loss(
        self, model: Any, x: Tensors, y: Tensors, y_pred: Tensors, weight: Tensors, *,
        part: PartOfBatch | None = None,
    ) -> Any:  # fmt: skip
        # Under tf.distribute the loss is already divided by the replica count; the metric is not.
        count = tf.distribute.get_strategy().num_replicas_in_sync
        is_slice = part is not None and part.slice_share is not None
        if is_slice and any(mask is not None for mask in private_attributes.masks_of(y_pred)):
            raise errors.UserError(
                "Expected a loss that is the mean over all rows, to train in micro-batches. "
                "Received: masked predictions, whose mean is over the unmasked entries. "
                "Train in whole batches (micro_batches=1), smaller ones if memory is short."
            )
        with contextlib.nullcontext() if part is None else self.counting(model, part):
            loss = model._compute_loss(x=x, y=y, y_pred=y_pred, sample_weight=weight, training=True)
        first = next(tensor for tensor in tf.nest.flatten(x) if tensor is not None)
        rows = tf.shape(first)[0] if part is None else part.rows
        model._loss_tracker.update_state(loss * count, sample_weight=rows)
        return loss

    @override
    def scaled(self, model: Any, loss: Any) -> Any:
        return model.optimizer.scale_loss(loss)

    @override
    def metrics(
        self, model: Any, x: Tensors, y: Tensors, y_pred: Tensors, weight: Tensors
    ) -> dict[str, tf.Tensor]:
        return model.compute_metrics(x, y, y_pred, sample_weight=weight)

    @override
    def node_parts(self, node: Any) -> NodeParts:
        return NodeParts(node.operation, node.input_tensors, node.outputs)

    @override
    def get_steps_per_execution(self, model: Any) -> int:
        return model.steps_per_execution

    @property
    @override
    def step_counting(self) -> tuple[Any, str]:
        module = importlib.import_module("keras.src.backend.tensorflow.trainer")
        return module, "TFEpochIterator"

    @override
    def read_directly(
        self, make: Callable[..., Any], strategy: tf.distribute.Strategy, *args: Any, **kwargs: Any
    ) -> Any:
        if kwargs.get("distribute_strategy") is strategy:
            direct = types.SimpleNamespace(experimental_distribute_dataset=unawaited)
            kwargs["distribute_strategy"] = direct
        return make(*args, **kwargs)

    @override
    def execution_steps_of(self, model: Any, steps: int) -> Any:
        return steps

    @override
    def count_in_calls_of(self, counting: Any, steps: int, *, model: Any) -> None:
        counting.steps_per_execution = steps

    @override
    def count_before(self, counting: Any, steps: int) -> None:
        counting._steps_seen += steps


def global_generator_state() -> tf.Variable | None:
    """Returns the state of Keras 3's global seed generator; None if it does not exist yet."""
    module = sys.modules.get("keras.src.backend.common.global_state")
    generator = module and module.get_global_attribute("global_seed_generator")
    return None if generator is None else variables.inner(generator.state)


def evaluating() -> contextlib.AbstractContextManager[None]:
    """Returns a context that corrects how Keras 3 builds models and reduces replicas' results."""
    trainer = importlib.import_module("keras.src.backend.tensorflow.trainer")
    losses = importlib.import_module("keras.src.losses.loss")
    return interception.replacing_all(
        [
            # On the class: an attribute of the model would change the digest in its checkpoints.
            (trainer.TensorFlowTrainer, "_maybe_symbolic_build", _building_locally),
            (trainer, "reduce_per_replica", _reducing_scalars),
            (losses, "reduce_values", _scaling_scalars(losses)),
        ]
    )


def _scaling_scalars(losses: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Divides a mean that a loss function returns by the replica count, as Keras does its own."""

    def scaling(original: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(original)  # differs between Keras versions

        def reduce_values(values: Any, *arguments: Any, **named: Any) -> Any:
            reduced = original(values, *arguments, **named)
            given = signature.bind(values, *arguments, **named)
            given.apply_defaults()
            is_mean = given.arguments["reduction"] not in (None, "none", "sum")
            is_done = not is_mean or len(values.shape)
            return reduced if is_done else losses.scale_loss_for_distribution(reduced)

        return reduce_values

    return scaling


def _building_locally(original: Callable[..., Any]) -> Callable[..., Any]:
    """Builds from one replica's batch; Keras would add up the batches of all."""

    def build(model: Any, iterator: Any = None, data_batch: Any = None) -> Any:
        strategy = model.distribute_strategy
        if iterator is not None and strategy.num_replicas_in_sync > 1:
            _, _, batches = next(iter(iterator))
            iterator, data_batch = None, tf.nest.map_structure(
                lambda value: strategy.experimental_local_results(value)[0], next(batches)
            )
        return original(model, iterator=iterator, data_batch=data_batch)

    return build


def _reducing_scalars(original: Callable[..., Any]) -> Callable[..., Any]:
    """Reduces logs, which are scalars, over the workers; Keras would take the mean over an axis."""

    def reduce_per_replica(values: Any, strategy: Any, reduction: str) -> Any:
        is_of_workers = isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)
        if reduction != "auto" or not is_of_workers:
            return original(values, strategy, reduction)
        return tf.nest.map_structure(
            lambda value: strategy.reduce("MEAN", value, axis=None), values
        )

    return reduce_per_replica
