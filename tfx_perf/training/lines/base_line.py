"""KerasLine: what differs between Keras 3 and tf_keras, behind one interface."""

import abc
import importlib
from collections.abc import Callable
from typing import Any

import tensorflow as tf

Tensors = Any  # a nested structure of tensors
Function = Callable[[Any], dict[str, Any]]  # iterator to logs

# Reductions of a loss, in both lines, that divide its sum by the number of rows.
_MEANS = ("auto", "mean", "sum_over_batch_size")


class KerasLine(abc.ABC):
    """One of the two Keras lines, as seen by the training loop.

    Attributes:
        package: the line's top-level module, `keras` or `tf_keras`.
        overcounts: whether `fit` counts a short call at the end of an epoch as a full one.
        reduction: how the logs of several replicas become one.
        graph_attributes: where a functional model keeps its inputs, flat and nested, and its
            outputs, flat and nested.
    """

    package: str
    overcounts: bool
    reduction: str
    graph_attributes: tuple[str, str, str, str]

    @property
    def callbacks(self) -> Any:
        """The line's `callbacks` module."""
        return importlib.import_module(f"{self.package}.callbacks")

    @property
    def layers(self) -> Any:
        """The line's `layers` module."""
        return importlib.import_module(f"{self.package}.layers")

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
        return [
            *model.variables,
            *self.optimizer_variables(model),
            *self.recurrent_states(model),
        ]

    def optimizer_variables(self, model: Any) -> list[tf.Variable]:
        """Returns the optimizer's variables, also what tf_keras does not list (loss scale)."""
        listed = model.optimizer.variables
        held = tf.train.TrackableView(model.optimizer).descendants()
        found = {}
        for variable in [
            *(listed() if callable(listed) else listed),
            *(item for item in held if isinstance(item, tf.Variable)),
        ]:
            found.setdefault(id(getattr(variable, "_value", variable)), variable)  # Keras 3 wraps
        return list(found.values())

    def metric_variables(self, model: Any) -> list[tf.Variable]:
        """Returns the variables of the model's metrics."""
        return [variable for metric in model.metrics for variable in metric.variables]

    def recurrent_states(self, model: Any) -> list[tf.Variable]:
        """Returns what stateful layers remember, which Keras does not count among variables."""
        recurrent = self.layers.RNN
        return tf.nest.flatten(
            [
                layer.states
                for layer in model._flatten_layers()
                if isinstance(layer, recurrent) and layer.stateful
            ]
        )

    def transient_state(self, model: Any) -> list[Any]:
        """Returns the variables that forward pass, loss and metrics change.

        They are the metrics' and, because nobody can tell which of them change, all that
        are not trained: moving averages, seeds.
        """
        return [*self.metric_variables(model), *model.non_trainable_variables]

    def averages_loss(self, model: Any) -> bool:
        """Whether every loss given to `compile` is a mean over the rows of the batch."""
        reductions = (getattr(loss, "reduction", "auto") for loss in self.losses(model))
        return all(reduction in _MEANS for reduction in reductions)

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
    def losses(self, model: Any) -> list[Any]:
        """Returns what was given to `compile` as loss, flat: objects, functions or names."""

    @abc.abstractmethod
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
        """Returns the loss, not scaled, and updates the loss metrics.

        Args:
            model: the model.
            x: inputs.
            y: targets.
            y_pred: predictions.
            weight: sample weights or None.
            counts_as: None for a whole batch. For a slice, the weight that it has in a
                metric that counts batches instead of rows.

        Raises:
            UserError: the mean over a slice cannot be weighted so that the slices give the
                mean over the batch.
        """

    @abc.abstractmethod
    def scaled(self, model: Any, loss: Any) -> Any:
        """Returns the loss that the gradient is taken of: scaled if the optimizer wants it."""

    def apply(self, model: Any, gradients: list[Any]) -> None:
        """Applies the gradients of the scaled loss, one for each trainable variable."""
        variables = model.trainable_variables
        model.optimizer.apply_gradients(zip(gradients, variables, strict=True))

    @abc.abstractmethod
    def metrics(
        self, model: Any, x: Tensors, y: Tensors, y_pred: Tensors, weight: Tensors
    ) -> dict[str, tf.Tensor]:
        """Updates the model's metrics and returns their results."""

    @abc.abstractmethod
    def node_parts(self, node: Any) -> tuple[Any, list[Any], list[Any]]:
        """Returns layer, inputs and outputs of a node of a functional model's graph."""

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
