"""Keeps AutoGraph from converting libraries, which takes most of a short training.

TensorFlow's rules exempt `keras` from conversion, but not `tf_keras`, the same code, nor libraries
that read and transform TFX's examples. So tracing a tf_keras model converts several hundred
functions that need no conversion, which takes some ten seconds for TFX's taxi template.
"""

import contextlib
import functools
import logging
import os
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf
from tensorflow.python.autograph.core import config
from tensorflow.python.autograph.impl import conversion
from tensorflow.python.autograph.pyct import cache
from tensorflow.python.data.ops import iterator_ops

from tfx_perf.core import interception

GENERATED_PREFIX = "__autograph_generated_file"
"""Prefix of the files that AutoGraph writes, and of the modules that are imported from them."""
_LIBRARIES = "tf_keras", "tfx_bsl", "tensorflow_transform"
_CALLS_USERS_STEP = "tf_keras.src.engine.training"
_CALLS_USERS_OPTIMIZER = "tf_keras.src.optimizers"
_NOT_CONVERTED = tf.errors.OperatorNotAllowedInGraphError  # raised by code that should have been
_TRACED = "in user code"  # AutoGraph's own errors begin with it
# Batches that a trace may take; an unconverted loop over a dataset would take them forever.
_MOST_BATCHES = 1000

_LOGGER = logging.getLogger(__name__)
_is_sparing = False


class NeedsConversionError(RuntimeError):
    """Code raised an error that may not occur with all libraries converted."""


def asks_for_conversion(error: BaseException) -> bool:
    """Returns whether an error may come from unconverted libraries: any raised while tracing."""
    return _is_sparing and _is_of_a_trace(error)


def _is_of_a_trace(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, _NOT_CONVERTED) or str(error).startswith(_TRACED):
            return True
        error = error.__cause__ or error.__context__
    return False


class _ConvertForUsersClasses(config.Convert):
    """Converts tf_keras' optimizers, which takes two seconds, only if the user has defined some.

    Learning rate schedules count, too.
    """

    def get_action(self, module: Any) -> Any:
        if not self.matches(module.__name__):
            return config.Action.NONE
        keras = sys.modules["tf_keras"].optimizers
        kinds = [keras.Optimizer, keras.legacy.Optimizer, keras.schedules.LearningRateSchedule]
        for kind in kinds:  # grows in the loop
            if kind.__module__.partition(".")[0] not in (*_LIBRARIES, "tfx_perf"):
                return config.Action.CONVERT
            kinds += kind.__subclasses__()
        return config.Action.NONE


@contextlib.contextmanager
def libraries_unconverted() -> Iterator[None]:
    """Adds the missing rules in the context; after NeedsConversionError, run again without it.

    The user's layers, losses, metrics, optimizers and `train_step` are converted as before;
    activations, regularizers and lambdas are not, as in `keras`.
    """
    global _is_sparing  # noqa: PLW0603 (so are the rules)
    rules, was_sparing = config.CONVERSION_RULES, _is_sparing
    _is_sparing = True
    config.CONVERSION_RULES = (
        config.Convert(_CALLS_USERS_STEP),
        _ConvertForUsersClasses(_CALLS_USERS_OPTIMIZER),
        *map(config.DoNotConvert, _LIBRARIES),
        *rules,
    )
    try:
        with interception.replacing(iterator_ops.OwnedIterator, "__next__", _ending):
            yield
    except Exception as error:
        if not _is_of_a_trace(error):
            raise
        raise NeedsConversionError from error
    finally:
        config.CONVERSION_RULES, _is_sparing = rules, was_sparing
        conversion._ALLOWLIST_CACHE = cache.UnboundInstanceCache()  # it caches the rules' answers


def _ending(take: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Returns a `__next__` that raises after too many batches in one graph."""
    counts: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    @functools.wraps(take)
    def take_next(iterator: Any) -> Any:
        if not tf.executing_eagerly():
            graph = tf.compat.v1.get_default_graph()
            counts[graph] = counts.get(graph, 0) + 1
            if counts[graph] > _MOST_BATCHES:
                raise _NOT_CONVERTED("A loop over a dataset was not converted.")
        return take(iterator)

    return take_next


def sparing_libraries(function: Callable[..., Any]) -> Callable[..., Any]:
    """Runs a function in `libraries_unconverted`, and once more without it if that fails."""

    @functools.wraps(function)
    def sparing(**arguments: Any) -> Any:
        try:
            with libraries_unconverted():
                return function(**arguments)
        except NeedsConversionError:
            _LOGGER.warning("Tracing again with all libraries converted.", exc_info=True)
            return function(**arguments)

    return sparing


@contextlib.contextmanager
def removed_afterwards() -> Iterator[None]:
    """Removes the files of code converted in the context, which a fork would leave behind."""
    before = _modules()
    try:
        yield
    finally:
        for name in _modules() - before:
            with contextlib.suppress(OSError):  # gone already
                os.remove(str(sys.modules[name].__file__))


def _modules() -> set[str]:
    return {name for name in list(sys.modules) if name.startswith(GENERATED_PREFIX)}
