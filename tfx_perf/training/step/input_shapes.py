"""InputShapes: the shapes for which XLA had to compile a step."""

from typing import Any

import tensorflow as tf


class InputShapes:
    """The different shapes of a compiled function's arguments.

    XLA compiles one program for each combination of them. TensorFlow does that silently: one
    trace with unknown dimensions serves them all. So the dimensions that a trace does not know
    are noted while the step runs; those that it knows cost nothing. What XLA compiles anew
    because it needs a tensor's *value* (the length of a `bincount`) is not seen.
    """

    def __init__(self) -> None:
        """Has seen none yet."""
        self._traced: dict[str, None] = {}
        self._ranks: tuple[int, ...] = ()
        self._seen: Any = None

    def note(self, arguments: Any) -> None:
        """Notes the shapes; to be called where the function is, while that is traced.

        Args:
            arguments: nested structure of tensors; None and others are passed over.
        """
        tensors = [
            tensor
            for tensor in tf.nest.flatten(arguments, expand_composites=True)
            if isinstance(tensor, tf.Tensor) and tensor.shape.rank
        ]
        if all(tensor.shape.is_fully_defined() for tensor in tensors):
            self._traced[_in_words(tuple(tensor.shape) for tensor in tensors)] = None
            return
        self._ranks = tuple(tensor.shape.rank for tensor in tensors)
        if self._seen is None:
            with tf.init_scope(), tf.device("CPU:0"):
                self._seen = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, 0)
        with tf.device("CPU:0"):
            dimensions = tf.concat([tf.shape(tensor) for tensor in tensors], axis=0)
            key = tf.strings.reduce_join(tf.strings.as_string(dimensions), separator=" ")
            self._seen.insert(key, tf.constant(1, tf.int64))

    def found(self) -> tuple[str, ...]:
        """Returns every combination of shapes, e.g. `32x8, 32x1`; equal ones stand once."""
        keys = [] if self._seen is None else sorted(self._seen.export()[0].numpy())
        return (*self._traced, *(_in_words(self._split(key.decode())) for key in keys))

    def _split(self, key: str) -> list[list[str]]:
        dimensions = iter(key.split())
        return [[next(dimensions) for _ in range(rank)] for rank in self._ranks]


def _in_words(shapes: Any) -> str:
    return ", ".join(dict.fromkeys("x".join(map(str, shape)) for shape in shapes))
