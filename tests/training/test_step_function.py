"""One call of the train function: how many steps it runs, and who is told of them."""

import types

import pytest
import tensorflow as tf

from tfx_perf.training.fit.timer import StepTimer
from tfx_perf.training.loop.fit_steps import OpenEpochs, StepFunction
from tfx_perf.training.step.step_runner import Countdown


class Adding:
    """Steps that count how many they are, on a list of numbers."""

    def __init__(self):
        self.iterations, self.calls = tf.Variable(0), []

    def run(self, numbers, steps):
        self.calls.append(steps)
        for _ in range(steps):
            if not numbers:
                raise tf.errors.OutOfRangeError(None, None, "End of sequence")
            logs = {"number": numbers.pop(0)}
            self.iterations.assign_add(1)
        return logs


class Passing:
    """A guard of a training of which some steps are done."""

    logs, failure, save_seconds = {"number": -1}, None, 0.0

    def __init__(self, done):
        self.done, self.told = done, []

    def before_call(self, iterator, steps):
        passed = min(self.done, steps)
        self.done -= passed
        return iterator, steps - passed

    def after_call(self, logs, steps):
        self.told.append((logs["number"], steps))


def function_of(runner, countdown, *, guard=None, steps_per_call=4, stop_when=lambda timer: False):
    timer, model = StepTimer(), types.SimpleNamespace(stop_training=False)
    function = StepFunction(
        runner,
        model,
        countdown=countdown,
        steps_per_call=lambda: steps_per_call,
        timer=timer,
        guard=guard,
        before_first=None,
        stop_when=stop_when,
    )
    return function, timer, model


def test_a_call_runs_no_more_steps_than_the_epoch_has_left():
    countdown, adding = Countdown(), Adding()
    countdown.begin(6)
    function, timer, model = function_of(
        adding, countdown, stop_when=lambda timer: timer.step_count == 6
    )
    numbers = list(range(10))
    assert function(numbers) == {"number": 3}
    assert not model.stop_training
    assert function(numbers) == {"number": 5}
    assert model.stop_training
    assert (adding.calls, timer.step_count) == ([4, 2], 6)


def test_steps_that_were_made_before_an_interruption_are_passed_over():
    countdown, adding, guard = Countdown(), Adding(), Passing(6)
    countdown.begin(8)
    function, timer, _ = function_of(adding, countdown, guard=guard)
    assert function([7, 8]) == Passing.logs
    assert timer.call_count == 0
    assert function([7, 8]) == {"number": 8}
    assert (adding.calls, timer.step_count, guard.told) == ([2], 2, [(8, 2)])


@pytest.mark.parametrize("done", [0, 1])
def test_only_steps_with_data_count_where_the_data_end(done):
    countdown, adding, guard = Countdown(), Adding(), Passing(done)
    countdown.begin(8)
    runner = OpenEpochs(adding, countdown=countdown, optimizer=adding)
    function, timer, _ = function_of(runner, countdown, guard=guard)
    function([5, 6])
    assert (timer.step_count, guard.told) == (2, [(5, 2)])
    with pytest.raises(tf.errors.OutOfRangeError):
        function([])
    assert timer.step_count == 2


def test_the_guard_knows_an_error_of_the_steps():
    guard, error = Passing(0), tf.errors.InternalError(None, None, "planted")

    def fail(iterator, steps):
        raise error

    function, _, _ = function_of(types.SimpleNamespace(run=fail), Countdown(), guard=guard)
    with pytest.raises(tf.errors.InternalError):
        function([])
    assert guard.failure is error
