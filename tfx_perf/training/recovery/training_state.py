"""TrainingState: everything besides data and callbacks that decides how a training continues."""

import collections
import dataclasses
import json
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfx_perf.core import records
from tfx_perf.tf_internals import random_state
from tfx_perf.training.keras_api import keras3_api, variables
from tfx_perf.training.keras_api.base_api import KerasApi
from tfx_perf.training.recovery import generators
from tfx_perf.training.replicas.sync import Sync, folder_of

_VARIABLES, _GENERATORS = "variables", "generators.json"
_REPLICA = "/replica/"  # between a variable's name and the index of one of several replicas
_HOST = "CPU:0"
_NAMED = 3  # most mismatched variables that an error names


class Writers(records.Record):
    """The number of processes that train together, and of all their replicas."""

    workers: int = 1
    replicas: int = 1

    @classmethod
    def of(cls, model: Any) -> "Writers":
        """Returns the numbers for the processes, this one included, that train a model."""
        strategy = model.distribute_strategy
        return cls(workers=Sync(strategy).size, replicas=strategy.num_replicas_in_sync)

    def part(self, folder: pathlib.Path, worker: int) -> pathlib.Path:
        """Returns a worker's part of a checkpoint; the first one's if there was no such worker."""
        return folder / folder_of(worker if worker < self.workers else 0, self.workers)

    def __str__(self) -> str:
        if self.workers > 1:
            return f"{self.workers} workers"
        return f"{self.replicas} replicas" if self.replicas > 1 else "one device"


class StateMismatchError(Exception):
    """A saved state's variables differ from the model's."""


@dataclasses.dataclass(frozen=True)
class StateSnapshot:
    """A state in memory: variables by path, and `generators.states`."""

    values: dict[str, tf.Tensor]
    generators: dict[str, Any]


