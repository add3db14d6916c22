"""Takeover: our functions in the place of Keras', for the running `fit` alone."""

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from tfx_perf.core import interception
from tfx_perf.tf_internals.iterators import FitIterators, direct_iterators
from tfx_perf.training.keras_api.base_api import Function, KerasApi

# What a callback may call, on this model or another one, while `fit` runs.
_NESTED = ("fit", "evaluate", "predict", "train_on_batch", "test_on_batch", "predict_on_batch")
_MAKER, _TEST_MAKER = "make_train_function", "make_test_function"


@contextlib.contextmanager
def others_wait(model: Any) -> Iterator[None]:
    """Makes other threads wait before they call methods of a model.

    Its weights are not the trained ones meanwhile, and what they trained would be undone.
    """
    thread, is_over = threading.get_ident(), threading.Event()

    def waiting(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def method(called: Any, *args: Any, **kwargs: Any) -> Any:
            if called is model and threading.get_ident() != thread:
                is_over.wait()
            return original(called, *args, **kwargs)

        return method

    with contextlib.ExitStack() as undo:
        undo.callback(is_over.set)
        for cls in interception.model_classes():
            for name in _NESTED:
                undo.enter_context(interception.replacing(cls, name, waiting))
        yield


class StepsOfCalls(NamedTuple):
    """How many steps Keras counts for a call, in training and in the evaluations of `fit`."""

    training: int
    evaluation: int


class Takeover:
    """Takes over one model's `fit`.

    The installed functions run ours where `fit` itself calls them, in its own thread. A callback
    that trains or evaluates, and every other thread, reaches Keras' own through them, with Keras'
    iterators. The model's `steps_per_execution` stays the user's. A callback that has the train
    function made anew gets ours, made anew.
    """

    def __init__(
        self, model: Any, keras_api: KerasApi, *, renew: Callable[[], tuple[Function, Function]]
    ) -> None:
        self.others_calls = 0  # calls of Keras' train function by others than `fit`
        self._model = model
        self._keras_api = keras_api
        self._renew = renew
        self._theirs: tuple[Function, Function]
        self._thread: int | None = None  # that `fit` runs in; None if nothing is installed
        self._depth = 0  # of the calls that callbacks make there
        self._is_evaluating = self._is_making = False
        self._counts_as_users = False
        self._steps_per_call: StepsOfCalls | None = None
        self._counted: list[Any] = []  # what `fit` counts steps with: of training, of evaluation

    @contextlib.contextmanager
    def installed(
        self,
        train: Function,
        test: Function | None,
        *,
        theirs: tuple[Function, Function],
        steps_per_call: StepsOfCalls | None,
        iterators: FitIterators | None = None,
    ) -> Iterator[None]:
        """Wraps a `fit` with functions in the place of Keras', called with direct iterators.

        None leaves Keras' test function, or the user's steps per call.
        """
        model, keras_api = self._model, self._keras_api
        self._theirs, self._thread = theirs, threading.get_ident()
        self._steps_per_call = steps_per_call
        self._counted, self.others_calls, self._counts_as_users = [], 0, False

        def train_function(iterator: Any) -> Any:
            if self._is_fits_own:
                return train(iterator)
            self.others_calls += 1
            return self._theirs[0](iterator)

        def test_function(iterator: Any) -> Any:
            is_ours = test is not None and self._is_fits_own and self._is_evaluating
            return (test if is_ours and test else self._theirs[1])(iterator)

        with contextlib.ExitStack() as undo:
            for cls in interception.model_classes():
                for name in _NESTED:
                    undo.enter_context(interception.replacing(cls, name, self._nested))
            for name, making in (_MAKER, self._making), (_TEST_MAKER, self._making_test):
                undo.enter_context(interception.replacing(keras_api.model_class, name, making))
            undo.enter_context(
                direct_iterators(
                    model.distribute_strategy, iterators, applies=lambda: self._is_fits_own
                )
            )
            model.train_function, model.test_function = train_function, test_function
            self._installed = train_function, test_function
            undo.callback(self._leave)
            undo.enter_context(
                interception.replacing(*keras_api.step_counting, self._counting)
            )
            if steps_per_call is not None:
                undo.enter_context(
                    keras_api.telling_last_steps(model, applies=lambda: not self._counts_as_users)
                )
            yield

    @property
    def is_installed(self) -> bool:
        """Whether functions are in the place of Keras'."""
        return self._thread is not None

    @contextlib.contextmanager
    def suspended(self) -> Iterator[None]:
        """Lets this thread's calls find Keras' own functions inside the context."""
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1

    def keras_functions(self) -> Any:
        """Returns Keras' own functions, new ones, whatever is installed."""
        model = self._model
        before = model.train_function, model.test_function
        self._is_making = True
        try:
            return self._keras_api.keras_functions(model)
        finally:
            self._is_making = False
            if self.is_installed:
                model.train_function, model.test_function = before

    def count_before(self, steps: int) -> None:
        """Has Keras count steps that another process made with its iterator over the data."""
        for counted in self._counted[:1]:
            self._keras_api.count_before(counted, steps)

    def count_single_steps(self) -> None:
        """Makes `fit` count the user's steps per call from the next epoch, or evaluation, on."""
        steps = self._keras_api.get_steps_per_execution(self._model)
        self._counts_as_users = True
        self._steps_per_call = StepsOfCalls(steps, steps)
        for counted in self._counted:
            self._keras_api.count_in_calls_of(counted, steps)

    @property
    def _is_fits_own(self) -> bool:
        """Whether Keras' `fit` itself asks, rather than a callback or another thread."""
        return threading.get_ident() == self._thread and not self._depth

    def _leave(self) -> None:
        self._thread, self._counted = None, []  # which hold iterators, and so a cache in files
        self._model.train_function, self._model.test_function = self._theirs

    def _counting(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def make(*args: Any, **kwargs: Any) -> Any:
            if not self._is_fits_own:
                return original(*args, **kwargs)
            if self._steps_per_call is not None:
                training, evaluation = self._steps_per_call
                steps = self._keras_api.execution_steps_of(
                    self._model, evaluation if self._counted else training
                )
                kwargs["steps_per_execution"] = steps
            self._counted.append(original(*args, **kwargs))
            return self._counted[-1]

        return make

    def _nested(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def method(model: Any, *args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() != self._thread:
                return original(model, *args, **kwargs)
            if model is self._model and not self._depth and self._keras_api.is_of_fit(kwargs):
                self._is_evaluating = True
                try:
                    return original(model, *args, **kwargs)
                finally:
                    self._is_evaluating = False
            with self.suspended():
                return original(model, *args, **kwargs)

        return method

    def _making(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def make_train_function(model: Any, force: bool = False) -> Any:
            is_new = force or model.train_function is None
            if model is not self._model or self._is_making or not is_new:
                return original(model, force)
            self._theirs = self._renew()
            model.train_function, model.test_function = self._installed
            return self._installed[0]

        return make_train_function

    def _making_test(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def make_test_function(model: Any, force: bool = False) -> Any:
            is_new = force or model.test_function is None  # as `compile` leaves it
            if model is not self._model or self._is_making or not is_new:
                return original(model, force)
            self._is_making = True
            try:
                original(model, force)
            finally:
                self._is_making = False
            self._theirs = self._theirs[0], model.test_function
            model.test_function = self._installed[1]
            return model.test_function

        return make_test_function
