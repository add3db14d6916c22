"""What our step functions cannot take over from Keras' `fit`, and why."""

from typing import Any

import tensorflow as tf

from tfx_perf.interception import FitCall
from tfx_perf.training.loop import Loop, length_of

_STRATEGIES = (tf.distribute.MirroredStrategy, tf.distribute.OneDeviceStrategy)
_BATCH_HOOKS = ("on_batch_begin", "on_batch_end", "on_train_batch_begin", "on_train_batch_end")


def obstacle(call: FitCall, loop: Loop) -> str | None:
    """Returns why `call` must stay with Keras' own `fit`, None if it need not.

    Args:
        call: the user's `fit`.
        loop: the loop that would run it.
    """
    model, arguments = call.model, call.arguments
    strategy = model.distribute_strategy
    default_strategy = strategy is tf.distribute.get_strategy()
    if not isinstance(arguments["x"], tf.data.Dataset):
        return f"x is a {type(arguments['x']).__name__}, not a tf.data.Dataset"
    if model.run_eagerly:
        return "the model runs eagerly"
    if getattr(model, "optimizer", None) is None:
        return "the model is not compiled with an optimizer"
    if not (default_strategy or isinstance(strategy, _STRATEGIES)):
        return f"{type(strategy).__name__} is not supported yet"
    if length_of(arguments["x"], arguments["steps_per_epoch"]) is None:
        return "the number of steps in an epoch is unknown; pass steps_per_epoch"
    callback = _per_batch_callback(arguments["callbacks"] or (), loop.line.callbacks)
    if callback:
        return f"the callback {callback} acts on every batch"
    return None


def _per_batch_callback(callbacks: Any, module: Any) -> str | None:
    """Returns the name of a callback of the user's own that has hooks for batches.

    Keras' own callbacks are made for several steps per execution.
    """
    for callback in callbacks if isinstance(callbacks, (list, tuple)) else [callbacks]:
        own = getattr(module, type(callback).__name__, None) is type(callback)
        is_lambda = isinstance(callback, module.LambdaCallback)
        for hook in _BATCH_HOOKS:
            overridden = getattr(type(callback), hook, None) is not getattr(module.Callback, hook)
            if (overridden and not own) or (is_lambda and hook in vars(callback)):
                return type(callback).__name__
    return None
