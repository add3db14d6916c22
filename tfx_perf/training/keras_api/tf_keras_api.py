"""TfKeras: the KerasApi of tf_keras, the continuation of Keras 2."""

import contextlib
import importlib
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf
from typing_extensions import override

from tfx_perf.tf_internals.graphs import QuickFunction, is_graph_function
from tfx_perf.tf_internals.iterators import unawaited
from tfx_perf.training.keras_api.base_api import (
    KerasApi,
    NodeParts,
    PartOfBatch,
    Tensors,
    all_layers,
    optimizers,
    trace_state_holders,
)
from tfx_perf.training.keras_api.keras_function import TraceState
from tfx_perf.training.keras_api.private_attributes import is_of_package

# `minimize`, which Keras' own step calls, and the methods that it calls before applying gradients;
# the last three belong to the optimizers in `tf_keras.optimizers.legacy`.
_GRADIENT_METHODS = (
    "minimize",
    "compute_gradients",
    "_compute_gradients",
    "_get_gradients",
    "_transform_loss",
)


class TfKeras(KerasApi):
    """tf_keras, the continuation of Keras 2."""

    package = "tf_keras"
    overcounts = False
    reduction = "SUM"
    graph_attributes = ("inputs", "_nested_inputs", "outputs", "_nested_outputs")
    _resumption = "_training_state"
    _evaluation_counting = "_eval_data_handler"
    _counted_dataset = "_dataset"
    _epoch_steps = "inferred_steps"
    _execution_steps = "_steps_per_execution"

    @property
    @override
    def called_class(self) -> type:
        return self.layers.Layer

    @override
    def first_epoch(self, model: Any, initial_epoch: int, *, steps: int | None) -> int:
        return model._maybe_load_initial_counters_from_ckpt(steps, initial_epoch)[0]

    @override
    def verbosity(self, verbose: Any) -> Any:
        return 1 if verbose == "auto" else verbose

    @override
    def as_compiled(self, model: Any) -> contextlib.AbstractContextManager[Any]:
        module = importlib.import_module("tf_keras.src.engine.training_utils")
        return module.RespectCompiledTrainableState(model)

    @override
    def calling_callbacks(self, model: Any) -> contextlib.AbstractContextManager[Any]:
        return model.distribute_strategy.scope()

    @override
    @contextlib.contextmanager
    def holding_trainable(self, model: Any) -> Iterator[None]:
        # `as_compiled` applies this state in every `fit` and `evaluate`.
        compiled = vars(model)["_compiled_trainable_state"]
        held = vars(model)["_compiled_trainable_state"] = model._get_trainable_state()
        try:
            yield
        finally:
            if vars(model)["_compiled_trainable_state"] is held:
                vars(model)["_compiled_trainable_state"] = compiled

    @override
    def _traceable(self, model: Any, numbers: TraceState) -> Any:
        function = model.train_function
        if not is_graph_function(function):
            return None
        quick = _quick(function, model, numbers=numbers)
        model.train_function = model.train_tf_function = quick  # the second one for TensorBoard
        return quick

    @override
    def _traced_quickly(self, model: Any, test: Any) -> Any:
        if is_graph_function(test):
            numbers = TraceState(lambda: trace_state_holders(model))
            model.test_function = _quick(test, model, numbers=numbers)
        return model.test_function

    @override
    def variable_like(self, variable: Any, value: tf.Tensor) -> Any:
        name = variable.name.partition(":")[0]
        return tf.Variable(value, trainable=variable.trainable, name=name)

    @override
    def is_seed(self, name: str, variable: tf.Variable) -> bool:
        return self.is_random(name)

    @property
    @override
    def gradient_sums(self) -> tuple[tuple[Any, str], ...]:
        # A legacy optimizer binds the function that sums gradients when it is created.
        legacy = importlib.import_module("tf_keras").optimizers.legacy.Optimizer
        utils = importlib.import_module("tf_keras.src.optimizers.utils")
        return (utils, "all_reduce_sum_gradients"), (legacy, "_aggregate_gradients")

    @override
    def forward(self, model: Any, x: Tensors) -> Tensors:
        return model(x, training=True)

    @override
    def parts_obstacle(self, model: Any) -> str | None:
        obstacle = super().parts_obstacle(model)
        for optimizer in optimizers(model):
            if not all(is_of_package(optimizer, name, "tf_keras") for name in _GRADIENT_METHODS):
                name = type(optimizer).__name__
                obstacle = obstacle or f"the optimizer {name} computes gradients in its own way"
        return obstacle

    @override
    def losses(self, model: Any) -> list[Any]:
        losses = getattr(model.compiled_loss, "_user_losses", None)
        return [loss for loss in tf.nest.flatten(losses) if loss is not None]

    @override
    def loss(
        self, model: Any, x: Tensors, y: Tensors, y_pred: Tensors, weight: Tensors, *,
        part: PartOfBatch | None = None,
    ) -> Any:  # fmt: skip
        loss = model.compute_loss(x, y, y_pred, weight)  # all its metrics count rows
        model._validate_target_and_loss(y, loss)
        return loss

    @override
    def scaled(self, model: Any, loss: Any) -> Any:
        scale = getattr(model.optimizer, "get_scaled_loss", None)
        return scale(loss) if scale else loss

    @override
    def apply(self, model: Any, gradients: list[Any]) -> None:
        unscale = getattr(model.optimizer, "get_unscaled_gradients", None)
        super().apply(model, unscale(gradients) if unscale else gradients)

    @override
    def metrics(
        self, model: Any, x: Tensors, y: Tensors, y_pred: Tensors, weight: Tensors
    ) -> dict[str, tf.Tensor]:
        return model.compute_metrics(x, y, y_pred, weight)

    @override
    def node_parts(self, node: Any) -> NodeParts:
        inputs, outputs = map(tf.nest.flatten, (node.keras_inputs, node.outputs))
        return NodeParts(node.layer, inputs, outputs)

    @override
    def get_steps_per_execution(self, model: Any) -> int:
        return int(model.steps_per_execution.numpy())

    @property
    @override
    def step_counting(self) -> tuple[Any, str]:
        return importlib.import_module("tf_keras.src.engine.data_adapter"), "get_data_handler"

    @override
    def read_directly(
        self, make: Callable[..., Any], strategy: tf.distribute.Strategy, *args: Any, **kwargs: Any
    ) -> Any:
        if tf.distribute.get_strategy() is not strategy:
            return make(*args, **kwargs)
        made = make(*args, **{**kwargs, "distribute": False})
        if isinstance(made._dataset, tf.data.Dataset):
            made._dataset = unawaited(made._dataset)
        return made

    @override
    def execution_steps_of(self, model: Any, steps: int) -> Any:
        # A new variable, not an assignment: the running fit holds on to the old one.
        return model._create_counter_variable(steps)

    @override
    def count_in_calls_of(self, counting: Any, steps: int, *, model: Any) -> None:
        if int(counting._steps_per_execution.numpy()) != steps:
            # A new variable, as the existing one may be the model's.
            counting._steps_per_execution = self.execution_steps_of(model, steps)

    @override
    def count_less(self, counting: Any, steps: int) -> None:
        counting._current_step -= steps

    @override
    def step_counter(self, model: Any, step: str) -> tf.Variable | None:
        return model._train_counter if step == "train_step" else model._test_counter


def _quick(function: Any, model: Any, *, numbers: TraceState) -> QuickFunction:
    """Returns a substitute for a graph function of Keras that AutoGraph traces for ten seconds."""
    steps = converted = function.python_function
    if not hasattr(steps, "autograph_info__"):
        # Converted as if traced directly: AutoGraph skips some functions that others call.
        converted = tf.autograph.to_graph(steps)
    # After a failed trace, variables would be initialized from other random numbers.
    may_fail = all(
        layer.built or is_of_package(layer, "call", "tf_keras") for layer in all_layers(model)
    )
    return QuickFunction(
        numbers.read_before(steps if may_fail else converted),
        converted=numbers.read_before(converted),
        reduce_retracing=True,
    )
