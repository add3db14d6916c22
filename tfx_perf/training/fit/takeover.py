"""Takeover: functions in the place of Keras', for the running `fit` and for nobody else."""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

from tfx_perf import interception
from tfx_perf.tf_internals.direct_iterators import FitIterators, direct_iterators
from tfx_perf.training.keras_api.base_api import KerasApi

# What a callback may call, on this model or another one, while `fit` runs.
_NESTED = ("fit", "evaluate", "predict", "train_on_batch", "test_on_batch", "predict_on_batch")
_MAKER = "make_train_function"


_Functions = tuple[Any, Any, Any]  # for training and evaluation, and the number of steps per call


class Takeover:
    """Takes over one model's `fit`.

    Who trains or evaluates from inside, i.e. from a callback, finds Keras' own functions and
    iterators and the user's number of steps per call, as in plain `fit`. Who has the train
    function made anew gets ours, made anew.
    """

    def __init__(
        self, model: Any, keras_api: KerasApi, *, renew: Callable[[], tuple[Any, Any]]
    ) -> None:
        """Takes nothing over yet.

        Args:
            model: a compiled model.
            keras_api: the model's.
            renew: has the functions that are installed forget what they have traced, and
                returns Keras' own.
        """
        self._model = model
        self._keras_api = keras_api
        self._renew = renew
        self._train: Any = None
        self._theirs: _Functions = None, None, None
        self._known: FitIterators | None = None
        self._iterators = contextlib.ExitStack()
        self._is_suspended = True

    @contextlib.contextmanager
    def installed(
        self,
        train: Any,
        test: Any,
        *,
        theirs: tuple[Any, Any],
        steps_per_call: int | None,
        iterators: FitIterators | None = None,
    ) -> Iterator[None]:
        """Wraps a `fit` with functions in the place of Keras'.

        They are called with direct iterators. Afterwards Keras' own are in their place.

        Args:
            train: the train function.
            test: the test function; None has Keras make its own.
            theirs: Keras' own functions.
            steps_per_call: for how many steps `fit` counts a call; None: as the user said.
            iterators: learns of those over the training data.
        """
        model, keras_api = self._model, self._keras_api
        users_steps = keras_api.execution_steps(model)
        self._train, self._theirs = train, (*theirs, users_steps)
        self._known = iterators
        with contextlib.ExitStack() as undo:
            for cls in interception.model_classes():
                for name in _NESTED:
                    undo.enter_context(interception.replacing(cls, name, self._nested))
            undo.enter_context(interception.replacing(keras_api.model_class, _MAKER, self._making))
            self._enter((train, test, users_steps))
            undo.callback(self._leave)
            if steps_per_call is not None:
                keras_api.set_steps_per_execution(model, steps_per_call)
                undo.enter_context(keras_api.telling_last_steps(model))
            yield

    @contextlib.contextmanager
    def suspended(self) -> Iterator[None]:
        """Gives the model and its strategy back for as long as the context lasts."""
        if self._is_suspended:
            yield
            return
        ours = self._leave()
        try:
            yield
        finally:
            self._theirs = self._functions()
            self._enter(ours)

    def _functions(self) -> _Functions:
        model = self._model
        return model.train_function, model.test_function, self._keras_api.execution_steps(model)

    def _set(self, functions: _Functions) -> None:
        model = self._model
        model.train_function, model.test_function, steps = functions
        self._keras_api.put_execution_steps(model, steps)

    def _enter(self, ours: _Functions) -> None:
        self._set(ours)
        strategy = self._model.distribute_strategy
        self._iterators.enter_context(direct_iterators(strategy, self._known))
        self._is_suspended = False

    def _leave(self) -> _Functions:
        """Returns what was installed."""
        ours = self._functions()
        self._is_suspended = True
        self._iterators.close()
        self._set(self._theirs)
        return ours

    def _nested(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def method(model: Any, *args: Any, **kwargs: Any) -> Any:
            if model is self._model and self._keras_api.is_of_fit(kwargs):
                return original(model, *args, **kwargs)
            with self.suspended():
                return original(model, *args, **kwargs)

        return method

    def _making(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def make_train_function(model: Any, force: bool = False) -> Any:
            is_new = force or model.train_function is None
            if model is not self._model or self._is_suspended or not is_new:
                return original(model, force)
            self._theirs = *self._renew(), self._theirs[2]
            model.train_function = self._train
            return self._train

        return make_train_function
