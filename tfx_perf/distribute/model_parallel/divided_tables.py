"""Embeddings that no device can hold, cut by rows over devices while `fit` runs."""

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from tfx_perf.core import interception
from tfx_perf.training.keras_api import slots, variables
from tfx_perf.training.keras_api.base_api import KerasApi, optimizers

# Optimizers that treat each element of a weight by itself.
_ELEMENTWISE = {
    "SGD", "Adam", "AdamW", "Adagrad", "Adadelta", "Adamax", "Nadam", "RMSprop", "Ftrl", "Lion",
    "LossScaleOptimizer", "LossScaleOptimizerV3",
}  # fmt: skip
_SAVING = ("save", "save_weights", "export")


def obstacle(layer: Any, model: Any, keras_api: KerasApi) -> str | None:
    """Returns why a layer cannot be cut by rows, None if it can."""
    if getattr(type(layer), "call", None) is not keras_api.layers.Embedding.call:
        return "it is not a Keras Embedding"
    if layer.embeddings_regularizer or layer.embeddings_constraint or len(layer.weights) > 1:
        return "its rows depend on each other"
    for optimizer in optimizers(model):
        name = type(optimizer).__name__
        if name not in _ELEMENTWISE or getattr(optimizer, "clipnorm", None):
            return f"{name} updates all its rows together"
    return None


def row_counts(table: Any, count: int) -> list[int]:
    """Returns how many rows each part of a table has, as `tf.nn.embedding_lookup` expects."""
    rows, rest = divmod(table.shape[0], count)
    return [rows + (index < rest) for index in range(count)]


@contextlib.contextmanager
def divided(
    layers: Sequence[Any], model: Any, keras_api: KerasApi, *, devices: Sequence[str]
) -> Iterator[None]:
    """Divides rows of embeddings without `obstacle`, and their optimizers' slots, over devices.

    While the context lasts, model and optimizers have the parts, except while the model is saved.
    """
    tables = _Tables(layers, model, keras_api, devices)

    def saving(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def save(saved: Any, *args: Any, **kwargs: Any) -> Any:
            if saved is not model or not tables.are_divided:
                return original(saved, *args, **kwargs)
            tables.join()
            try:
                return original(saved, *args, **kwargs)
            finally:
                tables.divide()

        return save

    with contextlib.ExitStack() as undo:
        for name in _SAVING if layers else ():
            if hasattr(keras_api.model_class, name):
                replaced = interception.replacing(keras_api.model_class, name, saving)
                undo.enter_context(replaced)
        tables.divide()
        undo.callback(tables.join)
        yield


class _Tables:
    """Tables that can be divided and put together."""

    def __init__(
        self, layers: Sequence[Any], model: Any, keras_api: KerasApi, devices: Sequence[str]
    ) -> None:
        self.are_divided = False
        self._devices, self._keras_api = devices, keras_api
        self._cut: list[tuple[Any, list[Any]]] = []  # whole variables with their parts
        # An object, a name, and the attribute as a whole (None if the class has it) and divided.
        self._attributes: list[tuple[Any, str, Any, Any]] = []
        whole = list(model.trainable_variables)
        slot_lists = [slots.lists_of(each, whole) for each in optimizers(model)]
        for layer in layers:
            self._divide_layer(layer)
        parts = {id(table): parts for table, parts in self._cut}
        for optimizer, lists in zip(optimizers(model), slot_lists, strict=True):
            self._divide_optimizer(optimizer, lists, whole=whole, parts=parts)

    def divide(self) -> None:
        for holder, name, _, divided in self._attributes:
            vars(holder)[name] = divided  # bypasses `__setattr__`, where Keras would track it
        self.are_divided = True

    def join(self) -> None:
        for holder, name, whole, _ in self._attributes:
            if whole is None:
                del vars(holder)[name]
            else:
                vars(holder)[name] = whole
        for table, parts in self._cut:
            target = variables.innermost(table)
            with tf.device(target.device):
                rows = [variables.innermost(part).read_value() for part in parts]
                target.assign(tf.concat(rows, axis=0))
        self.are_divided = False

    def _divide_layer(self, layer: Any) -> None:
        (table,) = layer.weights
        parts = self._parts(table)
        for name, held in variables.lists_with(layer, table).items():
            self._attributes.append((layer, name, held, _replaced(held, {id(table): parts})))
        # For layers that read another layer's table, and get all rows.
        rows = of_parts(list(map(variables.innermost, parts)))
        for name, held in vars(layer).items():
            if held is table:
                self._attributes.append((layer, name, table, rows))
        self._attributes.append((layer, "call", None, _lookup(layer, rows)))

    def _divide_optimizer(
        self,
        optimizer: Any,
        lists: dict[str, list[Any]],
        *,
        whole: list[Any],
        parts: dict[int, list[Any]],
    ) -> None:
        for name, held in lists.items():
            in_parts = {
                id(slot): self._parts(slot)
                for table, slot in zip(whole, held, strict=True)
                if id(table) in parts and slot is not None
            }
            self._attributes.append((optimizer, name, held, _replaced(held, in_parts)))
        trained = _replaced(whole, parts)
        for name, divided in slots.order_of(optimizer, trained).items():
            self._attributes.append((optimizer, name, vars(optimizer)[name], divided))

    def _parts(self, whole: Any) -> list[Any]:
        values = variables.innermost(whole).read_value()
        counts = row_counts(values, len(self._devices))
        parts = []
        for device, rows in zip(self._devices, tf.split(values, counts), strict=True):
            with tf.device(device):
                parts.append(self._keras_api.variable_like(whole, rows))
        self._cut.append((whole, parts))
        return parts


def _replaced(held: Sequence[Any], parts: dict[int, list[Any]]) -> list[Any]:
    return [each for item in held for each in parts.get(id(item), [item])]


def _lookup(layer: Any, rows: Any) -> Callable[[Any], Any]:
    """Returns a `call` that computes what an Embedding does, from a `ShardedVariable`."""

    @tf.autograph.experimental.do_not_convert
    def call(inputs: Any) -> Any:
        ids = inputs if tf.as_dtype(inputs.dtype).is_integer else tf.cast(inputs, tf.int32)
        gathered = tf.nn.embedding_lookup(rows, ids)  # gathers each part's rows where they are
        return tf.cast(gathered, layer.compute_dtype)

    return call


def of_parts(parts: Sequence[tf.Variable]) -> Any:
    """Returns parts as one table for `tf.nn.embedding_lookup`; the first may have one row more."""
    return tf.__internal__.distribute.ShardedVariable(list(parts))
