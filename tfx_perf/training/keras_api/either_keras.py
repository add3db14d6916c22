"""Which of the two Keras APIs a model belongs to."""

import importlib
from typing import Any

from tfx_perf.core import interception
from tfx_perf.training.keras_api.base_api import KerasApi
from tfx_perf.training.keras_api.keras3_api import Keras3
from tfx_perf.training.keras_api.tf_keras_api import TfKeras


def api_of(model: Any) -> KerasApi:
    """Returns the Keras API that `model` belongs to."""
    modules = {cls.__module__.partition(".")[0] for cls in type(model).__mro__}
    return TfKeras() if "tf_keras" in modules else Keras3()


def apis() -> list[KerasApi]:
    """Returns the Keras APIs that are installed and compute with TensorFlow."""
    packages = {cls.__module__.partition(".")[0] for cls in interception.model_classes()}
    both: list[KerasApi] = [Keras3(), TfKeras()]
    return [each for each in both if each.package in packages and each.backend == "tensorflow"]


def set_random_seed(seed: int) -> None:
    """Seeds Python, NumPy, TensorFlow and both Keras APIs, each of which has a generator."""
    for package in ("keras", "tf_keras"):
        importlib.import_module(package).utils.set_random_seed(seed)
