"""Where trials begin: the model's variables, and others that a step may change."""

import contextlib
import gc
import itertools
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfx_perf.training.keras_api.base_api import KerasApi, all_layers, trace_state_holders
from tfx_perf.training.keras_api.keras_function import TraceState
from tfx_perf.training.keras_api.variables import components, inner, with_components
from tfx_perf.training.recovery import generators

# Names of the variables with the random state of Keras 3 and of `tf.random.Generator`.
_GENERATORS = ("seed_generator_state", "StateVar")
_EPSILONS = {tf.float16: 2.0**-10, tf.bfloat16: 2.0**-7, tf.float32: 2.0**-23, tf.float64: 2.0**-52}
# Most bytes to copy of variables outside the model, which most steps do not change.
_MOST_BYTES = 2**28

_LOGGER = logging.getLogger(__name__)


class InitialState:
    """The values from which every trial begins, exactly or changed a little; kept on the host."""

    def __init__(self, model: Any, keras_api: KerasApi) -> None:
        self._values: dict[int, tuple[Any, np.ndarray]] = {}
        self._generators: set[int] = set()
        for variable in variables_of(model, keras_api).values():
            for part in _parts(variable, model.distribute_strategy):
                self._values.setdefault(id(part), (part, part.numpy()))
                if variable.name.partition(":")[0].rpartition("/")[2] in _GENERATORS:
                    self._generators.add(id(part))
        self._trained = {id(inner(each)) for each in model.trainable_variables}
        self._epsilon = _epsilon_of_computation(model)
        self.has_generators = bool(self._generators)  # whether the model draws from variables
        self._numbers = TraceState(lambda: trace_state_holders(model))

    def restore(self) -> None:
        """Restores all values, and the numbers that tracing changes."""
        for variable, value in self._values.values():
            variable.assign(value)
        self._numbers.restore()

    def restore_rounded(self, seed: int) -> None:
        """Restores all values, the trained ones with an error in the last place.

        The last place is that of the model's compute dtype, to which the forward pass rounds.
        """
        self.restore()
        for variable, error in self._rounding_errors(seed):
            variable.assign_add(error)

    def subtract_rounding(self, seed: int) -> None:
        """Subtracts the errors of `restore_rounded`, so that only their effects are left."""
        for variable, error in self._rounding_errors(seed):
            variable.assign_sub(error)

    def restore_redrawn(self, seed: int) -> None:
        """Restores all values, and makes the generators of the model draw other numbers."""
        self.restore()
        for key in self._generators:
            variable, value = self._values[key]
            variable.assign(value + np.asarray(seed, value.dtype))

    def _rounding_errors(self, seed: int) -> Iterator[tuple[Any, np.ndarray]]:
        """Yields trained variables with an error for each element; a seed fixes the errors."""
        random = np.random.default_rng(seed)
        for key, (variable, value) in self._values.items():
            rounding = epsilon_of(variable.dtype)
            if key in self._trained and rounding:
                signs = random.integers(0, 2, size=value.shape, dtype=np.int8) * 2 - 1
                yield variable, value * (max(rounding, self._epsilon) * signs).astype(value.dtype)


def variables_of(model: Any, keras_api: KerasApi) -> dict[str, tf.Variable]:
    """Returns all variables that a training step may change, by the names that users know."""
    by_name: dict[str, tf.Variable] = {}
    for variable in keras_api.state(model):
        path = getattr(variable, "path", variable.name)
        names = itertools.chain([path], (f"{path} ({number})" for number in itertools.count(2)))
        by_name[next(name for name in names if name not in by_name)] = variable
    return by_name


def variables_outside(*, beside: Iterable[tf.Variable]) -> list[tf.Variable] | None:
    """Returns the process's variables other than `beside`; None if they need too much memory.

    A step may use one as a counter, for annealing, or in a `tf.random.Generator`; it is not known
    which before the step has run. A variable on several devices is returned in its parts: reading
    it would sum the parts of all workers, and another worker may have deleted it.
    """
    known = {id(part) for variable in beside for part in with_components(variable)}
    classes: list[type] = [tf.Variable]
    for cls in classes:  # which grows
        classes += cls.__subclasses__()
    outside, size_bytes = [], 0
    # Not `get_objects`: holding a tuple that another thread is building is an error there.
    for each in gc.get_referrers(*classes):
        if type(each) not in classes or id(each) in known:
            continue
        with contextlib.suppress(Exception):  # a graph's, or deleted
            if components(each):
                continue
            size_bytes += each.shape.num_elements() * max(1, each.dtype.size)
            outside.append(each)
    return outside if size_bytes <= _MOST_BYTES else None


@contextlib.contextmanager
def kept(
    outside: Iterable[tf.Variable], *, used: Callable[[], Iterable[tf.Variable] | None]
) -> Iterator[None]:
    """Restores random generators and used variables; other threads may train the rest."""
    values: list[tuple[tf.Variable, np.ndarray]] = []
    for variable in outside:
        with contextlib.suppress(Exception):  # without a value, or on a device that is gone
            values.append((variable, variable.numpy()))
    with generators.kept():
        try:
            yield
        finally:
            known = used()
            names = known and {id(part) for each in known for part in with_components(each)}
            for variable, value in values:
                if names is not None and id(variable) not in names:
                    continue
                try:
                    variable.assign(value)
                except Exception as error:
                    _LOGGER.warning("Tuning may have changed %s: %s", variable.name, error)


def _parts(variable: Any, strategy: tf.distribute.Strategy) -> Sequence[Any]:
    """Returns the parts to assign separately, as workers would sum up a metric's parts again."""
    held = inner(variable)
    if getattr(held, "synchronization", None) == tf.VariableSynchronization.ON_READ:
        return strategy.experimental_local_results(held)
    return (variable,)


def epsilon_of(dtype: Any) -> float:
    """Returns the relative distance of neighboring numbers; 0 for whole numbers."""
    return _EPSILONS.get(tf.as_dtype(dtype), 0.0)


def _epsilon_of_computation(model: Any) -> float:
    types = {getattr(layer, "compute_dtype", None) for layer in all_layers(model)}
    return max((epsilon_of(name) for name in types if name), default=0.0)
