"""Data that end within a call whose first steps the interrupted run had done (`fit_steps`)."""

import itertools
import types

import pytest
import tensorflow as tf

from tfx_perf.training.loop.fit_steps import (
    CountedSteps,
    FirstBatch,
    NotingFirstBatch,
    StepFunction,
)
from tfx_perf.training.step.step_runner import EpochStepCounter


class Guard:
    """Skips the steps that the interrupted run has done."""

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


def test_a_later_call_may_be_done_already_and_rolls_nothing_back(step_function):
    guard = Guard(passed=6)
    call = step_function(guard)
    assert call(None) == guard.logs  # all its steps were done before
    with pytest.raises(tf.errors.OutOfRangeError):
        call(None)
    assert not guard.is_back
    assert isinstance(guard.failure, tf.errors.OutOfRangeError)


class KerasCalls:
    """Keras 3's train function of three steps, which ends with its data, and raises once more."""

    def __init__(self, model):
        self.model = model

    def run(self, iterator, steps):
        batches = list(itertools.islice(iterator, 3))
        if not batches:
            raise StopIteration
        self.model.optimizer.iterations.assign_add(len(batches))
        return {"loss": 1.0}


@pytest.fixture
def model():
    return types.SimpleNamespace(optimizer=types.SimpleNamespace(iterations=tf.Variable(0)))


def test_a_call_that_ends_with_its_data_counts_their_steps(model):
    countdown = EpochStepCounter()
    countdown.begin(None)
    steps = CountedSteps(KerasCalls(model), countdown=countdown, model=model)
    iterator, counts = iter(tf.data.Dataset.range(8)), []
    for _ in range(3):
        steps.run(iterator, countdown.take(3))
        counts.append(countdown.last_call_steps)
    assert counts == [3, 3, 2]
    assert not countdown.has_ended  # Keras asks once more if it does not know the length


def test_a_first_call_with_less_data_than_steps_ends_with_the_data(model):
    countdown = EpochStepCounter()
    countdown.begin(None)
    counted = CountedSteps(KerasCalls(model), countdown=countdown, model=model)
    first = FirstBatch()
    steps = NotingFirstBatch(counted, first, whole=3)
    assert steps.run(iter(tf.data.Dataset.range(2)), countdown.take(3)) == {"loss": 1.0}
    assert countdown.last_call_steps == 2
