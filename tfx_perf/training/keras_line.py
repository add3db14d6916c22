"""What differs between Keras 3 and tf_keras, behind one interface."""

import abc
import importlib
from collections.abc import Callable
from typing import Any
from unittest import mock

import tensorflow as tf
from typing_extensions import override

from tfx_perf.training.quick_function import QuickFunction

Tensors = Any  # a nested structure of tensors
Function = Callable[[Any], dict[str, Any]]  # iterator to logs


class KerasLine(abc.ABC):
    """One of the two Keras lines, as seen by the training loop.

    Attributes:
        package: the line's top-level module, `keras` or `tf_keras`.
        overcounts: whether `fit` counts a short call at the end of an epoch as a full one.
        reduction: how the logs of several replicas become one.
    """

    package: str
    overcounts: bool
    reduction: str

    @property
    def callbacks(self) -> Any:
        """The line's `callbacks` module."""
        return importlib.import_module(f"{self.package}.callbacks")

    @property
    def model_class(self) -> type:
        """The line's `Model`."""
        return importlib.import_module(self.package).Model

    def overrides_train_step(self, model: Any) -> bool:
        """Whether the user wrote their own `train_step`."""
        return type(model).train_step is not self.model_class.train_step

    def build(self, model: Any, batch: Tensors) -> None:
        """Creates the variables of model and optimizer, so that they can be saved.

        Args:
            model: a compiled model.
            batch: one element of the training data, `x`, `(x, y)` or `(x, y, sample_weight)`.
        """
        with model.distribute_strategy.scope():
            if not model.built:
                model(self.unpack(batch)[0], training=False)
            legacy = getattr(model.optimizer, "_create_all_weights", None)
            if legacy:  # tf_keras.optimizers.legacy
                legacy(model.trainable_variables)
            elif not getattr(model.optimizer, "built", False):
                model.optimizer.build(model.trainable_variables)

    def state(self, model: Any) -> list[tf.Variable]:
        """Returns every variable that a training step may change, metrics excepted."""
        optimizer = model.optimizer.variables
        recurrent = importlib.import_module(f"{self.package}.layers").RNN
        states = [  # variables that Keras does not count among the model's
            layer.states
            for layer in model._flatten_layers()
            if isinstance(layer, recurrent) and layer.stateful
        ]
        return [
            *model.variables,
            *(optimizer() if callable(optimizer) else optimizer),
            *tf.nest.flatten(states),
        ]

    def scales_loss(self, model: Any) -> bool:
        """Whether the optimizer scales the loss, e.g. for float16."""
        return "LossScale" in type(model.optimizer).__name__ or bool(
            getattr(model.optimizer, "loss_scale_factor", None)
        )

    def keras_functions(self, model: Any) -> tuple[Function, Function]:
        """Returns Keras' own train and test functions, new ones, not yet traced."""
        model.make_train_function(force=True)
        model.make_test_function(force=True)
        return model.train_function, model.test_function

    @abc.abstractmethod
    def unpack(self, batch: Tensors) -> tuple[Tensors, Tensors, Tensors]:
        """Splits an element of the data into x, y and sample weight."""

    @abc.abstractmethod
    def forward(self, model: Any, x: Tensors) -> Tensors:
        """Calls the model as its own `train_step` does."""

    @abc.abstractmethod
    def loss(self, model: Any, x: Tensors, y: Tensors, y_pred: Tensors, weight: Tensors) -> Any:
        """Returns what the gradient is taken of, and updates the loss metric."""

    @abc.abstractmethod
    def metrics(
        self, model: Any, x: Tensors, y: Tensors, y_pred: Tensors, weight: Tensors
    ) -> dict[str, tf.Tensor]:
        """Updates the model's metrics and returns their results."""

    @abc.abstractmethod
    def set_steps_per_execution(self, model: Any, steps: int) -> None:
        """Sets how many steps `fit` counts for one call of the train function.

        A `fit` that has begun keeps the number it began with; the evaluation inside it
        reads the new one.
        """

    @abc.abstractmethod
    def get_steps_per_execution(self, model: Any) -> int:
        """Returns what the user set in `compile`."""

    @abc.abstractmethod
    def step_counters(self, model: Any) -> tuple[tf.Variable | None, tf.Variable | None]:
        """Returns the variables in which Keras counts train and test steps, if it does."""


class Keras3(KerasLine):
    """Keras 3 on its TensorFlow backend."""

    package = "keras"
    overcounts = True
    reduction = "MEAN"

    @override
    def unpack(self, batch: Tensors) -> tuple[Tensors, Tensors, Tensors]:
        return importlib.import_module("keras.utils").unpack_x_y_sample_weight(batch)

    @override
    def forward(self, model: Any, x: Tensors) -> Tensors:
        return model(x, training=True) if model._call_has_training_arg else model(x)

    @override
    def loss(self, model: Any, x: Tensors, y: Tensors, y_pred: Tensors, weight: Tensors) -> Any:
        loss = model._compute_loss(
            x=x, y=y, y_pred=y_pred, sample_weight=weight, training=True
        )
        # Under tf.distribute the loss is already divided by the replicas; the metric is not.
        replicas = tf.distribute.get_strategy().num_replicas_in_sync
        first = next(tensor for tensor in tf.nest.flatten(x) if tensor is not None)
        model._loss_tracker.update_state(loss * replicas, sample_weight=tf.shape(first)[0])
        return loss

    @override
    def metrics(
        self, model: Any, x: Tensors, y: Tensors, y_pred: Tensors, weight: Tensors
    ) -> dict[str, tf.Tensor]:
        return model.compute_metrics(x, y, y_pred, sample_weight=weight)

    @override
    def set_steps_per_execution(self, model: Any, steps: int) -> None:
        model.steps_per_execution = steps

    @override
    def get_steps_per_execution(self, model: Any) -> int:
        return model.steps_per_execution

    @override
    def step_counters(self, model: Any) -> tuple[tf.Variable | None, tf.Variable | None]:
        return None, None

class TfKeras(KerasLine):
    """tf_keras, the continuation of Keras 2."""

    package = "tf_keras"
    overcounts = False
    reduction = "SUM"

    @override
    def unpack(self, batch: Tensors) -> tuple[Tensors, Tensors, Tensors]:
        return importlib.import_module("tf_keras.utils").unpack_x_y_sample_weight(batch)

    @override
    def forward(self, model: Any, x: Tensors) -> Tensors:
        return model(x, training=True)

    @override
    def loss(self, model: Any, x: Tensors, y: Tensors, y_pred: Tensors, weight: Tensors) -> Any:
        return model.compute_loss(x, y, y_pred, weight)

    @override
    def metrics(
        self, model: Any, x: Tensors, y: Tensors, y_pred: Tensors, weight: Tensors
    ) -> dict[str, tf.Tensor]:
        return model.compute_metrics(x, y, y_pred, weight)

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


def line_of(model: Any) -> KerasLine:
    """Returns the Keras line that `model` belongs to."""
    modules = {cls.__module__.partition(".")[0] for cls in type(model).__mro__}
    return TfKeras() if "tf_keras" in modules else Keras3()
