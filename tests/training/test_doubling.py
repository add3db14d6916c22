"""Twice the batch: measured where that is worth it, and left alone where it is not."""

import model_cases
import pytest
from model_cases import captured

from tfx_perf.statistics import Interval
from tfx_perf.training.plan import TrainingPlan
from tfx_perf.training.trials import doubling, turns
from tfx_perf.training.trials.choice import PlanChoice, TrialRecord

pytestmark = pytest.mark.each_choice

PLAN = TrainingPlan(steps_per_call=5)


def found(*, step_seconds):
    trial = TrialRecord(
        plan=PLAN,
        status="chosen",
        reason="for the test",
        compile_time_seconds=1.0,
        step_time=Interval(value=step_seconds, low=step_seconds, high=step_seconds),
    )
    return PlanChoice(plan=PLAN, plan_reason="for the test", trials=(trial,))


def long_fit(keras):
    return after_trials(model_cases.dense(keras), model_cases.regression())


def after_trials(model, data):
    """Keras 3 makes the metrics in the first training, which the trials have been."""
    call = captured(model, data.repeat(), steps_per_epoch=100_000)
    call.proceed(steps_per_epoch=2, epochs=1)
    return call


def test_a_tiny_batch_costs_little_more_if_it_is_doubled(keras, monkeypatch):
    monkeypatch.setattr(turns, "BLOCK_SECONDS", 0.04)
    ratio = doubling.double_batch_time_ratio(long_fit(keras), found(step_seconds=0.01))
    assert ratio.low < 1.5  # the interval, because the machine may have other work
    assert ratio.high > 0.5
    assert ratio.low <= ratio.value <= ratio.high


def test_turns_that_are_broken_off_are_no_error(keras, monkeypatch):
    call = long_fit(keras)
    monkeypatch.setattr(doubling.Loop, "turn", lambda self, plan, iterator: turns.Turn(print, 1))

    def measured(count):
        def take_turns(self, schedule, data):
            next(schedule)
            for seconds in [0.0, *[2.0, 1.0] * 9][:count]:
                schedule.send(seconds)

        monkeypatch.setattr(doubling.Loop, "take_turns", take_turns)
        return doubling.double_batch_time_ratio(call, found(step_seconds=0.01))

    ratios = [measured(count) for count in range(2 * doubling._ROUNDS + 1)]
    assert ratios[:4] == [None] * 4
    assert {ratio.sample_count for ratio in ratios[4:6]} == {1}
    assert {ratio.value for ratio in ratios[4:]} == {2.0}


def test_a_short_training_is_not_kept_waiting(keras):
    # 200,000 steps of a millisecond are too few: a hundredth of them is 2 seconds.
    assert doubling.double_batch_time_ratio(long_fit(keras), found(step_seconds=0.001)) is None


@pytest.mark.slow
def test_a_model_for_one_size_of_batch_is_left_alone(keras):
    model = keras.Sequential(
        [
            keras.layers.Input(batch_shape=(8, 3, 2)),
            keras.layers.LSTM(4, stateful=True),
            keras.layers.Dense(1),
        ]
    )
    model.compile(optimizer="sgd", loss="mse")
    data = model_cases.batched(model_cases.features(3, 2), model_cases.features(1, seed=1))
    call = after_trials(model, data)
    assert doubling.double_batch_time_ratio(call, found(step_seconds=0.01)) is None
