import importlib

import pytest

from tests import busy_machine
from tfx_perf.tf_internals import autograph


@pytest.fixture(autouse=True, scope="module")
def quick_traces():
    """Spares each process the 20 s in which AutoGraph converts tf_keras itself.

    With the conversion, as users have it where theirs needs it, run those of the trainings of
    test_loop.py that are slow.
    """
    with autograph.libraries_unconverted():
        yield


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
