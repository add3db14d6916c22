"""Turns the arrays passed to `fit` into the datasets that Keras itself makes of them.

A plan's steps, trials and checkpoints need a dataset of known length. These have the same batches
in the same order.
"""

import dataclasses
import importlib
import logging
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfx_perf.core.interception import FitCall
from tfx_perf.tf_internals.ancestry import ArrayDataset
from tfx_perf.training.keras_api import either_keras

_ADAPTERS = "tf_keras.src.engine.data_adapter"

_LOGGER = logging.getLogger(__name__)


def on_datasets(call: FitCall) -> FitCall:
    """Returns a `fit` on datasets instead of arrays, which computes the same numbers.

    Returns `call` itself if it has no arrays, or if Keras rejects them or reads them differently.
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
    except Exception:  # wrong arrays may raise errors of any kind
        _LOGGER.info("fit is left with its arrays.", exc_info=True)
        return call
    return dataclasses.replace(call, arguments=arguments)


@dataclasses.dataclass(frozen=True)
class _Reader:
    """How a Keras package reads arrays."""

    splitting: str  # the module with `train_validation_split`
    dataset: Callable[..., ArrayDataset | None]
    has_all_epochs: bool  # whether one pass over the dataset is the whole `fit`
    weighs_classes: bool  # whether class weights are in the dataset


def _keras3_dataset(
    arrays: tuple[Any, ...], *, class_weight: Any, epochs: int, **options: Any
) -> ArrayDataset | None:
    """Returns a dataset of x, y and weights; None if Keras reads these differently."""
    module = importlib.import_module("keras.src.trainers.data_adapters.array_data_adapter")
    if not module.can_convert_arrays(arrays):
        return None
    adapter = module.ArrayDataAdapter(*arrays, class_weight=class_weight, **options)
    return _known(
        adapter.get_tf_dataset(),
        arrays=(*arrays, class_weight),
        batch_size=adapter.batch_size,
        length=adapter.num_batches,
    )


def _tf_keras_dataset(
    arrays: tuple[Any, ...], *, class_weight: Any, epochs: int, **options: Any
) -> ArrayDataset | None:
    """Returns a dataset of x, y and weights; None if Keras reads these differently."""
    module, (x, y, sample_weight) = importlib.import_module(_ADAPTERS), arrays
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


def _known(dataset: tf.data.Dataset, *, arrays: Any, batch_size: int, length: int) -> ArrayDataset:
    asserted = dataset.apply(tf.data.experimental.assert_cardinality(length))
    return ArrayDataset(asserted, arrays=arrays, batch_size=batch_size)


_READERS = {
    "keras": _Reader(
        "keras.src.trainers.data_adapters.array_slicing",
        _keras3_dataset,
        has_all_epochs=False,
        weighs_classes=True,
    ),
    "tf_keras": _Reader(_ADAPTERS, _tf_keras_dataset, has_all_epochs=True, weighs_classes=False),
}


def _split(arguments: dict[str, Any], reader: _Reader) -> dict[str, Any]:
    share = arguments["validation_split"]
    if not share or arguments["validation_data"] is not None:
        return arguments
    arrays = arguments["x"], arguments["y"], arguments["sample_weight"]
    splitting = importlib.import_module(reader.splitting)
    trained, validation = splitting.train_validation_split(arrays, validation_split=share)
    update = dict(zip(("x", "y", "sample_weight"), trained, strict=True))
    return {**arguments, **update, "validation_data": validation, "validation_split": 0.0}


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
        # Keras' default for arrays, kept because `batch_size` is now None.
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
