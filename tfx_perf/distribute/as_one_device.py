"""Changes each `fit` so that several replicas or devices train as one."""

import contextlib
import dataclasses
import functools
import logging
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tfx_perf.config.distribution import DistributionSettings
from tfx_perf.core import errors, interception
from tfx_perf.core.interception import FitCall
from tfx_perf.distribute import reduction, replicas
from tfx_perf.distribute.model_parallel.placing import over_devices
from tfx_perf.training.fit.fit_arguments import callback_list, in_given, length_of
from tfx_perf.training.keras_api import either_keras, per_row_rng, random_layers, variables
from tfx_perf.training.keras_api.base_api import KerasApi, Tensors, traced_apart
from tfx_perf.training.measuring.accounts import Placement
from tfx_perf.training.replicas import strategies
from tfx_perf.training.replicas.sync import LostWorkerError, Sync
from tfx_perf.training.step import evaluation
from tfx_perf.training.step.split_step import SplitStep

_TOO_FEW_FILES = "FILE based sharding"
_NO_STEP = "(Empty logs)"

_LOGGER = logging.getLogger(__name__)


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
        check_same_start(call, sync)
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
            averaging(model, keras_api, sync),
            *callback_list(given),
            stopping_together(model, keras_api, sync),
        ]
        with in_given(given, watched, model=model) as used, checking_share(sync):
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
        return replicas.in_keras3(
            model, reduction_dtype=reduction_dtype, draws_by_rows=draws_by_rows
        )
    return reduction.in_tf_keras(model, keras_api, dtype=reduction_dtype)


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


def check_same_start(call: FitCall, sync: Sync) -> None:
    """Raises UserError if a worker is about to train something other than the first one."""
    arguments, model = call.arguments, call.model
    weights = model.trainable_variables if model.built else ()
    remedy = "Have every worker build, compile and fit the same"
    _compare(
        {
            "epochs": arguments["epochs"] - arguments["initial_epoch"],
            "steps_per_epoch": length_of(arguments["x"], arguments["steps_per_epoch"]),
            "validation data": arguments["validation_data"] is not None,
            "batches": getattr(arguments["x"], "element_spec", type(arguments["x"])),
            "an optimizer": type(model.optimizer).__name__,
            "variables": [(each.shape, each.dtype) for each in weights],
        },
        sync=sync,
        remedy=f"{remedy}.",
    )
    _compare(
        {
            f"weights in {getattr(variable, 'path', variable.name)}": np.asarray(
                tf.convert_to_tensor(variable)
            )
            for variable in weights
        },
        sync=sync,
        remedy=f"{remedy}; set weights on all of them, from the same file or seed.",
    )


def _compare(values: Mapping[str, Any], *, sync: Sync, remedy: str) -> None:
    if not values:  # nothing is built, and TensorFlow gathers no empty tensors
        return
    of_all_replicas = sync.all_gather([zlib.crc32(_bytes(value)) for value in values.values()])
    for name, of_all in zip(values, of_all_replicas.T, strict=True):
        others = np.flatnonzero(of_all != of_all[0])
        if len(others):
            with contextlib.suppress(LostWorkerError):  # one may end before another has the answer
                sync.all_gather([0])
            raise errors.UserError(
                f"Expected all {sync.size} workers to train the same. Received: worker "
                f"{others[0]} has other {name} than worker 0. {remedy}"
            )


def _bytes(value: Any) -> Any:
    return np.ascontiguousarray(value) if isinstance(value, np.ndarray) else str(value).encode()


@contextlib.contextmanager
def checking_share(sync: Sync) -> Iterator[None]:
    """Raises UserError if this worker gets no batch, or there are fewer files than workers.

    TensorFlow raises its error only in the first workers; the others see the end of their data.
    """
    try:
        yield
    except (StopIteration, ValueError, tf.errors.InvalidArgumentError) as error:
        received = _received(error, sync)
        if sync.size == 1 or received is None:
            raise
        raise errors.UserError(
            f"Expected batches for each of {sync.size} workers. Received: {received}. Have the "
            "workers divide rows: `options.experimental_distribute.auto_shard_policy = "
            "tf.data.experimental.AutoShardPolicy.DATA` in the dataset's `tf.data.Options`; or "
            f"have at least {sync.size} files, and rows for every worker."
        ) from error


def _received(error: Exception, sync: Sync) -> str | None:
    if _TOO_FEW_FILES in str(error):
        return "fewer files than workers"
    if isinstance(error, StopIteration) or _NO_STEP in str(error):
        return f"none for worker {sync.rank}"
    return None


def stopping_together(model: Any, keras_api: KerasApi, sync: Sync) -> Any:
    """Returns the last callback, which stops all workers after an epoch if one of them stops."""

    def ask(epoch: int, logs: Any = None) -> None:
        stops = sync.all_gather([bool(model.stop_training)])[:, 0]
        if stops.any() and not model.stop_training:
            first = int(np.argmax(stops))
            _LOGGER.warning("Worker %d stops the training after epoch %d.", first, epoch + 1)
            model.stop_training = True

    return keras_api.callback(on_epoch_end=ask)


def averaging(model: Any, keras_api: KerasApi, sync: Sync) -> Any:
    """Returns the first callback, which averages variables over replicas after each epoch.

    Moving averages, as in BatchNorm, are linear: replicas that begin an epoch with their mean end
    it with the same mean. All validate with it, and later callbacks save it. Values that are equal
    on all replicas stay so, to the last bit.
    """
    averaged: list[tf.Variable] = []  # by the function traced last
    average: Any = None

    def at_end_of_epoch(*_: Any) -> None:  # or before its validation
        nonlocal averaged, average
        differing = _differing(model, sync)
        if not differing:
            return
        if [id(each) for each in differing] != [id(each) for each in averaged]:
            averaged, average = differing, _to_means(differing, model.distribute_strategy)
        average()

    return keras_api.callback(on_test_begin=at_end_of_epoch, on_epoch_end=at_end_of_epoch)


def _differing(model: Any, sync: Sync) -> list[tf.Variable]:
    """Returns variables with a separate value on each replica; LostWorkerError without a worker."""
    states = [variables.inner(each) for each in model.non_trainable_weights]
    states = [each for each in states if each.dtype.is_floating]
    if not states:
        return []
    digests = sync.all_gather([_digest(each) for each in states])
    is_same = np.all((digests == digests[0]) & (digests >= 0), axis=0)
    return [variable for variable, same in zip(states, is_same, strict=True) if not same]


def _to_means(differing: list[tf.Variable], strategy: tf.distribute.Strategy) -> Any:
    def average() -> None:
        # A value read from a variable lacks the device by which its replica is found.
        values = [tf.identity(tf.convert_to_tensor(each)) for each in differing]
        context = tf.distribute.get_replica_context()
        means = context.all_reduce(tf.distribute.ReduceOp.MEAN, values)
        for variable, mean in zip(differing, means, strict=True):
            variable.assign(mean)

    return tf.function(lambda: strategy.run(average), autograph=False)


def _digest(variable: tf.Variable) -> int:
    """Returns a checksum of the value; -1 if this process's replicas have different values."""
    parts = variables.components(variable) or (variable,)
    checksums = {zlib.crc32(part.numpy().tobytes()) for part in parts}
    return checksums.pop() if len(checksums) == 1 else -1
