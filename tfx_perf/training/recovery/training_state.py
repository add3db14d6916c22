"""TrainingState: everything but the data that decides how a training goes on."""

import json
import pathlib
import random
import sys
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.ops import stateful_random_ops

from tfx_perf.training.lines.base_line import KerasLine
from tfx_perf.training.recovery.callback_state import CallbackState

_VARIABLES, _GENERATORS = "variables", "generators.json"


class TrainingState:
    """Reads and writes the state of a model in training.

    Variables of the model (seed generators of Keras 3 included), its optimizer (slots, loss
    scale, learning rate), its metrics and its random layers; the generators of Python, NumPy
    and TensorFlow; the user's callbacks and the History.
    """

    def __init__(self, model: Any, line: KerasLine, callbacks: CallbackState) -> None:
        """Names what is to be saved; nothing is read yet.

        Args:
            model: a compiled model.
            line: the model's.
            callbacks: of the `fit`.
        """
        self._model = model
        self._line = line
        self._callbacks = callbacks

    def write(self, folder: pathlib.Path) -> None:
        """Writes the state into files.

        Raises:
            OSError: the files cannot be written; also `tf.errors.OpError`.
        """
        named = self._variables()
        tf.raw_ops.SaveV2(
            prefix=str(folder / _VARIABLES),
            tensor_names=list(named),
            shape_and_slices=[""] * len(named),
            tensors=[tf.convert_to_tensor(variable) for variable in named.values()],
        )
        (folder / _GENERATORS).write_text(json.dumps(_generators()))
        self._callbacks.write(folder)

    def read(self, folder: pathlib.Path) -> None:
        """Puts the variables and the generators back; not the callbacks.

        A metric that has no value in the files was not used before they were written.
        """
        reader = tf.train.load_checkpoint(str(folder / _VARIABLES))
        for name, variable in self._variables().items():
            if reader.has_tensor(name):
                variable.assign(reader.get_tensor(name))
        _set_generators(json.loads((folder / _GENERATORS).read_text()))

    def has_bad_weights(self) -> bool:
        """Whether NaN or Inf stands in the trainable variables or in the optimizer's."""
        optimizer = self._line.optimizer_variables(self._model)
        variables = [*self._model.trainable_variables, *optimizer]
        return any(
            tf.as_dtype(variable.dtype).is_floating
            and not bool(tf.reduce_all(tf.math.is_finite(tf.convert_to_tensor(variable))))
            for variable in variables
        )

    def _variables(self) -> dict[str, Any]:
        """Returns every variable that a step may change, under a name that does not change."""
        groups = {
            "state": self._line.state(self._model),
            "metric": self._line.metric_variables(self._model),
            "random": [*_of_random_layers(self._model), *_global_states()],
            "counter": [v for v in self._line.step_counters(self._model)[:1] if v is not None],
        }
        named, seen = {}, set()
        for group, variables in groups.items():
            for index, variable in enumerate(variables):
                identity = id(getattr(variable, "_value", variable))  # Keras 3 wraps variables
                if identity not in seen:
                    seen.add(identity)
                    named[f"{group}/{index}"] = variable
        return named


def _of_random_layers(model: Any) -> list[tf.Variable]:
    """Returns the states of tf_keras' generators, which are not the layers' variables."""
    found = (
        getattr(getattr(layer, "_random_generator", None), "_generator", None)
        for layer in model._flatten_layers()
    )
    return [generator.state for generator in found if generator is not None]


def _global_states() -> list[Any]:
    """Returns the states of the global generators of TensorFlow and Keras 3, if there are any."""
    states = []
    if stateful_random_ops.global_generator is not None:
        states.append(stateful_random_ops.global_generator.state)
    keras3 = sys.modules.get("keras.src.backend.common.global_state")
    generator = keras3.get_global_attribute("global_seed_generator") if keras3 else None
    return states if generator is None else [*states, generator.state]


def _generators() -> dict[str, Any]:
    name, keys, *rest = np.random.get_state()
    return {"python": random.getstate(), "numpy": [name, keys.tolist(), *rest]}


def _set_generators(states: dict[str, Any]) -> None:
    version, internal, gauss = states["python"]
    random.setstate((version, tuple(internal), gauss))
    name, keys, *rest = states["numpy"]
    np.random.set_state((name, np.array(keys, np.uint32), *rest))
