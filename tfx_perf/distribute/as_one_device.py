"""Changes each `fit` so that several replicas or devices train as one."""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

from tfx_perf.config.distribution import DistributionSettings
from tfx_perf.core import errors, interception
from tfx_perf.core.interception import FitCall
from tfx_perf.distribute import reduction, replicas, together
from tfx_perf.distribute.model_parallel.placing import over_devices
from tfx_perf.training.fit.fit_arguments import callback_list, in_given
from tfx_perf.training.keras_api import either_keras, per_row_rng, random_layers
from tfx_perf.training.keras_api.base_api import KerasApi, Tensors, traced_apart
from tfx_perf.training.measuring.accounts import Placement
from tfx_perf.training.replicas import strategies
from tfx_perf.training.replicas.sync import Sync
from tfx_perf.training.step import evaluation
from tfx_perf.training.step.split_step import SplitStep


@contextlib.contextmanager
def trained(
    call: FitCall, distribution: DistributionSettings
) -> Iterator[tuple[FitCall, Placement | None]]:
    """Yields a `fit` that trains as on one device in the context, and its layers' placement.

    Raises UserError if it cannot, or if the workers would not train the same model.
    """
    model, keras_api = call.model, either_keras.api_of(call.model)
    sync = Sync(model.distribute_strategy)
    if sync.size > 1:
        together.check_same_start(call, sync)
    is_alone = strategies.servers_of(model.distribute_strategy) is not None
    draws_by_rows = distribution.sharding_invariant_random and not is_alone
    with (
        drawing_by_rows(model, keras_api) if draws_by_rows else contextlib.nullcontext(),
        over_replicas(
            model,
            keras_api,
            reduction_dtype=distribution.reduction_dtype,
            draws_by_rows=draws_by_rows,
        ),
        _counting_rows(model, keras_api),
        evaluation.as_one_device(),
        over_devices(call, distribution) as placement,
    ):
        yield _together(call, keras_api, sync), placement


def _together(call: FitCall, keras_api: KerasApi, sync: Sync) -> FitCall:
    """Returns a `fit` whose replicas end each epoch alike; UserError if they cannot train."""
    if call.model.distribute_strategy.num_replicas_in_sync == 1:
        return call

    @functools.wraps(call.original)
    def fit(model: Any, **arguments: Any) -> Any:
        given = arguments["callbacks"]
        watched = [
            together.averaging(model, keras_api, sync),
            *callback_list(given),
            together.stopping_together(model, keras_api, sync),
        ]
        with in_given(given, watched, model=model) as used, together.checking_share(sync):
            return call.original(model, **{**arguments, "callbacks": used})

    return dataclasses.replace(call, original=fit)


def over_replicas(
    model: Any,
    keras_api: KerasApi,
    *,
    reduction_dtype: str | None = None,
    draws_by_rows: bool = False,
) -> contextlib.AbstractContextManager[None]:
    """Returns a context in which replicas train as one device; UserError if an optimizer cannot."""
    is_keras3 = keras_api.package == "keras"
    if model.distribute_strategy.num_replicas_in_sync == 1:
        # Keras 3 needs these replacements even if a strategy has only one replica.
        return interception.replacing_all(replicas.in_some_steps() if is_keras3 else ())
    if is_keras3:
        return replicas.as_one_device(
            model, reduction_dtype=reduction_dtype, draws_by_rows=draws_by_rows
        )
    return reduction.of_tf_keras(model, keras_api, dtype=reduction_dtype)


@contextlib.contextmanager
def drawing_by_rows(model: Any, keras_api: KerasApi) -> Iterator[None]:
    """Has random layers draw by rows in the context, see `per_row_rng`; UserError if impossible."""
    if keras_api.overrides_train_step(model):
        raise errors.UserError(
            "Expected Keras' own train_step, to draw random numbers by the row. Received: "
            "distribution.sharding_invariant_random=True and a model with a train_step of its "
            "own. Override compute_loss instead, or leave the setting out."
        )
    is_keras3 = keras_api.package == "keras"
    with (
        traced_apart(model),
        per_row_rng.lasting(),
        replicas.drawing_by_rows() if is_keras3 else random_layers.drawing_by_rows(model),
    ):
        yield


@contextlib.contextmanager
def _counting_rows(model: Any, keras_api: KerasApi) -> Iterator[None]:
    """Has Keras' own step weight the means of several replicas by their rows in the context.

    Keras weights all alike, and a replica without rows makes Keras 3's BatchNorm compute NaN.
    """
    if model.distribute_strategy.num_replicas_in_sync == 1:
        yield
        return

    def of_parts(original: Callable[..., Any]) -> Callable[..., Any]:
        def train_step(self: Any, data: Tensors) -> dict[str, Any]:
            if self is not model or keras_api.parts_obstacle(model):
                return original(self, data)
            return SplitStep(model, keras_api).run(data)

        return train_step

    with interception.replacing(keras_api.model_class, "train_step", of_parts):
        yield
