"""The hooks of callbacks: which need every batch, and which may change the model.

Callbacks get `on_train_begin` before a plan is chosen, so that the plan is tried, proven and traced
on the model that is trained.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from tfx_perf.core.interception import FitCall
from tfx_perf.training.fit.fit_arguments import callback_list, is_container
from tfx_perf.training.keras_api import private_attributes
from tfx_perf.training.keras_api.base_api import KerasApi
from tfx_perf.training.keras_api.variables import inner

BATCH_HOOKS = (
    "on_batch_begin",
    "on_batch_end",
    "on_train_batch_begin",
    "on_train_batch_end",
    "on_test_batch_begin",
    "on_test_batch_end",
)


def obstacle(callbacks: Any, module: Any) -> str | None:
    """Returns why a callback needs every batch; None if none does.

    Keras' own do not, except those that save, write, profile or stop at a certain step.
    """
    return next(filter(None, (_obstacle(each, module) for each in callback_list(callbacks))), None)


def is_keras_own(callback: Any, hook: str, module: Any) -> bool:
    """Whether a hook of a callback is Keras' own code."""
    # Looked up as Keras does: the instance may have its own hook, defined anywhere.
    method = getattr(callback, hook, None)
    if getattr(method, "__func__", None) is getattr(module.Callback, hook):
        return True
    is_of_keras = getattr(module, type(callback).__name__, None) is type(callback)
    return is_of_keras and hook not in getattr(callback, "__dict__", {})


def _obstacle(callback: Any, module: Any) -> str | None:
    name = type(callback).__name__
    if isinstance(getattr(callback, "save_freq", "epoch"), int):
        return f"the callback {name} saves after a number of batches"
    if isinstance(callback, module.TensorBoard):
        if callback.update_freq != "epoch":
            return f"the callback {name} writes after a number of batches"
        if private_attributes.profiles_batches(callback):
            return f"the callback {name} profiles certain batches"
    if isinstance(callback, module.TerminateOnNaN):
        return f"the callback {name} stops at the batch with a NaN"
    if not all(is_keras_own(callback, hook, module) for hook in BATCH_HOOKS):
        return f"the callback {name} acts on every batch"
    return None


_BEFORE_THE_FIRST_STEP = ("set_params", "set_model", "on_train_begin", "on_epoch_begin")


def may_change_the_model(callbacks: Any, module: Any) -> bool:
    """Whether a callback has code of its own that `fit` runs before its first step."""
    return any(
        not is_keras_own(callback, hook, module)
        for callback in callback_list(callbacks)
        for hook in _BEFORE_THE_FIRST_STEP
    )


@dataclasses.dataclass(frozen=True)
class EarlyCallbacks:
    """Callbacks that got `on_train_begin` before their `fit` runs."""

    callbacks: list[Any]
    knows_epoch: bool  # whether they got the first `on_epoch_begin`, too
    hide_added: Callable[[], None]  # hides hooks added meanwhile, which tf_keras never calls
    begin: Callable[[], None]  # restores these, and stops the model if a callback did
    restore_metrics: Callable[[], None]  # to their values after `on_epoch_begin`


@contextlib.contextmanager
def called_early(
    call: FitCall,
    keras_api: KerasApi,
    *,
    steps: int | None,
    is_resumed: bool = False,
    on_train_begun: Callable[[], None] = lambda: None,
) -> Iterator[EarlyCallbacks]:
    """Calls `on_train_begin` and the first `on_epoch_begin`; `fit` inside calls all other hooks.

    A resumed `fit` calls `on_epoch_begin` itself, since it must restore the callbacks first.
    """
    given, model, module = call.arguments["callbacks"], call.model, keras_api.callbacks
    callbacks = callback_list(given)
    metrics: list[tuple[Any, tf.Tensor]] = []
    hooks_before = [dict(_attributes(callback)) for callback in callbacks]
    with keras_api.calling_callbacks(model):
        model.stop_training = False
        container = given
        if not is_container(given):
            container = module.CallbackList(
                callbacks,
                add_history=True,
                add_progbar=False,
                model=model,
                verbose=keras_api.verbosity(call.arguments["verbose"]),
                epochs=call.arguments["epochs"],
                steps=steps,
            )
        container.on_train_begin()
        on_train_begun()
        if not is_resumed:
            initial_epoch = call.arguments["initial_epoch"]
            is_own = all(is_keras_own(each, "on_epoch_begin", module) for each in callbacks)
            # Not with several replicas: all workers would have to come here to read the metrics.
            acts = not is_own and model.distribute_strategy.num_replicas_in_sync == 1
            if acts:
                model.reset_metrics()  # as `fit` does earlier; callbacks may train
            container.on_epoch_begin(keras_api.first_epoch(model, initial_epoch, steps=steps))
            if acts:
                variables = [inner(each) for metric in model.metrics for each in metric.variables]
                metrics = [(each, each.read_value()) for each in variables]
    stops = model.stop_training
    added = [
        (callback, hook, _attributes(callback)[hook])
        for callback, before in zip(callbacks, hooks_before, strict=True)
        for hook in BATCH_HOOKS
        if _attributes(callback).get(hook) is not before.get(hook)
    ]

    def hide_added() -> None:
        for callback, hook, _ in added:
            vars(callback).pop(hook, None)

    def begin() -> None:
        for callback, hook, function in added:
            vars(callback)[hook] = function
        held.close()
        model.stop_training = model.stop_training or stops

    def restore_metrics() -> None:
        for variable, value in metrics:
            variable.assign(value)

    with contextlib.ExitStack() as held:
        held.enter_context(keras_api.holding_trainable(model))
        yield EarlyCallbacks(callbacks, not is_resumed, hide_added, begin, restore_metrics)


def _attributes(callback: Any) -> dict[str, Any]:
    return getattr(callback, "__dict__", {})
