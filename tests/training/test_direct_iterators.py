"""A training's iterators, whose end nobody waits for."""

import threading

import model_cases
import pytest
from model_cases import captured

from tfx_perf.training.loop import Loop
from tfx_perf.training.optimizations.plan import PLAIN_FIT, TrainingPlan

pytestmark = pytest.mark.one_case


@pytest.mark.parametrize("plan", [PLAIN_FIT, TrainingPlan(steps_per_call=3)], ids=str)
def test_a_training_does_not_wait(keras, plan, monkeypatch):
    started = []
    monkeypatch.setattr(
        threading.Thread, "start",
        lambda self, start=threading.Thread.start: (started.append(self.name), start(self)),
    )  # fmt: skip
    call = captured(
        model_cases.dense(keras), model_cases.regression(), epochs=2,
        validation_data=model_cases.regression().take(2),
    )  # fmt: skip
    Loop(call).fit(plan)
    # That of an epoch at least, and that of the validation.
    assert started.count("end of an iterator") >= 2
