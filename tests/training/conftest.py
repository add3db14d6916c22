import importlib

import pytest

from tests import busy_machine
from tfx_perf.training import model_flops
from tfx_perf.training.recovery import checkpoint_writer


@pytest.fixture(autouse=True, scope="module")
def all_traces_are_quick(quick_traces):
    """See `quick_traces`."""


@pytest.fixture(params=["keras", "tf_keras"])
def keras(request):
    """One of the two Keras lines; `tf.keras` may be either."""
    return importlib.import_module(request.param)


@pytest.fixture
def no_flops(monkeypatch):
    """Skips counting the operations of a step, which takes a second for each training."""
    flops = model_flops.Flops(None, None, None)
    monkeypatch.setattr(model_flops, "count_flops", lambda model, batch: flops)


@pytest.fixture
def saves_at_once(monkeypatch):
    """Has checkpoints written when due, however large their share of a short training."""
    monkeypatch.setattr(checkpoint_writer, "_SAVE_SHARE", 0)


@pytest.fixture
def long_calls(monkeypatch):
    """See `busy_machine.allow_long_calls`."""
    busy_machine.allow_long_calls(monkeypatch.setattr)


@pytest.fixture
def same_plans(monkeypatch):
    """See `busy_machine.try_the_same_plans`."""
    busy_machine.try_the_same_plans(monkeypatch.setattr)
