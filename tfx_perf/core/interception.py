"""Takes over Keras `Model.fit` while a user's unmodified training code runs.

As with experiment trackers that log automatically, the class attribute is replaced while a context
lasts, in `keras` and in `tf_keras` (importing `tensorflow_transform` turns `tf.keras` into the
latter), and restored whatever happens.
"""

import contextlib
import dataclasses
import functools
import importlib
import inspect
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tfx_perf.core import errors

_KERAS_PACKAGES = ("keras", "tf_keras")


def _fit(  # noqa: PLR0917 (as in Keras)
    self: Any, x: Any = None, y: Any = None, batch_size: Any = None, epochs: Any = 1,
    verbose: Any = "auto", callbacks: Any = None, validation_split: Any = 0.0,
    validation_data: Any = None, shuffle: Any = True, class_weight: Any = None,
    sample_weight: Any = None, initial_epoch: Any = 0, steps_per_epoch: Any = None,
    validation_steps: Any = None, validation_batch_size: Any = None, validation_freq: Any = 1,
    **kwargs: Any,
) -> None:  # fmt: skip
    """Has the arguments of `fit` that both Keras lines have, in their order."""


_KNOWN = inspect.signature(_fit)


@dataclasses.dataclass(frozen=True)
class FitCall:
    """One call of `Model.fit`, not yet carried out.

    Attributes:
        model: the compiled Keras model.
        arguments: every argument of `fit` by name, defaults filled in.
        original: Keras' own unbound `fit`, or its wrapper for several replicas.
    """

    model: Any
    arguments: dict[str, Any]
    original: Callable[..., Any]

    @property
    def package(self) -> str:
        """The Keras package: `keras` or `tf_keras`."""
        return self.original.__module__.partition(".")[0]

    def proceed(self, **overrides: Any) -> Any:
        """Runs `original` with the arguments, some replaced, and returns its History."""
        return self.original(self.model, **{**self.arguments, **overrides})


def model_classes() -> list[type]:
    """Returns `Model` of every Keras line that can be imported."""
    classes = []
    for name in _KERAS_PACKAGES:
        with contextlib.suppress(Exception):  # not installed, or its backend is not
            classes.append(importlib.import_module(name).Model)
    return classes


