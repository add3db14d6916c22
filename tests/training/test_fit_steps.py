"""Data that end in a call of which the interrupted run had done the first steps (`fit_steps`)."""

import types

import pytest
import tensorflow as tf

from tfx_perf.training.loop.fit_steps import StepFunction
from tfx_perf.training.step.step_runner import EpochStepCounter


class Guard:
    """Passes over the steps of the interrupted run."""

    def __init__(self, passed):
        self.passed, self.logs, self.failure, self.is_back = passed, {"loss": 1.0}, None, False

    def before_call(self, iterator, steps):
        passed = min(steps, self.passed)
        self.passed -= passed
        return iterator, steps - passed

    def before_end(self):
        self.is_back = True
        return self.logs


def ended(iterator, steps):
    raise tf.errors.OutOfRangeError(None, None, "End of sequence")


@pytest.fixture
def step_function():
    def make(guard):
        countdown = EpochStepCounter()
        countdown.begin(12)
        return StepFunction(
            types.SimpleNamespace(run=ended),
            None,
            countdown=countdown,
            steps_per_execution=lambda: 4,
            timer=types.SimpleNamespace(begin_call=lambda: None),
            guard=guard,
            before_first=None,
            stop_when=lambda timer: False,
        )

    return make


def test_the_first_call_of_an_epoch_ends_as_in_the_interrupted_run(step_function):
    guard = Guard(passed=3)
    call = step_function(guard)
    assert call(None) == guard.logs
    assert guard.is_back
    with pytest.raises(tf.errors.OutOfRangeError):
        call(None)
    assert guard.failure is None


def test_a_later_call_may_have_trained_and_goes_back_to_nothing(step_function):
    guard = Guard(passed=6)
    call = step_function(guard)
    assert call(None) == guard.logs  # all of it was done before
    with pytest.raises(tf.errors.OutOfRangeError):
        call(None)
    assert not guard.is_back
    assert isinstance(guard.failure, tf.errors.OutOfRangeError)