class TrainingState:
    """Reads and writes the state of a model in training.

    It comprises every variable reachable from the model or used by its traced train function, and
    the generators of Python, NumPy and TensorFlow.
    """

    def __init__(
        self,
        model: Any,
        keras_api: KerasApi,
        *,
        used: Callable[[], Iterable[tf.Variable]] = tuple,
        sync: Sync | None = None,
    ) -> None:
        self._model = model
        self._keras_api = keras_api
        self._used = used
        self._sync = sync or Sync()

    def snapshot(self) -> StateSnapshot:
        """Returns the state; on a CPU without copies, as assigned variables get new buffers."""
        with tf.device(_HOST):
            values = {name: tf.identity(each) for name, each in self._variables().items()}
        return StateSnapshot(values, generators.states())

    def restore(self, snapshot: StateSnapshot) -> None:
        """Restores a state; raises StateMismatchError, changing nothing, if variables differ."""
        self._assign(snapshot.values)
        generators.restore(snapshot.generators)

    def write(self, folder: pathlib.Path) -> None:
        """Writes the state, shared parts on the chief; raises OSError or `tf.errors.OpError`."""
        named = self._variables(only_own=not self._sync.is_chief)
        if named:
            tf.raw_ops.SaveV2(
                prefix=str(folder / _VARIABLES),
                tensor_names=list(named),
                shape_and_slices=[""] * len(named),
                tensors=[tf.convert_to_tensor(variable) for variable in named.values()],
            )
        (folder / _GENERATORS).write_text(json.dumps(generators.states()))

    def read(self, folder: pathlib.Path, writers: Writers) -> None:
        """Restores the state from `write`; raises StateMismatchError as `restore` does."""
        has_other_writers = writers != Writers.of(self._model)
        index = self._sync.rank
        values: dict[str, np.ndarray] = {}  # by name, from the last part that has it
        copies: dict[str, list[np.ndarray]] = collections.defaultdict(list)
        for worker in range(writers.workers) if has_other_writers else sorted({0, index}):
            for name, value in _saved_in(writers.part(folder, worker)):
                values[name] = value
                copies[_base_of(name)[0]].append(value)
        self._assign(self._redistributed(copies) if has_other_writers else values)
        if index < writers.workers:
            file = writers.part(folder, index) / _GENERATORS
            generators.restore(json.loads(file.read_text()))

    def _redistributed(self, copies: Mapping[str, list[np.ndarray]]) -> dict[str, np.ndarray]:
        containers, same = self._containers()
        sums = self._replica_sums()
        replicas = self._model.distribute_strategy.num_replicas_in_sync
        first = self._sync.rank * max(1, replicas // self._sync.size)
        values = {name: parts[0] for name, parts in copies.items() if name not in containers}
        for name in self._variables():
            base, number = _base_of(name)
            variable = containers[base]
            if base in copies and id(variable) in same:
                values[name] = copies[base][0]
            elif base in copies:
                aggregation = getattr(variable, "aggregation", tf.VariableAggregation.NONE)
                if id(variable) in sums:
                    aggregation = tf.VariableAggregation.SUM
                values[name] = redistributed(copies[base], aggregation, replica=first + number)
        return values

    def bad_weights(self) -> set[int]:
        """Returns the ids of variables that spoil the training.

        They are trained weights and sums of their gradients with NaN or Inf, and other optimizer
        variables with NaN. In the latter, Inf need not be an error: a loss scale may grow to it,
        and a weight whose Adagrad accumulator is Inf takes steps of 0.
        """
        summed = self._replica_sums()
        weights = [variables.inner(variable) for variable in self._model.trainable_variables]
        spoiled = {id(each) for each in weights if _has(each, _not_finite)}
        for each in self._keras_api.optimizer_variables(self._model):
            if _has(each, _not_finite if id(each) in summed else tf.math.is_nan):
                spoiled.add(id(variables.inner(each)))
        return spoiled

    def _assign(self, values: Mapping[str, Any]) -> None:
        present = self._variables()
        differing = {
            name for name in values.keys() ^ present.keys() if not self._keras_api.is_random(name)
        }
        if differing:
            shown = ", ".join(sorted(differing)[:_NAMED])
            raise StateMismatchError(
                f"{len(differing)} variables are only in one of the model and the saved state: "
                f"{shown}"
            )
        common = [name for name in present if name in values]
        for name in common:
            if tuple(values[name].shape) != tuple(present[name].shape):
                raise StateMismatchError(
                    f"{name} has the shape {tuple(present[name].shape)} in the model and "
                    f"{tuple(values[name].shape)} in the saved state"
                )
        for name in common:
            present[name].assign(values[name])

    def _variables(self, *, only_own: bool = False) -> dict[str, tf.Variable]:
        """Returns every variable that a step may change, under a stable name.

        Trained weights and the optimizer's variables are the same on all replicas and workers; with
        `only_own` they are left out. Others (metrics, moving averages, seeds, gradient sums) may
        have a separate value on each replica of this worker.
        """
        named, same = self._containers()
        by_name = {}
        for name, variable in named.items():
            if id(variable) not in same:
                first, *rest = variables.components(variable) or (variable,)
                by_name[name] = first
                for index, part in enumerate(rest, start=1):
                    by_name[f"{name}{_REPLICA}{index}"] = part
            elif not only_own:
                by_name[name] = variable
        return by_name

    def _containers(self) -> tuple[dict[str, tf.Variable], set[int]]:
        """Returns the variables by name, and the ids of those that are the same for all workers."""
        named = self._keras_api.named_state(self._model)
        for index, state in enumerate(_global_states()):
            named[f"global/{index}"] = state
        known = {id(part) for each in named.values() for part in variables.with_components(each)}
        others = {id(each): each for each in self._used() if id(each) not in known}
        counts: dict[str, int] = collections.Counter()
        for variable in variables.in_order_of_creation(others.values()):
            named[f"used/{variable.name}/{counts[variable.name]}"] = variable
            counts[variable.name] += 1
        model = self._model
        optimizer = self._keras_api.optimizer_variables(model)
        same = {id(variables.inner(each)) for each in (*model.trainable_variables, *optimizer)}
        return named, same - self._replica_sums()

    def _replica_sums(self) -> set[int]:
        return {id(each) for each in self._keras_api.replica_sums(self._model)}


def _saved_in(part: pathlib.Path) -> Iterator[tuple[str, np.ndarray]]:
    """Yields the variables in a worker's part of a checkpoint, in the order of its replicas."""
    if (part / f"{_VARIABLES}.index").exists():
        reader = tf.train.load_checkpoint(str(part / _VARIABLES))
        for name in sorted(reader.get_variable_to_shape_map(), key=_base_of):
            yield name, reader.get_tensor(name)


def _base_of(name: str) -> tuple[str, int]:
    """Returns a variable's name and the index of its replica among those of its worker."""
    base, _, number = name.partition(_REPLICA)
    return base, int(number or 0)


def redistributed(
    values: Sequence[np.ndarray], aggregation: tf.VariableAggregation, *, replica: int
) -> np.ndarray:
    """Returns a new replica's value of a variable that had one value on each old replica.

    Sums over all replicas, as metrics are read, stay the same; means are averaged.
    """
    first = np.asarray(values[0])
    if aggregation == tf.VariableAggregation.SUM:
        return np.sum(values, axis=0, dtype=first.dtype) if replica == 0 else np.zeros_like(first)
    if aggregation == tf.VariableAggregation.MEAN:
        return np.mean(values, axis=0, dtype=first.dtype)
    return np.asarray(values[replica]) if replica < len(values) else first


def _has(variable: tf.Variable, what: Callable[[tf.Tensor], tf.Tensor]) -> bool:
    if not tf.as_dtype(variable.dtype).is_floating:
        return False
    return bool(tf.reduce_any(what(tf.convert_to_tensor(variable))))


def _not_finite(values: tf.Tensor) -> tf.Tensor:
    return ~tf.math.is_finite(values)


def _global_states() -> list[tf.Variable]:
    states = (random_state.global_generator_state(), keras3_api.global_generator_state())
    return [state for state in states if state is not None]
