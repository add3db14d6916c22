"""Which of the two Keras lines a model belongs to."""

import importlib
from typing import Any

from tfx_perf.training.keras_api.base_line import Function, KerasLine
from tfx_perf.training.keras_api.keras3_line import Keras3
from tfx_perf.training.keras_api.tf_keras_line import TfKeras

__all__ = ["Function", "KerasLine", "line_of", "set_random_seed"]


def line_of(model: Any) -> KerasLine:
    """Returns the Keras line that `model` belongs to."""
    modules = {cls.__module__.partition(".")[0] for cls in type(model).__mro__}
    return TfKeras() if "tf_keras" in modules else Keras3()


def set_random_seed(seed: int) -> None:
    """Seeds Python, NumPy, TensorFlow and both Keras lines, each of which has a generator."""
    for package in ("keras", "tf_keras"):
        importlib.import_module(package).utils.set_random_seed(seed)
