"""Private attributes of Keras' objects, and methods that users have overridden."""

import inspect
from typing import Any

import tensorflow as tf

ALSO_REMEMBERED = {
    "ModelCheckpoint": ("_batches_seen_since_last_saving", "_last_batch_seen"),
    "SwapEMAWeights": ("_ema_weights_in_model",),
}
"""State of Keras' own callbacks besides their public attributes, by class."""

ONLY_REMEMBERED = {
    "CSVLogger": ("keys",),
    "TensorBoard": ("_global_train_batch", "_global_test_batch", "_should_write_train_graph"),
}
"""The only state to save of callbacks whose other attributes belong to open files, by class."""

OF_EVERY_CALLBACK = frozenset({"params", "model", "_model"})
"""Attributes that Keras sets on any callback."""


def overrides(instance: Any, name: str, base: type) -> bool:
    """Whether an object's method differs from that of a base class."""
    method = inspect.getattr_static(type(instance), name, None)
    return name in vars(instance) or method is not inspect.getattr_static(base, name, None)


def is_of_package(instance: Any, name: str, package: str) -> bool:
    """Whether an object's method, if it has one of this name, is a package's own."""
    if name in vars(instance):
        return False
    owner = next((cls for cls in type(instance).__mro__ if name in vars(cls)), None)
    return owner is None or owner.__module__.partition(".")[0] == package


def profiles_batches(callback: Any) -> bool:
    """Whether a `TensorBoard` profiles certain batches."""
    return bool(callback._start_batch)


def masks_of(predictions: Any) -> list[tf.Tensor | None]:
    """Returns the masks of a nested structure of tensors, flat; a compiled function drops them."""
    return [getattr(each, "_keras_mask", None) for each in tf.nest.flatten(predictions)]


def restore_masks(predictions: Any, masks: list[tf.Tensor | None]) -> None:
    """Restores the masks of `masks_of` to where Keras looks for them."""
    for each, mask in zip(tf.nest.flatten(predictions), masks, strict=True):
        if mask is not None:
            each._keras_mask = mask
