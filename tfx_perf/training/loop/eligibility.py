"""Reasons why our step functions cannot take over a `fit` from Keras."""

from typing import Any

import tensorflow as tf

from tfx_perf.core.interception import FitCall
from tfx_perf.training.fit import callback_hooks
from tfx_perf.training.fit.fit_arguments import callback_list, length_of, may_run_out
from tfx_perf.training.loop.fit_loop import FitLoop
from tfx_perf.training.replicas import strategies

_STRATEGIES = (
    tf.distribute.MirroredStrategy,
    tf.distribute.MultiWorkerMirroredStrategy,
    tf.distribute.OneDeviceStrategy,
)
_UNKNOWN_LENGTH = (
    "the number of batches in the data is unknown, {why}; set it with "
    "data.apply(tf.data.experimental.assert_cardinality(steps)), or pass steps_per_epoch and "
    "data.repeat()"
)
_FUNCTION_MAKERS = ("make_train_function", "make_test_function")


def obstacle(call: FitCall, loop: FitLoop) -> str | None:
    """Returns why `call` must stay with Keras' `fit`, None if it need not."""
    model, arguments = call.model, call.arguments
    return (
        _kind_obstacle(call, loop)
        or _model_obstacle(model, loop)
        or _data_obstacle(call, loop)
        or loop.hooks_obstacle
        or _resumption_obstacle(arguments["callbacks"], loop.keras_api.callbacks)
    )


def recovery_obstacle(call: FitCall, loop: FitLoop) -> str | None:
    """Returns why `call` can be neither saved nor rolled back, None if it can."""
    arguments = call.arguments
    obstacle = _kind_obstacle(call, loop)
    if obstacle:
        return obstacle
    resuming = getattr(loop.keras_api.callbacks, "BackupAndRestore", ())
    if any(isinstance(callback, resuming) for callback in callback_list(arguments["callbacks"])):
        return "the callback BackupAndRestore saves and resumes it"
    batches, steps = length_of(arguments["x"], None), arguments["steps_per_epoch"]
    # Keras 3 itself counts when to restart the data; a resumed fit would count differently.
    counts = loop.keras_api.overcounts and steps and batches
    if counts and (loop.users_steps_per_execution > 1 or batches % steps):
        return "the data may end in the middle of an epoch"
    return _model_obstacle(call.model, loop)


def _kind_obstacle(call: FitCall, loop: FitLoop) -> str | None:
    backend = loop.keras_api.backend
    if backend != "tensorflow":
        return f"Keras trains with {backend}, not with TensorFlow"
    data, strategy = call.arguments["x"], call.model.distribute_strategy
    if not isinstance(data, tf.data.Dataset):
        return f"x is a {type(data).__name__}, not a tf.data.Dataset"
    # Inside the scope of a strategy, `get_strategy` returns that strategy, of whatever kind.
    is_default = strategy is tf.distribute.get_strategy() and not tf.distribute.has_strategy()
    if not (is_default or isinstance(strategy, _STRATEGIES)):
        return f"{strategies.name(strategy)} is not supported yet"
    return None


def _model_obstacle(model: Any, loop: FitLoop) -> str | None:
    if getattr(model, "optimizer", None) is None:
        return "the model is not compiled with an optimizer"
    if not hasattr(model.optimizer, "iterations"):  # it may be a list of optimizers
        return f"the model is compiled with a {type(model.optimizer).__name__} as its optimizer"
    if model.run_eagerly or tf.config.functions_run_eagerly():
        return "the model runs eagerly"
    if getattr(model, "autotune_steps_per_execution", False):
        return "Keras tunes the steps per execution"
    for name in _FUNCTION_MAKERS:
        if getattr(type(model), name) is not getattr(loop.keras_api.model_class, name):
            return f"the model has its own {name}"
    return None


def _data_obstacle(call: FitCall, loop: FitLoop) -> str | None:
    arguments, length = call.arguments, loop.train_length
    per_call = loop.users_steps_per_execution
    if may_run_out(arguments) and per_call > 1:
        return _UNKNOWN_LENGTH.format(why=f"and the model has steps_per_execution={per_call}")
    if may_run_out(arguments) and call.model.distribute_strategy.num_replicas_in_sync > 1:
        return _UNKNOWN_LENGTH.format(why="and several replicas share them")
    if length == 0:
        return "there are no training data"
    if arguments["epochs"] <= arguments["initial_epoch"]:
        return "there are no epochs to train"
    batches, steps = length_of(arguments["x"], None), arguments["steps_per_epoch"]
    if loop.keras_api.overcounts and steps and steps % per_call:
        return f"Keras runs more steps than steps_per_epoch={steps}, in calls of {per_call}"
    if steps and batches:
        epochs = arguments["epochs"] - arguments["initial_epoch"]
        # Keras 3 restarts the data if they end together with an epoch.
        restarts = loop.keras_api.overcounts and not batches % steps
        if batches < steps * epochs and not restarts:
            return "the data end before the training does"
    if steps and may_run_out(arguments) and loop.keras_api.overrides_train_step(call.model):
        return "the data may end within an epoch, and the last logs of its own train_step be lost"
    return None


def _resumption_obstacle(callbacks: Any, module: Any) -> str | None:
    """Returns why callbacks cannot be notified of the first epoch before `fit` does it."""
    resuming = getattr(module, "BackupAndRestore", ())
    resumes = any(isinstance(each, resuming) for each in callback_list(callbacks))
    if resumes and callback_hooks.may_change_the_model(callbacks, module):
        return "BackupAndRestore decides in which epoch other callbacks begin"
    return None
