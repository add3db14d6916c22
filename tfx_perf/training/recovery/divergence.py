"""DivergenceError: a training whose loss or weights are no longer finite, and where that began."""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from tfx_perf.tf_internals.graphs import QuickFunction
from tfx_perf.training.keras_api.base_api import KerasApi, learning_rate
from tfx_perf.training.replicas import strategies

Logs = dict[str, Any]

_REMEDIES = {
    "input": "Fix or filter out these examples, or replace the values when they are parsed.",
    "target": "Fix or filter out these examples.",
    "sample weight": "Fix or filter out these examples.",
    "learning rate": "Give the optimizer, or the callback that sets it, a finite learning rate.",
    "weight": "Lower the learning rate or clip the gradients (clipnorm of the optimizer).",
    "gradient": "Look for a function without a finite slope there (sqrt, log, norm or division "
    "at 0), lower the learning rate or clip the gradients (clipnorm of the optimizer).",
}
_REMEDY = (
    "Look for log(0), a division by 0 or an overflow in the model or its loss, or lower the "
    "learning rate."
)


class DivergenceError(ArithmeticError):  # noqa: N818 (an event that training recovers from)
    """The loss or the weights are NaN or Inf, or the loss is too large; steps count from 1."""

    def __init__(self, what: str, *, first_step: int, last_step: int) -> None:
        super().__init__(f"{what} after step {last_step}")
        self.what = what
        self.first_step = first_step
        self.last_step = last_step


@dataclasses.dataclass(frozen=True)
class BadTensor:
    """The first tensor that is not finite."""

    step: int  # counted from 1
    kind: str  # as in `_REMEDIES`, `output` or `loss`
    name: str  # of the feature or variable; empty if the kind says all
    bad_count: int  # how many of `size` values are NaN or Inf
    size: int
    place: str = ""  # replicas or workers with bad values; empty if all have them

    def __str__(self) -> str:
        values = "1 value" if self.size == 1 else f"{self.size} values"
        name = f" {self.name}" if self.name else ""
        place = f", on {self.place}" if self.place else ""
        return f"{self.kind}{name}, {self.bad_count} of {values}{place}"

    @property
    def remedy(self) -> str:
        """Something that may help, in one sentence."""
        return _REMEDIES.get(self.kind, _REMEDY)


class NumericsCheck:
    """Trains as Keras' `fit` would, and checks every tensor of the steps that may be to blame."""

    def __init__(
        self,
        model: Any,
        keras_api: KerasApi,
        *,
        divergence: DivergenceError,
        steps_done: Callable[[], int],
    ) -> None:
        self._divergence = divergence
        self.found: BadTensor | None = None  # the first bad tensor
        self._model = model
        self._keras_api = keras_api
        self._steps_done = steps_done
        self._names: list[tuple[str, str]] = []
        self._function = QuickFunction(self._step)

    def suspects(self, steps: int) -> bool:
        """Whether some of the next steps may be to blame."""
        done = self._steps_done()
        return done + steps >= self._divergence.first_step and done < self._divergence.last_step

    def run(self, iterator: Any, steps: int) -> Logs:
        """Runs steps one by one; raises DivergenceError at the first bad tensor."""
        logs = {}
        for index in range(steps):
            logs, bad_counts, sizes = self._function(next(iterator))
            for (kind, name), bad, size in zip(
                self._names, bad_counts.numpy(), sizes.numpy(), strict=True
            ):
                if bad.any():
                    step = self._steps_done() + index + 1
                    self.found = BadTensor(
                        step, kind, name, int(bad.sum()), int(size), self._place(bad)
                    )
                    raise DivergenceError(str(self.found), first_step=step, last_step=step)
        return logs

    def _place(self, bad_counts: np.ndarray) -> str:
        """Returns the names of the replicas with bad values; empty if all have them."""
        if bad_counts.all():
            return ""
        strategy = self._model.distribute_strategy
        replicas = np.flatnonzero(bad_counts)
        return " and ".join(strategies.describe_replica(strategy, each) for each in replicas)

    def _step(self, batch: Any) -> tuple[Logs, tf.Tensor, tf.Tensor]:
        strategy = self._model.distribute_strategy
        logs, *counts = strategy.run(self._checked_step, args=(batch,))
        for reduced in strategies.of_replicas, strategies.of_workers:
            logs = reduced(strategy, logs, reduction=self._keras_api.reduction)
            counts = reduced(strategy, counts, reduction="SUM")
        return logs, *counts

    def _checked_step(self, batch: Any) -> tuple[Logs, tf.Tensor, tf.Tensor]:
        """Returns logs and, for `_names`, counts of bad values in this replica's column, sizes."""
        model, keras_api = self._model, self._keras_api
        x, y, weight = keras_api.unpack(batch)
        tensors = [*_named("input", x), *_named("target", y), *_named("sample weight", weight)]
        rate = learning_rate(model.optimizer)
        if not callable(rate):  # a schedule
            tensors += _named("learning rate", rate)
        if keras_api.splitting_obstacle(model) or keras_api.scales_loss(model):
            logs = model.train_step(batch)
            tensors += _named("loss", logs.get("loss"))
        else:
            with tf.GradientTape() as tape:
                y_pred = keras_api.forward(model, x)
                loss = keras_api.loss(model, x, y, y_pred, weight)
            gradients = tape.gradient(loss, model.trainable_variables)
            tensors += [*_named("output", y_pred), *_named("loss", loss)]
            for variable, gradient in zip(model.trainable_variables, gradients, strict=True):
                tensors += _named("gradient", gradient, _name(variable))
            keras_api.apply(model, gradients)
            logs = keras_api.metrics(model, x, y, y_pred, weight)
        for variable in model.trainable_variables:
            tensors += _named("weight", tf.convert_to_tensor(variable), _name(variable))
        floats = [(key, tensor) for key, tensor in tensors if tensor.dtype.is_floating]
        self._names = [key for key, _ in floats]
        bad = [tf.reduce_sum(tf.cast(~tf.math.is_finite(v), tf.int64)) for _, v in floats]
        context = tf.distribute.get_replica_context()
        column = tf.one_hot(
            context.replica_id_in_sync_group, context.num_replicas_in_sync, dtype=tf.int64
        )
        sizes = tf.stack([tf.size(v, tf.int64) for _, v in floats])
        return logs, tf.stack(bad)[:, None] * column, sizes


def _name(variable: Any) -> str:
    return getattr(variable, "path", variable.name)  # the name of Keras 3 has no layer


def _named(
    kind: str, structure: Any, name: str = ""
) -> Iterator[tuple[tuple[str, str], tf.Tensor]]:
    if isinstance(structure, dict):
        for key, item in structure.items():
            yield from _named(kind, item, f"{name}[{key!r}]")
    elif isinstance(structure, (list, tuple)):
        for index, item in enumerate(structure):
            yield from _named(kind, item, f"{name}[{index}]")
    elif isinstance(structure, (tf.SparseTensor, tf.IndexedSlices)):
        yield (kind, name), structure.values
    elif isinstance(structure, tf.RaggedTensor):
        yield (kind, name), structure.flat_values
    elif structure is not None:
        yield (kind, name), tf.convert_to_tensor(structure)
