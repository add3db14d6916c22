"""KerasApi: one interface to the differences between Keras 3 and tf_keras."""

import abc
import contextlib
import functools
import importlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tfx_perf.core import interception
from tfx_perf.tf_internals.iterators import FitIterators
from tfx_perf.training.keras_api import variables
from tfx_perf.training.keras_api.keras_function import KerasFunction, KerasFunctions, TraceState
from tfx_perf.training.keras_api.per_row_rng import Rows
from tfx_perf.training.keras_api.private_attributes import is_of_package, overrides

Tensors = Any  # a nested structure of tensors
Function = Callable[[Any], dict[str, Any]]  # iterator to logs

# Reductions of a loss, in both APIs, that divide its sum by the number of rows.
_MEANS = ("auto", "mean", "sum_over_batch_size")
_METRICS_METHODS = ("compute_metrics", "get_metrics_result")


def optimizers(model: Any) -> list[Any]:
    """Returns a model's optimizer, and the inner one if it scales the loss for another."""
    inner = getattr(model.optimizer, "inner_optimizer", None)
    return [model.optimizer] if inner is None else [model.optimizer, inner]


def all_layers(model: Any) -> list[Any]:
    """Returns a model and every layer in it, including nested ones."""
    return list(model._flatten_layers())


def trainable_flags(model: Any) -> tuple[bool, ...]:
    """Returns which of `all_layers` are trainable."""
    return tuple(bool(layer.trainable) for layer in all_layers(model))


def set_trainable(model: Any, flags: Sequence[bool]) -> None:
    """Sets which layers are trainable; does nothing if their number has changed."""
    layers = all_layers(model)
    if len(flags) != len(layers):
        return
    for layer, is_trained in zip(layers, flags, strict=True):
        if layer.trainable != is_trained:  # also sets nested layers, which come later
            layer.trainable = is_trained


def trace_state_holders(model: Any) -> list[Any]:
    """Returns the objects whose attributes tracing changes; see `TraceState`."""
    generators = [getattr(layer, "_random_generator", None) for layer in all_layers(model)]
    return [*optimizers(model), *(each for each in generators if hasattr(each, "__dict__"))]


RANDOM_SCOPE = "tfx_perf_random_layers"
"""Scope of the names of `SaveableRandomLayers` variables, unlike those of users' generators."""


def learning_rate(optimizer: Any) -> Any:
    """Returns an optimizer's learning rate: a schedule or a variable."""
    return getattr(optimizer, "_learning_rate", None)


@contextlib.contextmanager
def traced_apart(model: Any) -> Iterator[None]:
    """Keeps Keras from using functions traced outside the context inside it, and vice versa."""
    before, model.train_function = model.train_function, None
    try:
        yield
    finally:
        model.train_function = before


class NodeParts(NamedTuple):
    """A layer's call in a functional model's graph."""

    layer: Any
    inputs: list[Any]
    outputs: list[Any]


class PartOfBatch(NamedTuple):
    """The weights, all scalars, of a slice of a batch or of a replica's part of it."""

    share: tf.Tensor | None  # factor of a mean loss's gradients, float64; None: no mean
    rows: tf.Tensor  # weight in a metric that counts rows
    counts_as: tf.Tensor | None  # weight in one that counts batches
    place: Rows  # its rows in the batch
    slice_share: tf.Tensor | None = None  # share of its replica's rows, float64; None: no slice


