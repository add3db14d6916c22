"""Interprets `fit`'s arguments."""

import contextlib
import sys
from collections.abc import Iterator
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


def may_run_out(arguments: dict[str, Any]) -> bool:
    """Whether the data, whose length is unknown, may end in the middle of a call."""
    return bool(arguments["x"].cardinality() == tf.data.UNKNOWN_CARDINALITY)


def certain_length(arguments: dict[str, Any]) -> int | None:
    """Returns the steps that every epoch has unless it is stopped; None if the data may end it."""
    steps, batches = arguments["steps_per_epoch"], int(arguments["x"].cardinality())
    if steps is None or batches == tf.data.INFINITE_CARDINALITY:
        return length_of(arguments["x"], steps)
    epochs = arguments["epochs"] - arguments["initial_epoch"]
    return steps if batches >= steps * epochs else None


def callback_list(callbacks: Any) -> list[Any]:
    """Returns the user's argument `callbacks` (None, one, several) as a new list."""
    if is_container(callbacks):
        return list(callbacks.callbacks)
    return [] if callbacks is None else list(tf.nest.flatten(callbacks))


def is_container(callbacks: Any) -> bool:
    """Whether `callbacks` is a Keras `CallbackList`, which `fit` uses as it is."""
    packages = [sys.modules[name] for name in ("keras", "tf_keras") if name in sys.modules]
    return isinstance(callbacks, tuple(one.callbacks.CallbackList for one in packages))


@contextlib.contextmanager
def in_given(given: Any, callbacks: list[Any], *, model: Any) -> Iterator[Any]:
    """Yields a value for `fit`'s `callbacks` that makes it call all of `callbacks`.

    A `CallbackList` is used as it is: with it, `fit` makes no History and no progress bar.
    """
    if not is_container(given) or not all(any(a is b for b in callbacks) for a in given.callbacks):
        yield callbacks
        return
    before, given.callbacks = given.callbacks, callbacks
    for callback in callbacks:
        if not any(callback is one for one in before):
            callback.set_params(getattr(given, "params", None) or {})
            callback.set_model(model)
    try:
        yield given
    finally:
        given.callbacks = before
