"""Taking over `Model.fit`, in both Keras lines, and giving it back."""

import contextlib
import functools
import importlib
import inspect
import threading
import types

import numpy as np
import pytest

from tfx_perf.core import errors, interception

pytestmark = [pytest.mark.each_choice, pytest.mark.usefixtures("quick_traces")]

PACKAGES = ("keras", "tf_keras")


@pytest.fixture(params=PACKAGES)
def keras(request):
    return importlib.import_module(request.param)


@pytest.fixture(autouse=True)
def fits_stay():
    """Fails a test that leaves `fit` replaced."""
    classes = [importlib.import_module(name).Model for name in PACKAGES]
    before = [cls.__dict__.get("fit") for cls in classes]
    yield
    assert [cls.__dict__.get("fit") for cls in classes] == before


def model_of(keras, base=None):
    inputs = keras.Input((2,))
    model = (base or keras.Model)(inputs, keras.layers.Dense(1)(inputs))
    model.compile(optimizer="sgd", loss="mse")
    return model


X, Y = np.ones((6, 2), "float32"), np.zeros((6, 1), "float32")


def test_the_handler_gets_every_argument_and_its_result_is_fits(keras):
    calls = []

    def handler(call):
        calls.append(call)
        return "the history"

    model = model_of(keras)
    with interception.intercepting_fit(handler):
        assert model.fit(X, Y, 3, epochs=2) == "the history"
    (call,) = calls
    assert call.model is model
    assert call.arguments["x"] is X
    assert call.arguments["batch_size"] == 3
    assert call.arguments["epochs"] == 2
    assert call.arguments["steps_per_epoch"] is None
    assert "self" not in call.arguments
    assert "kwargs" not in call.arguments


def test_proceed_is_keras_own_fit_with_some_arguments_replaced(keras):
    model = model_of(keras)
    with interception.intercepting_fit(lambda call: call.proceed(epochs=3, verbose=0)):
        history = model.fit(X, Y, epochs=1)
    assert history.epoch == [0, 1, 2]


def test_an_argument_that_fit_lacks_is_refused_in_its_own_words(keras):
    model = model_of(keras)
    with pytest.raises(TypeError) as plain:
        model.fit(X, Y, epoch=1)
    with interception.intercepting_fit(pytest.fail), pytest.raises(TypeError) as caught:
        model.fit(X, Y, epoch=1)
    assert str(caught.value) == str(plain.value)
    assert "fit() got an unexpected keyword argument 'epoch'" in str(caught.value)


def test_both_lines_are_taken_over_at_once():
    models = [model_of(importlib.import_module(name)) for name in PACKAGES]
    seen = []
    with interception.intercepting_fit(lambda call: seen.append(call.model)):
        for model in models:
            model.fit(X, Y)
    assert seen == models


def test_a_handler_that_failed_is_asked_again(keras):
    seen = []

    def handler(call):
        seen.append(call)
        raise ValueError("no")

    model = model_of(keras)
    with interception.intercepting_fit(handler):
        for _ in range(2):
            with pytest.raises(ValueError, match="no"):
                model.fit(X, Y)
    assert len(seen) == 2


def test_fit_inside_the_handler_is_keras_own(keras):
    seen = []

    def handler(call):
        seen.append(call)
        return call.model.fit(X, Y, verbose=0)

    with interception.intercepting_fit(handler):
        assert model_of(keras).fit(X, Y).epoch == [0]
    assert len(seen) == 1


def test_contexts_nest(keras):
    seen = []
    model = model_of(keras)
    with interception.intercepting_fit(lambda call: seen.append("outer")):
        with interception.intercepting_fit(lambda call: seen.append("inner")):
            model.fit(X, Y)
        model.fit(X, Y)
    assert seen == ["inner", "outer"]


def test_a_subclass_that_extends_fit_is_taken_over_too(keras):
    class Mine(keras.Model):
        def fit(self, *args, **kwargs):
            return super().fit(*args, **{**kwargs, "epochs": 7})

    call = interception.capture_fit(lambda: model_of(keras, Mine).fit(X, Y))
    assert call.arguments["epochs"] == 7


def test_capture_stops_at_the_first_fit_even_behind_except(keras):
    reached = []

    def run():
        try:
            model_of(keras).fit(X, Y, batch_size=2)
        except Exception:  # as a user's code may continue
            reached.append("except")
        reached.append("after")

    call = interception.capture_fit(run)
    assert call.arguments["batch_size"] == 2
    assert reached == []
    assert int(call.model.optimizer.iterations.numpy()) == 0