class KerasApi(abc.ABC):
    """One of the two Keras APIs, as seen by the training loop.

    Attributes:
        package: the API's top-level module, `keras` or `tf_keras`.
        overcounts: whether `fit` counts a short call at the end of an epoch as a full one.
        reduction: how the logs of several replicas are reduced to one.
        graph_attributes: names of a functional model's attributes with its inputs, flat and nested,
            and its outputs, flat and nested.
    """

    package: str
    overcounts: bool
    reduction: str
    graph_attributes: tuple[str, str, str, str]
    _resumption: str  # the model's attribute that makes `fit` begin at a later epoch
    _evaluation_counting: str  # likewise: the object that counts the steps of an evaluation
    _counted_dataset: str  # attribute of the object that counts steps: its dataset
    _epoch_steps: str  # likewise: the steps of an epoch
    _execution_steps: str  # the model's attribute with its steps per execution

    @property
    def backend(self) -> str:
        """The name of the library that the API computes with."""
        return importlib.import_module(self.package).backend.backend()

    @property
    def callbacks(self) -> Any:
        """The API's `callbacks` module."""
        return importlib.import_module(f"{self.package}.callbacks")

    @property
    def layers(self) -> Any:
        """The API's `layers` module."""
        return importlib.import_module(f"{self.package}.layers")

    @property
    @abc.abstractmethod
    def called_class(self) -> type:
        """The class whose `__call__` runs a layer's `call`, even if layers override `__call__`."""

    @property
    def model_class(self) -> type:
        """The API's `Model`."""
        return importlib.import_module(self.package).Model

    def callback(self, **hooks: Callable[..., None]) -> Any:
        """Returns a callback with these hooks, for which Keras copies no logs to NumPy."""
        callback = self.callbacks.Callback()
        vars(callback).update(hooks)
        callback._supports_tf_logs = True  # otherwise tf_keras copies them at every batch
        return callback

    def overrides_train_step(self, model: Any) -> bool:
        """Whether the user wrote their own `train_step`, in a class or on this instance."""
        return overrides(model, "train_step", self.model_class)

    @contextlib.contextmanager
    def from_first_epoch(self, model: Any) -> Iterator[None]:
        """Makes `fit` begin at its first epoch, whatever epoch a resumption left in the model."""
        epoch_before = getattr(model, self._resumption, None)
        if epoch_before is None:
            yield
            return
        setattr(model, self._resumption, None)
        try:
            yield
        finally:
            setattr(model, self._resumption, epoch_before)

    def first_epoch(self, model: Any, initial_epoch: int, *, steps: int | None) -> int:
        """Returns the epoch at which `fit` begins; call it after `on_train_begin`."""
        return getattr(model, self._resumption, None) or initial_epoch

    def verbosity(self, verbose: Any) -> Any:
        """Returns the value that callbacks get for `fit`'s argument `verbose`."""
        return verbose

    def as_compiled(self, model: Any) -> contextlib.AbstractContextManager[Any]:
        """Returns a context in which the layers that `fit` trains are trainable."""
        return contextlib.nullcontext()

    def calling_callbacks(self, model: Any) -> contextlib.AbstractContextManager[Any]:
        """Returns the context in which `fit` calls callbacks, within `as_compiled`."""
        return contextlib.nullcontext()

    def holding_trainable(self, model: Any) -> contextlib.AbstractContextManager[None]:
        """Returns a context in which `fit` does not change which layers are trainable."""
        return contextlib.nullcontext()

    def compiled_with(self, model: Any) -> dict[str, Any]:
        """Returns the arguments of Keras' `compile`, by name."""
        return dict(getattr(getattr(model, "_compile_config", None), "config", None) or {})

    def splitting_obstacle(self, model: Any) -> str | None:
        """Returns why a training step cannot be split, None if it can.

        `forward`, `loss`, `scaled`, `metrics` and `apply` make the same calls as the API's own
        `train_step`; users must not have overridden the methods that they leave out.
        """
        if self.overrides_train_step(model):
            return "the model has its own train_step, which cannot be split"
        return self.parts_obstacle(model)

    def parts_obstacle(self, model: Any) -> str | None:
        """Returns why Keras' own `train_step` does more than those parts; None if it does not.

        A model that is not built is assumed to have something to train.
        """
        if model.built and not model.trainable_variables:
            return "the model has nothing to train"
        return None

    def overrides_metrics(self, model: Any) -> bool:
        """Whether the model overrides the computation of metrics, which may use the weights."""
        return any(overrides(model, name, self.model_class) for name in _METRICS_METHODS)

    def has_own_logs(self, model: Any, step: str) -> bool:
        """Whether a step's logs may differ from the results of the model's metrics."""
        return self.overrides_metrics(model) or overrides(model, step, self.model_class)

    def without_results(self, model: Any) -> contextlib.AbstractContextManager[None]:
        """Returns a context in which Keras' own steps update metrics and return no results."""
        return interception.replacing(model, "get_metrics_result", lambda original: dict)

    def named_state(self, model: Any) -> dict[str, tf.Variable]:
        """Returns every variable that a training step may change, by its path in the model.

        Keras does not list some of them: raw variables, random generators, and variables of the
        user's functions; see `variables.named_variables`.
        """
        return variables.named_variables({"model": model})

    def is_random(self, name: str) -> bool:
        """Whether a `SaveableRandomLayers` generator has this name, inside its layer or outside."""
        return "/_random_generator/" in name or name.startswith(f"used/{RANDOM_SCOPE}/")

    def optimizer_variables(self, model: Any) -> list[tf.Variable]:
        """Returns the optimizer's variables, with the loss scale, which tf_keras does not list."""
        return list(variables.named_variables({"optimizer": model.optimizer}).values())

    def replica_sums(self, model: Any) -> list[tf.Variable]:
        """Returns the optimizer's variables with a value per replica, of which the sum counts."""
        return []

    def averages_loss(self, model: Any) -> bool:
        """Whether every loss given to `compile` is a mean over the rows of the batch."""
        reductions = (getattr(loss, "reduction", "auto") for loss in self.losses(model))
        return all(reduction in _MEANS for reduction in reductions)

    def scales_loss(self, model: Any) -> bool:
        """Whether the optimizer scales the loss, e.g. for float16."""
        return "LossScale" in type(model.optimizer).__name__ or bool(
            getattr(model.optimizer, "loss_scale_factor", None)
        )

    def keras_functions(self, model: Any, *, train: Function | None = None) -> KerasFunctions:
        """Returns new train and test functions of Keras, not yet traced.

        `train` is Keras' train function if it exists already; it may be traced.
        """
        numbers = TraceState(functools.partial(trace_state_holders, model))
        inner = None
        if train is None:
            model.make_train_function(force=True)
            inner = self._traceable(model, numbers)
            train = model.train_function
        model.make_test_function(force=True)
        test = self._traced_quickly(model, model.test_function)
        steps = functools.partial(self.execution_steps, model)
        train_function = KerasFunction(train, inner, numbers=numbers, execution_steps=steps)
        return KerasFunctions(train_function, test)

    def _traced_quickly(self, model: Any, test: Function) -> Function:
        return test

    @abc.abstractmethod
    def _traceable(self, model: Any, numbers: TraceState) -> Any:
        """Returns the graph function in a new train function, which it may replace first."""

    @abc.abstractmethod
    def variable_like(self, variable: Any, value: tf.Tensor) -> Any:
        """Returns a new variable with `value`, of any shape, and another's name and properties."""

    @abc.abstractmethod
    def is_seed(self, name: str, variable: tf.Variable) -> bool:
        """Whether layers draw seeds from this variable of `named_state`."""

    def optimizer_counts_steps(self, model: Any) -> bool:
        """Whether the optimizer's `iterations` rise by one in each training step.

        They do not if a user's `train_step` applies gradients as it likes, if a step that overflows
        does not count, or if gradients are accumulated over several steps.
        """
        return not (
            self.overrides_train_step(model)
            or getattr(model.optimizer, "gradient_accumulation_steps", None)
            or self.scales_loss(model)
            or not all(
                is_of_package(model.optimizer, name, self.package)
                for name in ("apply_gradients", "apply", "iterations")
            )
        )

    def state(self, model: Any) -> list[tf.Variable]:
        """Returns the variables of `named_state`."""
        return list(self.named_state(model).values())

    def seeds(self, model: Any) -> list[tf.Variable]:
        """Returns the variables that the layers of a model draw seeds from."""
        named = self.named_state(model)
        return [each for name, each in named.items() if self.is_seed(name, each)]

    def counting(self, model: Any, part: PartOfBatch) -> contextlib.AbstractContextManager[None]:
        """Returns a context in which metrics that count batches count only a part of one."""
        return contextlib.nullcontext()

    @property
    def gradient_sums(self) -> tuple[tuple[Any, str], ...]:
        """Owners and names of functions that sum gradients, besides the context's `all_reduce`.

        The last argument of each is a list of (gradient, variable) pairs.
        """
        return ()

    def unpack(self, batch: Tensors) -> tuple[Tensors, Tensors, Tensors]:
        """Splits an element of the data into x, y and sample weight."""
        return importlib.import_module(f"{self.package}.utils").unpack_x_y_sample_weight(batch)

    @abc.abstractmethod
    def forward(self, model: Any, x: Tensors) -> Tensors:
        """Calls the model as its own `train_step` does."""

    @abc.abstractmethod
    def losses(self, model: Any) -> list[Any]:
        """Returns the losses given to `compile`, flat: objects, functions or names."""

    @abc.abstractmethod
    def loss(
        self, model: Any, x: Tensors, y: Tensors, y_pred: Tensors, weight: Tensors, *,
        part: PartOfBatch | None = None,
    ) -> Any:  # fmt: skip
        """Returns the loss, not scaled, and updates the loss metrics.

        `part` is the rows' part of a batch, None for a whole one; raises UserError if its mean
        cannot be weighted so that the slices give the mean over the batch.
        """

    @abc.abstractmethod
    def scaled(self, model: Any, loss: Any) -> Any:
        """Returns the loss to take the gradient of: scaled if the optimizer scales losses."""

    def apply(self, model: Any, gradients: list[Any]) -> None:
        """Applies the gradients of the scaled loss, one for each trainable variable."""
        variables = model.trainable_variables
        model.optimizer.apply_gradients(zip(gradients, variables, strict=True))

    @abc.abstractmethod
    def metrics(
        self, model: Any, x: Tensors, y: Tensors, y_pred: Tensors, weight: Tensors
    ) -> dict[str, tf.Tensor]:
        """Updates the model's metrics and returns their results."""

    def update_metrics(
        self, model: Any, x: Tensors, y: Tensors, y_pred: Tensors, weight: Tensors
    ) -> None:
        """Updates metrics without results, which tf_keras would compute over all replicas."""
        with self.without_results(model):
            self.metrics(model, x, y, y_pred, weight)

    @abc.abstractmethod
    def node_parts(self, node: Any) -> NodeParts:
        """Returns the layer, inputs and outputs of a node in a functional model's graph."""

    def set_steps_per_execution(self, model: Any, steps: int) -> None:
        """Sets the steps per call for later evaluations, and for a `fit` that has not begun."""
        self.set_execution_steps(model, self.execution_steps_of(model, steps))

    @abc.abstractmethod
    def get_steps_per_execution(self, model: Any) -> int:
        """Returns the user's setting in `compile`."""

    def execution_steps(self, model: Any) -> Any:
        """Returns the object in which a model keeps its steps per execution."""
        return vars(model)[self._execution_steps]

    def set_execution_steps(self, model: Any, steps: Any) -> None:
        """Restores the object of `execution_steps`, to which functions may still refer."""
        vars(model)[self._execution_steps] = steps  # not tracked, as Keras does not track it

    @property
    @abc.abstractmethod
    def step_counting(self) -> tuple[Any, str]:
        """Owner and name of the function that makes the object with which `fit` counts steps.

        It is called with `steps_per_execution`.
        """

    @abc.abstractmethod
    def read_directly(
        self, make: Callable[..., Any], strategy: tf.distribute.Strategy, *args: Any, **kwargs: Any
    ) -> Any:
        """Makes an object of `step_counting` with a dataset's own iterators, not distributed.

        Applies to data under `strategy`, which has one replica. Their end is `unawaited`.
        """

    def steps_counted(self, counting: Any) -> int | None:
        """Returns the steps per epoch that an object of `step_counting` knows, if any."""
        return getattr(counting, self._epoch_steps)

    @abc.abstractmethod
    def execution_steps_of(self, model: Any, steps: int) -> Any:
        """Returns a number of steps per execution in the form that `step_counting` takes."""

    @abc.abstractmethod
    def count_in_calls_of(self, counting: Any, steps: int, *, model: Any) -> None:
        """Changes the steps per call of an object of `step_counting`, from the next epoch on."""

    def evaluation_counting(self, model: Any) -> Any:
        """Returns the object of `step_counting` for the running `fit`'s evaluations, if any."""
        return getattr(model, self._evaluation_counting, None)

    def note_iterators(self, counting: Any, iterators: FitIterators) -> None:
        """Makes `iterators` follow those that an object of `step_counting` makes from now on."""
        dataset = getattr(counting, self._counted_dataset)
        if dataset is not iterators.dataset:
            setattr(counting, self._counted_dataset, iterators.over(dataset))

    def count_before(self, counting: Any, steps: int) -> None:  # noqa: B027 (tf_keras counts none)
        """Adds the steps of earlier epochs to an object of `step_counting`, if it counts them."""

    def count_less(self, counting: Any, steps: int) -> None:  # noqa: B027 (Keras 3 need not know)
        """Takes steps of the last call off an object of `step_counting`, if it adds them up."""

    def step_counter(self, model: Any, step: str) -> tf.Variable | None:
        """Returns the variable in which Keras counts `train_step` or `test_step`, if it does."""
        return None
