"""TfKeras: the KerasLine of tf_keras, the continuation of Keras 2."""

import importlib
from typing import Any
from unittest import mock

import tensorflow as tf
from typing_extensions import override

from tfx_perf.training.lines.base_line import Function, KerasLine, Tensors
from tfx_perf.training.step.quick_function import QuickFunction


class TfKeras(KerasLine):
    """tf_keras, the continuation of Keras 2."""

    package = "tf_keras"
    overcounts = False
    reduction = "SUM"
    graph_attributes = ("inputs", "_nested_inputs", "outputs", "_nested_outputs")

    @override
    def unpack(self, batch: Tensors) -> tuple[Tensors, Tensors, Tensors]:
        return importlib.import_module("tf_keras.utils").unpack_x_y_sample_weight(batch)

    @override
    def forward(self, model: Any, x: Tensors) -> Tensors:
        return model(x, training=True)

    @override
    def losses(self, model: Any) -> list[Any]:
        losses = getattr(model.compiled_loss, "_user_losses", None)
        return [loss for loss in tf.nest.flatten(losses) if loss is not None]

    @override
    def loss(
        self,
        model: Any,
        x: Tensors,
        y: Tensors,
        y_pred: Tensors,
        weight: Tensors,
        *,
        counts_as: tf.Tensor | None = None,
    ) -> Any:
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
    def node_parts(self, node: Any) -> tuple[Any, list[Any], list[Any]]:
        return node.layer, tf.nest.flatten(node.keras_inputs), tf.nest.flatten(node.outputs)

    @override
    def set_steps_per_execution(self, model: Any, steps: int) -> None:
        # A new variable, not an assignment: the running fit holds on to the old one.
        model._configure_steps_per_execution(steps)

    @override
    def get_steps_per_execution(self, model: Any) -> int:
        return int(model.steps_per_execution.numpy())

    @override
    def step_counters(self, model: Any) -> tuple[tf.Variable | None, tf.Variable | None]:
        return model._train_counter, model._test_counter

    @override
    def keras_functions(self, model: Any) -> tuple[Function, Function]:
        with mock.patch.object(tf.compat.v2, "function", QuickFunction):
            return super().keras_functions(model)
