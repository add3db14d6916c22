"""Makes evaluations and predictions over replicas give the results of one device."""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

from tfx_perf.core import interception
from tfx_perf.training.keras_api import either_keras, keras3_api
from tfx_perf.training.keras_api.base_api import KerasApi, Tensors
from tfx_perf.training.step import replica_part

_LASTING: list[bool] = []  # one for each active context


@contextlib.contextmanager
def as_one_device() -> Iterator[None]:
    """Makes all models evaluate and predict as on one device in the context; may be nested."""
    with contextlib.ExitStack() as undo:
        for keras_api in () if _LASTING else either_keras.apis():
            if keras_api.package == "keras":
                undo.enter_context(keras3_api.evaluating())
            counting = functools.partial(_counting_rows, keras_api)
            undo.enter_context(interception.replacing(keras_api.model_class, "test_step", counting))
        _LASTING.append(True)
        try:
            yield
        finally:
            _LASTING.pop()


def _counting_rows(keras_api: KerasApi, original: Callable[..., Any]) -> Callable[..., Any]:
    def test_step(model: Any, data: Tensors) -> dict[str, Any]:
        part = replica_part.part_of(data, model=model, keras_api=keras_api)
        if part is None:
            return original(model, data)
        if keras_api.overrides_metrics(model):  # then a replica without rows has logs, too
            with keras_api.counting(model, part):
                return original(model, data)

        def counted() -> dict[str, Any]:
            # Without results: tf_keras asks all replicas for them, but some may have no rows.
            with keras_api.counting(model, part), keras_api.without_results(model):
                return original(model, data)

        # Code that asks others lets them trace their steps meanwhile, which use the same metrics.
        replica_part.computed_from_rows(counted, data, asking_others=lambda: original(model, data))
        return model.get_metrics_result()

    return test_step
