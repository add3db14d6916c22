"""The masks of predictions, which Keras keeps in attributes of tensors."""

from typing import Any

import tensorflow as tf


def of(predictions: Any) -> list[tf.Tensor | None]:
    """Returns the masks of a nested structure of tensors, flat; a compiled function drops them."""
    return [getattr(each, "_keras_mask", None) for each in tf.nest.flatten(predictions)]


def put_back(predictions: Any, masks: list[tf.Tensor | None]) -> None:
    """Puts masks that `of` returned to where Keras looks for them."""
    for each, mask in zip(tf.nest.flatten(predictions), masks, strict=True):
        if mask is not None:
            each._keras_mask = mask
