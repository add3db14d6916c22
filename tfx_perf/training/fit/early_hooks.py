"""Callbacks are told that training begins before a plan is chosen, since they may change the model.

A plan is then tried, proven and traced on what is trained.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from tfx_perf.interception import FitCall
from tfx_perf.training.fit.batch_hooks import BATCH_HOOKS, is_keras_own
from tfx_perf.training.fit.fit_arguments import callback_list, is_container
from tfx_perf.training.keras_api.base_api import KerasApi

_SETTERS = ("set_params", "set_model")
_HOOKS = ("on_train_begin", "on_epoch_begin")


def may_change_the_model(callbacks: Any, module: Any) -> bool:
    """Whether a callback has code of its own that `fit` runs before its first step.

    Args:
        callbacks: as given to `fit`.
        module: the `callbacks` module of the model's Keras API.
    """
    return any(
        not is_keras_own(callback, hook, module)
        for callback in callback_list(callbacks)
        for hook in (*_SETTERS, *_HOOKS)
    )


@contextlib.contextmanager
def told(
    call: FitCall,
    keras_api: KerasApi,
    *,
    steps: int | None,
    is_resumed: bool = False,
    on_told_of_training: Callable[[], None] = lambda: None,
) -> Iterator[None]:
    """Tells callbacks of the training and of its first epoch; `fit` inside tells them of the rest.

    Args:
        call: the user's `fit`, which follows.
        keras_api: the model's.
        steps: of an epoch, None if unknown.
        is_resumed: whether `fit` tells them of the epoch, since it must bring them to it first.
        on_told_of_training: is called before they are told of the epoch.
    """
    hooks = ("on_train_begin",) if is_resumed else _HOOKS
    given, model, module = call.arguments["callbacks"], call.model, keras_api.callbacks
    callbacks = callback_list(given)
    hooks_before = [dict(vars(callback)) for callback in callbacks]
    with contextlib.ExitStack() as undo:
        with keras_api.calling_callbacks(model):
            model.stop_training = False
            container = given
            if not is_container(given):
                container = module.CallbackList(
                    callbacks,
                    add_history=False,
                    add_progbar=False,
                    model=model,
                    verbose=call.arguments["verbose"],
                    epochs=call.arguments["epochs"],
                    steps=steps,
                )
            container.on_train_begin()
            on_told_of_training()
            if not is_resumed:
                initial_epoch = call.arguments["initial_epoch"]
                container.on_epoch_begin(keras_api.first_epoch(model, initial_epoch, steps=steps))
        stops = model.stop_training
        added = [
            (callback, hook, vars(callback)[hook])
            for callback, before in zip(callbacks, hooks_before, strict=True)
            for hook in BATCH_HOOKS
            if vars(callback).get(hook) is not before.get(hook)
        ]

        def hide_added() -> None:
            """Is called while `fit` looks for hooks; tf_keras calls none that come later."""
            for callback, hook, _ in added:
                vars(callback).pop(hook, None)

        held = undo.enter_context(contextlib.ExitStack())
        held.enter_context(keras_api.holding_trainable(model))

        def begin() -> None:
            """Is called by `fit`, in which layers are what the callbacks have made of them."""
            for callback, hook, function in added:
                vars(callback)[hook] = function
            held.close()
            model.stop_training = model.stop_training or stops

        for callback in callbacks:
            for hook in hooks if is_container(given) else (*_SETTERS, *hooks):
                instead = begin if hook in _HOOKS else hide_added
                undo.enter_context(_passed_over(callback, hook, instead=instead))
        yield


@contextlib.contextmanager
def _passed_over(callback: Any, hook: str, *, instead: Callable[[], None]) -> Iterator[None]:
    """Has the next call of a callback's hook do something else."""
    own = vars(callback).get(hook)

    def leave() -> None:
        if vars(callback).get(hook) is skip:
            del vars(callback)[hook]
            if own is not None:
                vars(callback)[hook] = own

    def skip(*_: Any, **__: Any) -> None:
        leave()
        instead()

    vars(callback)[hook] = skip
    try:
        yield
    finally:
        leave()
