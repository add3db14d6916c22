"""What has a state that is read and put back into what is there: generators, variables."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf


def _variables(value: Any) -> list[Any]:
    found = value.variables if hasattr(value, "variables") else [value]
    return list(found() if callable(found) else found)


def _is_variable(value: Any) -> bool:
    return hasattr(value, "assign") and hasattr(value, "trainable")


def _has_variables(value: Any) -> bool:
    """Whether it is a variable, or a metric, a model, an optimizer, a module."""
    if isinstance(value, type) or not (hasattr(value, "variables") or _is_variable(value)):
        return False
    return all(map(_is_variable, _variables(value)))


def _assign(value: Any, arrays: list[np.ndarray]) -> None:
    variables = _variables(value)
    if [tuple(variable.shape) for variable in variables] != [a.shape for a in arrays]:
        raise ValueError(f"the variables of {type(value).__name__} are not those that were saved")
    for variable, array in zip(variables, arrays, strict=True):
        variable.assign(array)


def _make(state: list[Any]) -> tf.Variable:
    value, trainable, name = state
    return tf.Variable(value, trainable=trainable, name=name)


# By kind, those that can be made anew: of what `read` had returned.
MAKERS: dict[str, Callable[[Any], Any]] = {"variable": _make}
# By kind: how such an object is recognised, and how its state is read and put back.
STATES: dict[str, tuple[Callable[[Any], bool], Callable[[Any], Any], Callable[..., None]]] = {
    "random.Random": (
        lambda value: type(value) is random.Random,
        random.Random.getstate,
        random.Random.setstate,
    ),
    "RandomState": (
        lambda value: type(value) is np.random.RandomState,
        np.random.RandomState.get_state,
        np.random.RandomState.set_state,
    ),
    "Generator": (
        lambda value: type(value) is np.random.Generator,
        lambda value: value.bit_generator.state,
        lambda value, state: setattr(value.bit_generator, "state", state),
    ),
    "variable": (
        lambda value: isinstance(value, tf.Variable) and not hasattr(value, "variables"),
        lambda value: [np.array(value), value.trainable, value.name.partition(":")[0]],
        lambda value, state: value.assign(state[0]),
    ),
    "variables": (
        _has_variables,
        lambda value: [np.array(variable) for variable in _variables(value)],
        _assign,
    ),
}
