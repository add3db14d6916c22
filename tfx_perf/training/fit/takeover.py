"""Takeover: our functions in the place of Keras', for the running `fit` alone."""

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

from tfx_perf.core import interception
from tfx_perf.tf_internals.iterators import FitIterators, direct_iterators
from tfx_perf.training.fit.epochs import TestFunction
from tfx_perf.training.keras_api.base_api import Function, KerasApi

_METHODS = ("fit", "evaluate", "predict", "train_on_batch", "test_on_batch", "predict_on_batch")


@contextlib.contextmanager
def others_wait(model: Any) -> Iterator[None]:
    """Makes other threads wait before they call methods of a model.

    Its weights are not the trained ones meanwhile, and what they trained would be undone.
    """
    thread, is_over = threading.get_ident(), threading.Event()

    def waiting(own: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(own)
        def method(called: Any, *args: Any, **kwargs: Any) -> Any:
            if called is model and threading.get_ident() != thread:
                is_over.wait()
            return own(called, *args, **kwargs)

        return method

    # On the classes: a thread may reach them through `super()`.
    classes = interception.model_classes()
    with interception.replacing_all((cls, name, waiting) for cls in classes for name in _METHODS):
        try:
            yield
        finally:
            is_over.set()


class Takeover:
    """Takes over one model's `fit`.

    The installed train function runs ours on iterators over the data of this `fit`; our test
    function is in its place only while `fit` itself evaluates. A callback that trains or evaluates,
    and every other thread, reaches Keras' own. The model's `steps_per_execution` stays the user's.
    A callback that has the train function made anew gets ours, made anew.
    """

    def __init__(
        self,
        model: Any,
        keras_api: KerasApi,
        *,
        theirs: Callable[[], tuple[Function, Function]],
        renew: Callable[[], tuple[Function, Function]],
    ) -> None:
        """Installs nothing.

        Args:
            model: compiled.
            keras_api: the model's.
            theirs: returns Keras' own functions for training and evaluation.
            renew: makes those anew, and has all else traced anew.
        """
        self.others_calls = 0  # calls of Keras' train function by others than `fit`
        self._model = model
        self._keras_api = keras_api
        self._theirs, self._renew = theirs, renew
        self._is_making = self._counts_as_users = False
        self._thread: int | None = None  # that `fit` runs in; None if nothing is installed
        self._train_function: Function  # that stands in the place of Keras' own
        self._evaluated = FitIterators()  # those of `fit`'s own evaluations
        self._steps_per_call: int | None = None
        self._counting: Any = None  # what `fit` counts the steps of training with

    @contextlib.contextmanager
    def installed(
        self,
        train: Function,
        test: TestFunction | None,
        *,
        steps_per_call: int | None,
        iterators: FitIterators,
    ) -> Iterator[None]:
        """Wraps a `fit` with functions in the place of Keras', called with direct iterators.

        None leaves Keras' test function, or the user's steps per call.
        """

        def train_function(iterator: Any) -> Any:
            if iterators.number_of(iterator) is not None:
                return train(iterator)
            self.others_calls += 1
            return self._theirs()[0](iterator)

        model, keras_api = self._model, self._keras_api
        self._steps_per_call = steps_per_call
        self._thread, self.others_calls, self._counts_as_users = threading.get_ident(), 0, False
        self._evaluated = FitIterators()
        self._train_function = train_function
        with contextlib.ExitStack() as undo:
            model.train_function, model.test_function = train_function, self._theirs()[1]
            undo.callback(self._leave)
            replacements = [
                (model, "make_train_function", self._making),
                (*keras_api.step_counting, self._counting_steps),
            ]
            if test is not None:
                evaluating = functools.partial(self._evaluating, test)
                replacements.append((model, "evaluate", evaluating))
            undo.enter_context(interception.replacing_all(replacements))
            undo.enter_context(
                direct_iterators(
                    model.distribute_strategy, iterators, applies=lambda: self._is_in_thread
                )
            )
            if steps_per_call is not None:
                undo.enter_context(
                    keras_api.telling_last_steps(model, applies=lambda: not self._counts_as_users)
                )
            yield

    def keras_functions(self) -> Any:
        """Returns Keras' own functions, new ones, whatever is installed."""
        self._is_making = True
        try:
            return self._keras_api.keras_functions(self._model)
        finally:
            self._is_making = False

    def count_before(self, steps: int) -> None:
        """Has Keras count steps that another process made with its iterator over the data."""
        self._keras_api.count_before(self._counting, steps)

    def count_single_steps(self) -> None:
        """Makes `fit` count the user's steps per call from the next epoch on."""
        steps = self._keras_api.get_steps_per_execution(self._model)
        self._counts_as_users = True
        self._keras_api.count_in_calls_of(self._counting, steps, model=self._model)

    @property
    def _is_in_thread(self) -> bool:
        return threading.get_ident() == self._thread

    def _leave(self) -> None:
        self._thread = self._counting = None  # that holds iterators, and so a cache in files
        if self._model.train_function is self._train_function:  # else compiled anew in the end
            self._model.train_function = self._theirs()[0]
        del self._train_function  # which holds the guard, and so checkpoints in memory

    def _counting_steps(self, own: Callable[..., Any]) -> Callable[..., Any]:
        def make(*args: Any, **kwargs: Any) -> Any:
            if self._counting is not None or not self._is_in_thread:
                return own(*args, **kwargs)  # of an evaluation, or of others
            if self._steps_per_call is not None:
                steps = self._keras_api.execution_steps_of(self._model, self._steps_per_call)
                kwargs["steps_per_execution"] = steps
            self._counting = own(*args, **kwargs)
            return self._counting

        return make

    def _making(self, own: Callable[..., Any]) -> Callable[..., Any]:
        model = self._model

        def make_train_function(force: bool = False) -> Any:
            is_new = force or model.train_function is None  # as `compile` leaves it
            if self._is_making or not is_new:
                return own(force)
            _, model.test_function = self._renew()
            model.train_function = self._train_function
            return self._train_function

        return make_train_function

    def _evaluating(self, test: TestFunction, own: Callable[..., Any]) -> Callable[..., Any]:
        # Without functools.wraps: `__wrapped__` would be a part of the model.
        def evaluate(*args: Any, **kwargs: Any) -> Any:
            if not (self._is_in_thread and self._keras_api.is_of_fit(kwargs, test.callback)):
                return own(*args, **kwargs)
            with self._evaluation(test):
                return own(*args, **kwargs)

        return evaluate

    @contextlib.contextmanager
    def _evaluation(self, test: TestFunction) -> Iterator[None]:
        """Has our test function evaluate in the context, on the iterators of `fit` itself."""
        model, keras_api, iterators = self._model, self._keras_api, self._evaluated
        model.make_test_function()  # does nothing, except after `compile`
        theirs = model.test_function

        def test_function(iterator: Any) -> Any:
            # An own `evaluate` may call that of Keras in another way than `fit` does.
            return (test if iterators.number_of(iterator) is not None else theirs)(iterator)

        counting = keras_api.evaluation_counting(model)
        keras_api.note_iterators(counting, iterators)
        keras_api.count_in_calls_of(counting, test.steps_per_call, model=model)
        model.test_function = test_function
        try:
            yield
        finally:
            if model.test_function is test_function:  # else compiled anew
                model.test_function = theirs
            # tf_keras counts so for a `fit` in a callback, too.
            users_steps = keras_api.get_steps_per_execution(model)
            keras_api.count_in_calls_of(counting, users_steps, model=model)