def test_capture_finds_a_fit_in_code_that_continues(keras, monkeypatch):
    told = []
    monkeypatch.setattr(threading, "excepthook", told.append)

    def swallowing():
        for _ in range(2):
            with contextlib.suppress(BaseException):  # what some code does
                model_of(keras).fit(X, Y)
        raise RuntimeError("there is no history")

    def in_a_thread():
        thread = threading.Thread(target=lambda: model_of(keras).fit(X, Y))
        thread.start()
        thread.join()

    for run in (swallowing, in_a_thread):
        calls = []
        assert interception.capture_fit(run, calls.append) is None
        assert [call.arguments["x"] is X for call in calls] == [True]
    assert told == []


def test_code_that_never_calls_fit_is_refused():
    with pytest.raises(errors.NoFitError, match=r"Expected .* Model\.fit.*Received: no call"):
        interception.capture_fit(lambda: None)


def test_the_users_own_error_is_not_hidden():
    with pytest.raises(KeyError):
        interception.capture_fit(lambda: {}["missing"])


@pytest.mark.parametrize("is_wrapped", [True, False])
@pytest.mark.parametrize(
    "called", [lambda m: m.fit(X, Y, 3, 2), lambda m: m.fit(x=X, y=Y, epochs=2)]
)
def test_a_fit_that_others_replaced_before_is_taken_over(keras, monkeypatch, is_wrapped, called):
    """As experiment trackers do, with `functools.wraps` and without."""
    seen, own = [], keras.Model.fit

    def tracked(self, *args, **kwargs):
        seen.append(kwargs)
        return own(self, *args, **kwargs)

    tracked = functools.wraps(own)(tracked) if is_wrapped else tracked
    monkeypatch.setattr(keras.Model, "fit", tracked)
    calls = []

    def handler(call):
        calls.append(call.arguments)
        return call.proceed(verbose=0)

    with interception.intercepting_fit(handler):
        history = called(model_of(keras))
    assert history.epoch == [0, 1]
    assert calls[0]["x"] is X
    assert calls[0]["steps_per_epoch"] is None
    assert calls[0]["callbacks"] is None
    assert len(seen) == 1


def test_a_fit_with_other_names_for_the_rest_is_taken_over(keras, monkeypatch):
    own = keras.Model.fit

    def tracked(model, x=None, *more, **others):
        return own(model, x, *more, **others)

    monkeypatch.setattr(keras.Model, "fit", tracked)
    with interception.intercepting_fit(lambda call: call.proceed(verbose=0, epochs=3)):
        assert model_of(keras).fit(X, Y).epoch == [0, 1, 2]


def test_the_arguments_of_fit_are_those_of_keras(keras):
    found = list(inspect.signature(keras.Model.fit).parameters.values())[1:]
    shared = list(interception._KNOWN.parameters.values())[1:-1]
    assert len(shared) == 16
    assert [(p.name, p.default) for p in found[: len(shared)]] == [
        (p.name, p.default) for p in shared
    ]


def test_a_keras_that_cannot_be_imported_is_left_out(monkeypatch):
    own = importlib.import_module

    def failing(name):
        if name == "keras":
            raise ValueError("Unable to import backend : jax")
        return own(name)

    with monkeypatch.context() as patched:
        patched.setattr(importlib, "import_module", failing)
        assert interception.model_classes() == [own("tf_keras").Model]


class Base:
    def say(self):
        return "base"


class Loud(Base):
    pass


@pytest.mark.parametrize(
    "make_owner", [lambda: Base, lambda: Loud, Loud], ids=["own", "inherited", "object"]
)
def test_a_replaced_function_is_as_it_was_afterwards(make_owner):
    owner = make_owner()
    before = dict(vars(owner))
    with interception.replacing(owner, "say", lambda own: lambda *given: f"not {own(*given)}"):
        said = owner.say() if isinstance(owner, Loud) else owner().say()
        assert said == "not base"
    assert dict(vars(owner)) == before


def test_a_function_that_a_module_loads_on_first_use_is_replaced_and_put_back():
    module = types.ModuleType("lazy")

    def load(name):
        module.say = lambda: "loaded"
        return module.say

    module.__getattr__ = load
    with interception.replacing(module, "say", lambda own: lambda: f"not {own()}"):
        assert module.say() == "not loaded"
    assert module.say() == "loaded"
