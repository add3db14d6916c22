"""Turns the arrays that `fit` was given into the datasets that Keras itself makes of them.

A plan's steps, trials and checkpoints need a dataset of known length. These have the same batches
in the same order.
"""

import abc
import dataclasses
import importlib
import logging
from typing import Any

import tensorflow as tf
from typing_extensions import override

from tfx_perf.core.interception import FitCall
from tfx_perf.tf_internals.ancestry import ArrayDataset
from tfx_perf.training.keras_api import either_keras

_LOGGER = logging.getLogger(__name__)


def on_datasets(call: FitCall) -> FitCall:
    """Returns a `fit` on datasets in the place of arrays, which computes the same numbers.

    It is `call` itself if it has no arrays, or such as Keras reads in another way or refuses.
    """
    keras_api, strategy = either_keras.api_of(call.model), call.model.distribute_strategy
    is_served = isinstance(strategy, tf.distribute.ParameterServerStrategy)
    if keras_api.backend != "tensorflow" or is_served:
        return call
    reader = _READERS[keras_api.package]
    try:
        with strategy.scope():
            arguments = _evaluating_on_dataset(_split(call.arguments, reader), reader)
            arguments = _training_on_dataset(arguments, reader)
    except Exception:  # of any kind that a wrong array comes to
        _LOGGER.info("fit is left with its arrays.", exc_info=True)
        return call
    return dataclasses.replace(call, arguments=arguments)


class _Reader(abc.ABC):
    """How a Keras package reads arrays."""

    has_all_epochs: bool  # whether one pass over the dataset is the whole `fit`
    weighs_classes: bool  # whether class weights are in the dataset

    @abc.abstractmethod
    def split(self, arrays: tuple[Any, ...], share: float) -> tuple[tuple[Any, ...], Any]:
        """Returns the arrays to train on, and a share of the rows for validation."""

    @abc.abstractmethod
    def dataset(
        self, arrays: tuple[Any, ...], *, class_weight: Any, epochs: int, **options: Any
    ) -> ArrayDataset | None:
        """Returns a dataset of x, y and weights; None if Keras reads these in another way."""


class _Keras3Reader(_Reader):
    has_all_epochs = False
    weighs_classes = True

    @override
    def split(self, arrays: tuple[Any, ...], share: float) -> tuple[tuple[Any, ...], Any]:
        slicing = importlib.import_module("keras.src.trainers.data_adapters.array_slicing")
        return slicing.train_validation_split(arrays, validation_split=share)

    @override
    def dataset(
        self, arrays: tuple[Any, ...], *, class_weight: Any, epochs: int, **options: Any
    ) -> ArrayDataset | None:
        module = importlib.import_module("keras.src.trainers.data_adapters.array_data_adapter")
        if not module.can_convert_arrays(arrays):
            return None
        x, y, sample_weight = arrays
        adapter = module.ArrayDataAdapter(
            x, y, sample_weight, class_weight=class_weight, **options
        )
        return _known(
            adapter.get_tf_dataset(),
            arrays=(*arrays, class_weight),
            batch_size=adapter.batch_size,
            length=adapter.num_batches,
        )


class _TfKerasReader(_Reader):
    has_all_epochs = True
    weighs_classes = False

    @override
    def split(self, arrays: tuple[Any, ...], share: float) -> tuple[tuple[Any, ...], Any]:
        return _tf_keras_adapters().train_validation_split(arrays, validation_split=share)

    @override
    def dataset(
        self, arrays: tuple[Any, ...], *, class_weight: Any, epochs: int, **options: Any
    ) -> ArrayDataset | None:
        module, (x, y, sample_weight) = _tf_keras_adapters(), arrays
        if module.select_data_adapter(x, y) is not module.TensorLikeDataAdapter:
            return None
        adapter = module.TensorLikeDataAdapter(
            x, y, sample_weights=sample_weight, epochs=epochs, **options
        )
        return _known(
            adapter.get_dataset(),
            arrays=arrays,
            batch_size=adapter.batch_size(),
            length=adapter.get_size() * epochs,
        )


_READERS: dict[str, _Reader] = {"keras": _Keras3Reader(), "tf_keras": _TfKerasReader()}


def _tf_keras_adapters() -> Any:
    return importlib.import_module("tf_keras.src.engine.data_adapter")


def _known(
    dataset: tf.data.Dataset, *, arrays: Any, batch_size: int, length: int
) -> ArrayDataset:
    asserted = dataset.apply(tf.data.experimental.assert_cardinality(length))
    return ArrayDataset(asserted, arrays=arrays, batch_size=batch_size)


def _split(arguments: dict[str, Any], reader: _Reader) -> dict[str, Any]:
    """Returns the arguments of `fit` with the validation data that it splits off."""
    share = arguments["validation_split"]
    if not share or arguments["validation_data"] is not None:
        return arguments
    arrays = arguments["x"], arguments["y"], arguments["sample_weight"]
    (x, y, sample_weight), validation = reader.split(arrays, share)
    update = {"x": x, "y": y, "sample_weight": sample_weight, "validation_data": validation}
    return {**arguments, **update, "validation_split": 0.0}


def _training_on_dataset(arguments: dict[str, Any], reader: _Reader) -> dict[str, Any]:
    arrays = arguments["x"], arguments["y"], arguments["sample_weight"]
    steps, epochs = arguments["steps_per_epoch"], arguments["epochs"] - arguments["initial_epoch"]
    options = {name: arguments[name] for name in ("batch_size", "shuffle", "class_weight")}
    if isinstance(arguments["x"], tf.data.Dataset):
        return arguments
    dataset = reader.dataset(arrays, steps=steps, epochs=epochs, **options)
    if dataset is None:
        return arguments
    if reader.has_all_epochs and not steps:
        steps = int(dataset.cardinality()) // epochs
    return {
        **arguments,
        **{"x": dataset, "y": None, "sample_weight": None, "batch_size": None, "shuffle": False},
        "steps_per_epoch": steps,
        "class_weight": None if reader.weighs_classes else arguments["class_weight"],
        # Which it is for these data too, if nothing else is said.
        "validation_batch_size": arguments["validation_batch_size"] or arguments["batch_size"],
    }


def _evaluating_on_dataset(arguments: dict[str, Any], reader: _Reader) -> dict[str, Any]:
    validation = arguments["validation_data"]
    if not isinstance(validation, (tuple, list)) or len(validation) not in (2, 3):
        return arguments
    x, y, sample_weight = (*validation, None)[:3]
    dataset = reader.dataset(
        (x, y, sample_weight),
        batch_size=arguments["validation_batch_size"] or arguments["batch_size"],
        steps=arguments["validation_steps"],
        shuffle=False,
        class_weight=None,
        epochs=1,
    )
    if dataset is None:
        return arguments
    return {**arguments, "validation_data": dataset, "validation_batch_size": None}
