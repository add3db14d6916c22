import importlib

import pytest

from tests import busy_machine


@pytest.fixture(autouse=True, scope="module")
def all_traces_are_quick(quick_traces):
    """See `quick_traces`."""


@pytest.fixture(params=["keras", "tf_keras"])
def keras(request):
    """One of the two Keras lines; `tf.keras` may be either."""
    return importlib.import_module(request.param)


@pytest.fixture
def long_calls(monkeypatch):
    """See `busy_machine.allow_long_calls`."""
    busy_machine.allow_long_calls(monkeypatch.setattr)


@pytest.fixture
def same_plans(monkeypatch):
    """See `busy_machine.try_the_same_plans`."""
    busy_machine.try_the_same_plans(monkeypatch.setattr)
