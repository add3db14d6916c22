"""Takes over Keras `Model.fit` while a user's unmodified training code runs.

The way experiment trackers log automatically: the class attribute is replaced for as long
as a context lasts, in `keras` and in `tf_keras` (importing `tensorflow_transform` turns
`tf.keras` into the latter), and put back whatever happens.
"""

import contextlib
import dataclasses
import functools
import importlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any

from tfx_perf import errors

_KERAS_PACKAGES = ("keras", "tf_keras")


@dataclasses.dataclass(frozen=True)
class FitCall:
    """One call of `Model.fit`, not yet carried out.

    Attributes:
        model: the compiled Keras model.
        arguments: every argument of `fit` by name, defaults filled in.
        original: Keras' own unbound `fit`.
    """

    model: Any
    arguments: dict[str, Any]
    original: Callable[..., Any]

    def proceed(self, **overrides: Any) -> Any:
        """Runs Keras' own `fit` with the arguments, some replaced, and returns its History."""
        return self.original(self.model, **{**self.arguments, **overrides})


def _model_classes() -> list[type]:
    classes = []
    for name in _KERAS_PACKAGES:
        try:
            classes.append(importlib.import_module(name).Model)
        except ImportError:  # only one of the two Keras lines is installed
            continue
    return classes


@contextlib.contextmanager
def intercepting_fit(handler: Callable[[FitCall], Any]) -> Iterator[None]:
    """Sends every outermost `Model.fit` inside the context to `handler`.

    What `handler` returns is what `fit` returns. A `fit` that is called while the handler
    runs (by the handler itself, or by Keras) is Keras' own.

    Args:
        handler: called with the `FitCall` in place of `fit`.
    """
    busy = False

    def replacement_for(original: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(original)

        @functools.wraps(original)
        def fit(self: Any, *args: Any, **kwargs: Any) -> Any:
            nonlocal busy
            if busy:
                return original(self, *args, **kwargs)
            bound = signature.bind(self, *args, **kwargs)
            bound.apply_defaults()
            arguments = dict(bound.arguments)
            arguments.pop("self")
            arguments.update(arguments.pop("kwargs", {}))
            busy = True
            try:
                return handler(FitCall(self, arguments, original))
            finally:
                busy = False

        return fit

    with contextlib.ExitStack() as undo:
        for cls in _model_classes():
            if "fit" in vars(cls):
                undo.callback(setattr, cls, "fit", vars(cls)["fit"])
            else:  # inherited: removing ours uncovers it again
                undo.callback(delattr, cls, "fit")
            cls.fit = replacement_for(cls.fit)
        yield


class _CapturedError(BaseException):
    """Unwinds the user's code; a BaseException, so that `except Exception` lets it pass."""

    def __init__(self, found: Any) -> None:
        self.found = found


def capture_fit(
    run: Callable[[], Any], look: Callable[[FitCall], Any] = lambda call: call
) -> Any:
    """Runs the user's code up to its first `Model.fit`; returns that `FitCall`, not carried out.

    Args:
        run: the training code; it is abandoned where it calls `fit`.
        look: called with the `FitCall` while the user's scopes and files are still open; what
            it returns is returned instead.

    Raises:
        UserError: `run` came to its end without calling `fit`.
    """

    def stop(call: FitCall) -> None:
        raise _CapturedError(look(call))

    try:
        with intercepting_fit(stop):
            run()
    except _CapturedError as captured:
        return captured.found
    raise errors.UserError(
        "Expected the training code to call Keras Model.fit. Received: it ended without. "
        "A custom training loop cannot be captured; use tfx_perf.fit in it instead."
    )