@contextlib.contextmanager
def replacing(
    owner: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> Iterator[None]:
    """Replaces a function for as long as the context lasts.

    Args:
        owner: a class, whose subclasses that override the method reach ours through `super()`; an
            object, without effect on others of its class; or a module.
        name: name of the function.
        make: returns the replacement, given the original function.
    """
    before = getattr(owner, name)  # first, because a module may load it only here
    attribute, made = vars(owner).get(name), make(before)
    setattr(owner, name, made)
    try:
        yield
    finally:
        is_ours = vars(owner).get(name) is made  # otherwise the replacement of others stays
        if is_ours and attribute is None:  # inherited: removing ours uncovers it again
            delattr(owner, name)
        elif is_ours:
            setattr(owner, name, attribute)


Replacement = tuple[Any, str, Callable[..., Any]]
"""The arguments of one `replacing`."""


@contextlib.contextmanager
def replacing_all(replacements: Iterable[Replacement]) -> Iterator[None]:
    """Replaces functions for as long as the context lasts, later ones around earlier ones."""
    with contextlib.ExitStack() as undo:
        for replacement in replacements:
            undo.enter_context(replacing(*replacement))
        yield


@dataclasses.dataclass(eq=False)
class _Interceptor:
    """An open `intercepting_fit`.

    Attributes:
        handler: called with the `FitCall` instead of `fit`.
        thread: the thread that opened it.
        busy: the threads in which the handler runs.
    """

    handler: Callable[[FitCall], Any]
    thread: int
    busy: set[int] = dataclasses.field(default_factory=set)


# One list per process, like the class attribute. Threads may close theirs in any order.
_OPEN: list[_Interceptor] = []
_PATCHES = contextlib.ExitStack()
_CHANGING = threading.Lock()


@contextlib.contextmanager
def intercepting_fit(handler: Callable[[FitCall], Any]) -> Iterator[None]:
    """Sends every outermost `Model.fit` inside the context to `handler`, from any thread.

    `fit` returns the result of `handler`. A `fit` that the handler or Keras calls is Keras' own.
    One in another thread is sent to the handler, too, even while it runs. If several contexts are
    open, a thread's calls go to the innermost one of its own, otherwise to the innermost of all.

    Args:
        handler: called with the `FitCall` instead of `fit`.
    """
    opened = _Interceptor(handler, threading.get_ident())
    with _CHANGING:
        if not _OPEN:
            fits = ((cls, "fit", _intercepted) for cls in model_classes())
            _PATCHES.enter_context(replacing_all(fits))
        _OPEN.append(opened)
    try:
        yield
    finally:
        with _CHANGING:
            _OPEN.remove(opened)
            if not _OPEN:
                _PATCHES.close()


def _intercepted(original: Callable[..., Any]) -> Callable[..., Any]:
    signature = _signature(original)

    @functools.wraps(original)
    def fit(self: Any, *args: Any, **kwargs: Any) -> Any:
        thread = threading.get_ident()
        interceptor = _interceptor_of(thread)
        if interceptor is None or thread in interceptor.busy:
            return original(self, *args, **kwargs)
        try:
            arguments = _named(signature.bind(self, *args, **kwargs))
        except TypeError:
            return original(self, *args, **kwargs)  # which raises it with the function's name
        interceptor.busy.add(thread)
        try:
            return interceptor.handler(FitCall(self, arguments, original))
        finally:
            interceptor.busy.discard(thread)

    return fit


def _interceptor_of(thread: int) -> _Interceptor | None:
    """Returns the interceptor for a thread's calls; None if all were closed meanwhile."""
    opened = list(_OPEN)
    innermost = [each for each in opened if each.thread == thread] or opened
    return innermost[-1] if innermost else None


def _named(bound: inspect.BoundArguments) -> dict[str, Any]:
    """Returns the arguments by name, defaults filled in, without the model."""
    bound.apply_defaults()
    (model, *_), named = bound.signature.parameters, dict(bound.arguments)
    del named[model]
    for name, parameter in bound.signature.parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            named.update(named.pop(name))
        elif parameter.kind is parameter.VAR_POSITIONAL:
            del named[name]  # more than `fit` takes
    return named


def _signature(original: Callable[..., Any]) -> inspect.Signature:
    """Returns the signature of `fit`, even if others replaced it by one without names."""
    signature = inspect.signature(original)
    named = _KNOWN.parameters.keys() - {"self", "kwargs"}
    return signature if named <= signature.parameters.keys() else _KNOWN


class AbandonedError(SystemExit):
    """Unwinds the user's code: `except Exception` lets it pass."""


_captures = 0


def _quiet_if_abandoned(original: Callable[[Any], None]) -> Callable[[Any], None]:
    """Returns a hook that ignores AbandonedError; Python's own ignores only SystemExit itself."""

    def hook(arguments: Any) -> None:
        if not issubclass(arguments.exc_type, AbandonedError):
            original(arguments)

    return hook


def is_capturing() -> bool:
    """Returns whether the code that runs is only inspected, up to its `fit`."""
    return _captures > 0


def capture_fit(run: Callable[[], Any], look: Callable[[FitCall], Any] = lambda call: call) -> Any:
    """Runs the user's code up to its first `Model.fit`; returns that `FitCall`, not carried out.

    Args:
        run: the training code; it is abandoned where it calls `fit`. Code that catches everything,
            or calls `fit` in a thread, continues, and what it then raises is ignored.
        look: called with the `FitCall` while the user's scopes and files are still open; what
            it returns is returned instead.

    Raises:
        NoFitError: `run` ended without calling `fit`.
    """
    answers: list[Any] = []
    global _captures  # noqa: PLW0603 (of this process, as what it replaces is)

    def stop(call: FitCall) -> None:
        if not answers:
            answers.append(look(call))
        raise AbandonedError

    _captures += 1
    try:
        with intercepting_fit(stop), replacing(threading, "excepthook", _quiet_if_abandoned):
            run()
    except AbandonedError:
        pass
    except Exception:
        if not answers:
            raise
    finally:
        _captures -= 1
    if answers:
        return answers[0]
    raise errors.NoFitError(
        "Expected the training code to call Keras' Model.fit. Received: no call of fit. "
        "A custom training loop cannot be sped up; move it into the model's train_step and call "
        "fit. Its steps can be measured with tfx_perf.measured."
    )
