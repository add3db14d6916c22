"""StartingPoint: the values from which every trial begins, exactly or changed a little."""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfx_perf.training.keras_api.base_api import all_layers, with_numbers
from tfx_perf.training.keras_api.traced_numbers import TracedNumbers
from tfx_perf.training.keras_api.variables import inner
from tfx_perf.training.trials.variant import BuiltUnder, Variant

# Where Keras 3 and `tf.random.Generator` keep what their next numbers follow from.
_GENERATORS = ("seed_generator_state", "StateVar")
_EPSILONS = {
    tf.float16: 2.0**-10,
    tf.bfloat16: 2.0**-7,
    tf.float32: 2.0**-23,
    tf.float64: 2.0**-52,
}


class StartingPoint:
    """The variables of all variants as they are now, kept on the host.

    Attributes:
        has_generators: whether the user's own model draws numbers from variables.
    """

    def __init__(self, variants: Mapping[BuiltUnder, Variant]) -> None:
        """Reads the variables."""
        self._values: dict[int, tuple[Any, np.ndarray]] = {}
        for variant in variants.values():
            strategy = variant.call.model.distribute_strategy
            for variable in variables_of(variant).values():
                for part in _parts(variable, strategy):
                    self._values.setdefault(id(part), (part, part.numpy()))
        own = variants[None]
        self._trained = {id(inner(each)) for each in own.call.model.trainable_variables}
        self._epsilon = _epsilon_of_computation(own.call.model)
        self._generators = {
            id(part)
            for variable in variables_of(own).values()
            if _is_generator(variable)
            for part in _parts(variable, own.call.model.distribute_strategy)
        }
        self.has_generators = bool(self._generators)
        models = [variant.call.model for variant in variants.values()]
        self._numbers = TracedNumbers(lambda: itertools.chain(*map(with_numbers, models)))

    def restore(self) -> None:
        """Puts all values back, and the numbers that tracing changes."""
        for variable, value in self._values.values():
            variable.assign(value)
        self._numbers.put_back()

    def restore_rounded(self) -> None:
        """Puts all values back, those that are trained with an error in the last place.

        The last place is that of the type that the model computes in: what a trained variable
        says beyond it, the forward pass rounds away.
        """
        self.restore()
        for variable, error in self._rounding_errors():
            variable.assign_add(error)

    def take_rounding_away(self) -> None:
        """Takes from the variables what `restore_rounded` added, so that its effects are left."""
        for variable, error in self._rounding_errors():
            variable.assign_sub(error)

    def restore_redrawn(self, seed: int) -> None:
        """Puts all values back, and has the generators of the model draw other numbers."""
        self.restore()
        for key in self._generators:
            variable, value = self._values[key]
            variable.assign(value + np.asarray(seed, value.dtype))

    def _rounding_errors(self) -> Iterator[tuple[Any, np.ndarray]]:
        """Yields trained variables with an error of each element, the same ones every time."""
        random = np.random.default_rng(0)
        for key, (variable, value) in self._values.items():
            own = epsilon_of(variable.dtype)
            if key in self._trained and own:
                signs = random.integers(0, 2, size=value.shape, dtype=np.int8) * 2 - 1
                yield variable, value * (max(own, self._epsilon) * signs).astype(value.dtype)


def variables_of(variant: Variant) -> dict[str, tf.Variable]:
    """Returns all that a training step may change, by the names that users know."""
    return _named(variant.loop.keras_api.state(variant.call.model))


def _parts(variable: Any, strategy: tf.distribute.Strategy) -> Sequence[Any]:
    """Returns what is read and assigned by itself.

    The parts of replicas that are added up where they are read, as those of a metric: to assign
    their sum would have all workers add them up once more.
    """
    own = inner(variable)
    if getattr(own, "synchronization", None) == tf.VariableSynchronization.ON_READ:
        return strategy.experimental_local_results(own)
    return (variable,)


def epsilon_of(dtype: Any) -> float:
    """Returns the relative distance of neighbouring numbers; 0 for whole numbers."""
    return _EPSILONS.get(tf.as_dtype(dtype), 0.0)


def _epsilon_of_computation(model: Any) -> float:
    types = {getattr(layer, "compute_dtype", None) for layer in all_layers(model)}
    return max((epsilon_of(name) for name in types if name), default=0.0)


def _is_generator(variable: tf.Variable) -> bool:
    return variable.name.partition(":")[0].rpartition("/")[2] in _GENERATORS


def _named(variables: Iterable[Any]) -> dict[str, tf.Variable]:
    found: dict[str, tf.Variable] = {}
    for variable in variables:
        name = own = getattr(variable, "path", variable.name)
        for number in range(2, 2 + len(found)):
            if name not in found:
                break
            name = f"{own} ({number})"
        found[name] = variable
    return found
