"""Replicas whose parts of a batch have different numbers of rows, the last batch's say.

Keras has the means of all replicas count alike. On one device every row does: there a replica's
mean is worth its share of the rows. One without rows has Keras 3's BatchNorm compute NaN.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from tfx_perf import interception
from tfx_perf.training.keras_api.base_api import KerasApi, Tensors
from tfx_perf.training.step.split_step import SplitStep


@contextlib.contextmanager
def counting_rows(model: Any, keras_api: KerasApi) -> Iterator[None]:
    """Has Keras' own step count rows, too, while the context lasts, if there are several replicas.

    Args:
        model: compiled.
        keras_api: the model's.
    """
    if model.distribute_strategy.num_replicas_in_sync == 1:
        yield
        return

    def of_parts(own: Callable[..., Any]) -> Callable[..., Any]:
        def train_step(self: Any, data: Tensors) -> dict[str, Any]:
            if self is not model or keras_api.parts_obstacle(model):
                return own(self, data)
            return SplitStep(model, keras_api, xla=False).run(data)

        return train_step

    with interception.replacing(keras_api.model_class, "train_step", of_parts):
        yield
