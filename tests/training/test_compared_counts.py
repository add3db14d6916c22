"""A training with steps missing, or too many, raises; see `epochs.StepCounts` and `Guard`."""

import model_cases
import numpy as np
import pytest
from model_cases import captured

from tfx_perf.core import errors, interception
from tfx_perf.training.loop import Loop
from tfx_perf.training.optimizations.plan import TrainingPlan
from tfx_perf.training.recovery.checkpoint_store import CheckpointStore
from tfx_perf.training.step.steps import MultiStep

pytestmark = [pytest.mark.each_choice, pytest.mark.usefixtures("no_flops", "saves_at_once")]

PLANS = [TrainingPlan(steps_per_call=4), TrainingPlan(steps_per_call=4, xla_call=True)]


def session_with(plan, folder=None):
    training = {"checkpoint_folder": str(folder), "checkpoint_steps": 4} if folder else {}
    return model_cases.session_with(plan, training=training)


def takes_the_train_function_away(keras, from_epoch):
    """Puts Keras' own function back, and tells nobody."""

    class Takes(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == from_epoch:
                make = keras.Model.make_train_function
                while hasattr(make, "__wrapped__"):
                    make = make.__wrapped__
                self.model.train_function = None
                self.model.train_function = make(self.model) or self.model.train_function

    return Takes()


@pytest.mark.parametrize("has_folder", [False, True])
def test_a_train_function_that_was_taken_away_is_ours_again(keras, has_folder, tmp_path):
    session = session_with(PLANS[0], folder=tmp_path if has_folder else None)
    model, given = model_cases.dense(keras), [takes_the_train_function_away(keras, 1)]
    with interception.intercepting_fit(session.fit):
        model.fit(model_cases.regression(), epochs=3, verbose=0, callbacks=given)
    assert session.record.train_step_count == 3 * model_cases.BATCHES
    assert int(model.optimizer.iterations.numpy()) == 3 * model_cases.BATCHES


@pytest.mark.parametrize("where", [None, "validation"])
@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_an_optimizer_that_counts_otherwise_is_an_error(keras, plan, where):
    class Steps(keras.callbacks.Callback):
        def on_test_begin(self, logs=None):
            self.model.optimizer.iterations.assign_add(5)  # none of the training's steps

        def on_train_batch_end(self, batch, logs=None):
            if not where:
                self.model.optimizer.iterations.assign_add(1)

    model = model_cases.dense(keras)
    validation = {"validation_data": model_cases.regression()} if where else {}
    call = captured(
        model, model_cases.regression(), epochs=2, verbose=0, callbacks=[Steps()], **validation
    )
    if where:
        Loop(call).fit(plan)
        return
    with pytest.raises(errors.StepCountError, match="optimizer_steps=13"):
        Loop(call).fit(plan)


def test_graphs_that_run_fewer_steps_are_an_error_and_nothing_of_it_is_saved(
    keras, tmp_path, monkeypatch
):
    run, calls = MultiStep.run, []

    def run_less(self, iterator, steps, **given):
        calls.append(steps)
        return run(self, iterator, steps if len(calls) < 8 else 1, **given)

    monkeypatch.setattr(MultiStep, "run", run_less)
    session = session_with(TrainingPlan(steps_per_call=2), tmp_path)
    with (
        interception.intercepting_fit(session.fit),
        pytest.raises(errors.StepCountError, match="computed_steps=.*, optimizer_steps="),
    ):
        model_cases.dense(keras).fit(model_cases.regression(), epochs=3, verbose=0)
    (folder,) = (tmp_path / "fit-0").iterdir()
    _, checkpoint = CheckpointStore(folder).latest()
    assert checkpoint.step <= sum(calls[:7])


@pytest.mark.parametrize("name", ["stops", "own_step", "trains", "ends_early", "slices"])
def test_other_numbers_of_steps_that_plain_fit_makes_are_no_error(keras, name):
    class Own(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if name == "stops":
                self.model.stop_training = True
            if name == "trains":
                self.model.train_on_batch(np.ones((2, 4)), np.ones((2, 1)))

        def on_epoch_end(self, epoch, logs=None):
            if name == "trains":
                self.model.fit(np.ones((2, 4)), np.ones((2, 1)), verbose=0)

    class Twice(keras.Sequential):
        def train_step(self, data):
            super().train_step(data)
            return super().train_step(data)

    model = model_cases.dense(keras)
    if name == "own_step":
        model = Twice(model.layers)
        model.compile("sgd", "mse")
    data = model_cases.regression()
    given = {}
    if name == "ends_early":
        data, given = data.repeat(2), {"steps_per_epoch": 8}
    plan = TrainingPlan(steps_per_call=4, micro_batches=2 if name == "slices" else 1)
    call = captured(model, data, epochs=3, verbose=0, callbacks=[Own()], **given)
    Loop(call).fit(plan)
