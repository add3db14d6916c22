"""Which of the two Keras lines a model belongs to."""

from typing import Any

from tfx_perf.training.base_line import Function, KerasLine
from tfx_perf.training.keras3_line import Keras3
from tfx_perf.training.tf_keras_line import TfKeras

__all__ = ["Function", "KerasLine", "line_of"]


def line_of(model: Any) -> KerasLine:
    """Returns the Keras line that `model` belongs to."""
    modules = {cls.__module__.partition(".")[0] for cls in type(model).__mro__}
    return TfKeras() if "tf_keras" in modules else Keras3()
