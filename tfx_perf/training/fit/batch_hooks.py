"""Which callbacks need every batch, so that `fit` must count each step as a call."""

from typing import Any

from tfx_perf.training.fit.fit_arguments import callback_list
from tfx_perf.training.keras_api import callback_attributes

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

    Keras' own are made for several steps a call, but for those that save, write, profile or stop
    at a certain step.

    Args:
        callbacks: as given to `fit`.
        module: the `callbacks` module of the model's Keras API.
    """
    return next(filter(None, (_obstacle(each, module) for each in callback_list(callbacks))), None)


def is_keras_own(callback: Any, hook: str, module: Any) -> bool:
    """Whether a hook of a callback is Keras' own code.

    Args:
        callback: the user's.
        hook: its name.
        module: the `callbacks` module of the model's Keras API.
    """
    # As Keras calls it: it may be the instance's, and come from anywhere.
    found = getattr(callback, hook, None)
    if getattr(found, "__func__", None) is getattr(module.Callback, hook):
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
        if callback_attributes.profiles_batches(callback):
            return f"the callback {name} profiles certain batches"
    if isinstance(callback, module.TerminateOnNaN):
        return f"the callback {name} stops at the batch with a NaN"
    if not all(is_keras_own(callback, hook, module) for hook in BATCH_HOOKS):
        return f"the callback {name} acts on every batch"
    return None
