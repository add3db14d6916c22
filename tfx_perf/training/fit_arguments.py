"""How `fit`'s arguments are to be read."""

from typing import Any

import tensorflow as tf


def length_of(data: Any, step_count: int | None) -> int | None:
    """Returns how many steps an epoch over `data` has, None if that is unknown."""
    if step_count is not None and step_count > 0:
        return step_count
    if not isinstance(data, tf.data.Dataset):
        return None
    cardinality = int(data.cardinality())
    return cardinality if cardinality >= 0 else None


def callback_list(callbacks: Any) -> list[Any]:
    """Returns what the user may have given to `fit` (None, one, several) as a new list."""
    callbacks = getattr(callbacks, "callbacks", callbacks)  # a CallbackList
    return [] if callbacks is None else list(tf.nest.flatten(callbacks))
