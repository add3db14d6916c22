"""Takeover: replaces Keras' functions with ours, for the running `fit` only."""

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

from tfx_perf.core import interception
from tfx_perf.tf_internals.iterators import FitIterators
from tfx_perf.training.fit.callback_hooks import EarlyCallbacks
from tfx_perf.training.fit.epochs import TestFunction
from tfx_perf.training.fit.fit_arguments import is_container
from tfx_perf.training.keras_api.base_api import Function, KerasApi
from tfx_perf.training.step.step_runner import EpochStepCounter

_METHODS = ("fit", "evaluate", "predict", "train_on_batch", "test_on_batch", "predict_on_batch")


@contextlib.contextmanager
def blocking_other_threads(model: Any) -> Iterator[None]:
    """Makes other threads wait before they call methods of a model.

    Meanwhile its weights are not the trained ones, and training by those threads would be undone.
    """
    thread, is_over = threading.get_ident(), threading.Event()

    def waiting(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def method(called: Any, *args: Any, **kwargs: Any) -> Any:
            if called is model and threading.get_ident() != thread:
                is_over.wait()
            return original(called, *args, **kwargs)

        return method

    # Replaced on the classes, since a thread may call the methods through `super()`.
    classes = interception.model_classes()
    with interception.replacing_all((cls, name, waiting) for cls in classes for name in _METHODS):
        try:
            yield
        finally:
            is_over.set()


def direct_iterators(
    model: Any, keras_api: KerasApi, make: Callable[..., Any] | None = None
) -> contextlib.AbstractContextManager[None]:
    """Returns a context in which Keras creates iterators in this thread as without a strategy.

    Their end is not awaited. With one replica, distribution changes only the kind of iterator:
    handing out a batch to devices takes 200 microseconds, longer than training on a small one, and
    the state cannot be saved. With several replicas, iterators stay as they are. `make` replaces
    the function that makes the reader and counter of data in `fit` or an evaluation; it gets that
    function and its arguments.
    """
    strategy, thread = model.distribute_strategy, threading.get_ident()
    has_replicas = strategy.num_replicas_in_sync > 1

    def replacement(new: Callable[..., Any]) -> Callable[..., Any]:
        direct = new if has_replicas else functools.partial(keras_api.read_directly, new, strategy)
        ours = direct if make is None else functools.partial(make, direct)

        def made(*args: Any, **kwargs: Any) -> Any:
            return (ours if threading.get_ident() == thread else new)(*args, **kwargs)

        return made

    return interception.replacing(*keras_api.step_counting, replacement)


class Takeover:
    """Takes over one `fit` of a model.

    While it runs, `train_function` and `test_function` of the model are ours. They run our steps on
    the iterators of this `fit` and of its own evaluations; a callback that trains or evaluates, and
    every other thread, reaches Keras' own. The model's `steps_per_execution` stays the user's.
    """

    def __init__(
        self,
        model: Any,
        keras_api: KerasApi,
        train: Function,  # gets the direct iterators of the `fit`
        test: TestFunction | None,  # likewise in its evaluations; None leaves these as they are
        *,
        keras_originals: Callable[[], tuple[Function, Function]],  # to train and to evaluate
        renew: Callable[[Function | None], None],  # retraces; gets Keras' new function, if made
        steps_per_execution: int | None,  # for `fit` to count; None for the user's
        iterators: FitIterators,  # over the training data
        countdown: EpochStepCounter,  # of its steps
    ) -> None:
        """Installs nothing."""
        self._model, self._keras_api = model, keras_api
        self._test = test
        self._keras_originals, self._renew = keras_originals, renew
        self._steps_per_execution, self._iterators = steps_per_execution, iterators
        self._countdown = countdown
        self._others_calls = 0
        self._is_evaluating = self._counts_as_users = False
        self._evaluated = FitIterators()  # those of `fit`'s own evaluations
        self._counting: Any = None  # object in which `fit` counts training steps

        # Not methods: copying the model would then copy this object.
        def train_function(iterator: Any) -> Any:
            if iterators.number_of(iterator) is not None:
                return train(iterator)
            self._others_calls += 1
            return keras_originals()[0](iterator)

        def test_function(iterator: Any) -> Any:
            # A user's own `evaluate` may call Keras' differently than `fit` does.
            is_ours = self._is_evaluating and self._evaluated.number_of(iterator) is not None
            return (test if test and is_ours else keras_originals()[1])(iterator)

        self._ours: tuple[Any, Any] = train_function, test_function

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Wraps the `fit`, whose callbacks must be the result of `container`."""
        model = self._model
        self._keras_originals()  # made before other threads can ask for them
        self._install()
        try:
            with direct_iterators(model, self._keras_api, self._counted):
                yield
        finally:
            self.end_evaluation()  # an exception may have left one
            keras_originals = self._keras_originals()  # restored below unless others are set
            if model.train_function is self._ours[0]:
                model.train_function = keras_originals[0]
            if model.test_function is self._ours[1]:
                model.test_function = keras_originals[1]
            self._ours = None, None  # they hold this, and so the iterators

    def _install(self) -> None:
        self._model.train_function, self._model.test_function = self._ours

    def container(
        self, callbacks: Any, arguments: dict[str, Any], *, early: EarlyCallbacks | None
    ) -> Any:
        """Returns the value of `callbacks` for a `fit` in `installed` with these arguments.

        It is a Keras `CallbackList` of a list of callbacks, or a copy of a given one, that also
        reports calls and evaluations here. The callbacks in `early` had `on_train_begin` already.
        """
        is_given = is_container(callbacks)
        base: Any = type(callbacks) if is_given else self._keras_api.callbacks.CallbackList
        container = object.__new__(_container_class(base))
        vars(container).update(vars(callbacks) if is_given else {"callbacks": callbacks})
        vars(container).update(_takeover=self, _early=early, _fit=None if is_given else arguments)
        return container

    def options(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Returns Keras' arguments for a container besides the callbacks."""
        verbose = self._keras_api.verbosity(arguments["verbose"])
        return {
            "add_history": True,
            "add_progbar": verbose != 0,
            "model": self._model,
            "verbose": verbose,
            "epochs": arguments["epochs"],
            "steps": self._keras_api.steps_counted(self._counting),
        }

    @property
    def others_calls(self) -> int:
        """Calls of Keras' train function from outside `fit`, as far as they are visible."""
        return self._others_calls + (self._model.train_function is not self._ours[0])

    def before_call(self) -> None:
        """Takes over again if a callback made a new train function or compiled the model."""
        if self._model.train_function is not self._ours[0]:
            self._others_calls += 1
            self._renew(self._model.train_function)
            self._install()

    def end_call(self, step: int, length: int | None) -> int:
        """Returns the step to pass to callbacks at the end of a call.

        Keras 3 counts a short call at the end of an epoch as a full one, and both versions of Keras
        one in which the data end.
        """
        if self._steps_per_execution is not None and self._countdown.has_ended:
            last = self._countdown.done - 1
            self._keras_api.count_less(self._counting, step - last)
            return last
        if length is None or self._steps_per_execution is None or self._counts_as_users:
            return step
        return min(step, length - 1) if self._keras_api.overcounts else step

    def begin_evaluation(self) -> None:
        """Makes the evaluation that `fit` begins run our test function and count its steps."""
        test, keras_api = self._test, self._keras_api
        if test is None or self._model.test_function is not self._ours[1]:  # recompiled
            return
        counting = keras_api.evaluation_counting(self._model)
        if counting is None:  # a callback's own `fit` has removed it
            return
        keras_api.note_iterators(counting, self._evaluated)
        keras_api.count_in_calls_of(counting, test.steps_per_execution, model=self._model)
        test.begin()
        self._is_evaluating = True

    def end_evaluation(self) -> None:
        """Restores the user's steps per call: tf_keras uses them for a `fit` in a callback, too."""
        if self._is_evaluating:
            self._is_evaluating = False
            counting = self._keras_api.evaluation_counting(self._model)
            if counting is not None:
                self._count_as_users(counting)

    def count_before(self, steps: int) -> None:
        """Makes Keras count steps that another process ran with its iterator over the data."""
        self._keras_api.count_before(self._counting, steps)

    def count_single_steps(self) -> None:
        """Makes `fit` count the user's steps per execution from the next epoch on."""
        self._counts_as_users = True
        self._count_as_users(self._counting)

    def _count_as_users(self, counting: Any) -> None:
        steps = self._keras_api.get_steps_per_execution(self._model)
        self._keras_api.count_in_calls_of(counting, steps, model=self._model)

    def _counted(self, make: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Makes the reader and counter of `fit`'s data (the first one) or of others meanwhile."""
        if self._counting is not None:
            return make(*args, **kwargs)
        self._counting = counting = make(*args, **kwargs)
        if self._steps_per_execution is not None:  # not earlier: tf_keras needs a length for that
            self._keras_api.count_in_calls_of(
                counting, self._steps_per_execution, model=self._model
            )
        self._keras_api.note_iterators(counting, self._iterators)
        return counting


@functools.cache
def _container_class(base: Any) -> Any:
    class Container(base):
        """The callbacks of one `fit`, which also report calls and evaluations to a takeover."""

        callbacks: list[Any]
        _takeover: Takeover
        _early: EarlyCallbacks | None
        _fit: dict[str, Any] | None  # its arguments; None if initialized already

        def on_train_begin(self, logs: Any = None) -> None:
            early, arguments = self._early, self._fit
            if early is not None:
                early.hide_added()
            if arguments is not None:  # now the model is built, and the data's length is known
                base.__init__(self, self.callbacks, **self._takeover.options(arguments))
                self.model.stop_training = False  # as Keras sets it then
            if early is not None:
                early.begin()
            self._to_others(super().on_train_begin, logs)
            self._early = early if early is not None and early.knows_epoch else None

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            if self._early is not None:
                self._early.restore_metrics()
            self._to_others(super().on_epoch_begin, epoch, logs)
            self._early = None

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            super().on_train_batch_begin(batch, logs)
            self._takeover.before_call()

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            length = (getattr(self, "params", None) or {}).get("steps")
            step = self._takeover.end_call(batch, length)
            super().on_train_batch_end(step, logs)

        def on_test_begin(self, logs: Any = None) -> None:
            super().on_test_begin(logs)
            self._takeover.begin_evaluation()

        def on_test_end(self, logs: Any = None) -> None:
            self._takeover.end_evaluation()
            super().on_test_end(logs)

        def set_params(self, params: Any) -> None:
            self._to_others(super().set_params, params)

        def set_model(self, model: Any) -> None:
            self._to_others(super().set_model, model)

        def _to_others(self, tell: Callable[..., None], *args: Any) -> None:
            """Calls a hook of all callbacks except those that have had it already."""
            if self._early is None:
                tell(*args)
                return
            everyone, known = self.callbacks, self._early.callbacks
            self.callbacks = [each for each in everyone if not any(each is it for it in known)]
            try:
                tell(*args)
            finally:
                self.callbacks = everyone

    return Container
