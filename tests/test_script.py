"""Keras scripts without TFX: what Keras' `fit` trains, with figures, the plan again, and a gate.

Likewise a `custom_loop`, which marks its steps.
"""

import contextlib
import importlib
import pathlib
import sys
import time
import types

import numpy as np
import pytest
import tensorflow as tf

import tfx_perf
from tests import processes
from tfx_perf import config, script
from tfx_perf.cli import main
from tfx_perf.core import errors, interception
from tfx_perf.distribute import launch
from tfx_perf.gate.decision import GateRecord
from tfx_perf.training.loop import turns
from tfx_perf.training.record import TrainingRecord
from tfx_perf.training.session import TrainingSession

pytestmark = [pytest.mark.each_choice, pytest.mark.usefixtures("quick_traces")]

_NO_TRIALS = {"training": {"tuning_seconds": 0}}


@pytest.fixture(params=["keras", "tf_keras"])
def keras(request):
    return importlib.import_module(request.param)


def _data():
    x = np.random.default_rng(1).random((512, 4), "float32")
    return tf.data.Dataset.from_tensor_slices((x, x[:, :1])).batch(8)


def _compiled(keras, *, learning_rate=0.01):
    model = keras.Sequential([keras.layers.Dense(8, "relu"), keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(learning_rate), "mse")
    return model


def _fit(keras, *, learning_rate=0.01):
    keras.utils.set_random_seed(1)
    model = _compiled(keras, learning_rate=learning_rate)
    history = model.fit(_data(), epochs=2, verbose=0)
    return history.history["loss"], [np.asarray(each) for each in model.get_weights()]


def test_a_training_is_measured_and_gives_the_results_of_keras_fit(keras, tmp_path, capfd):
    plain_losses, plain_weights = _fit(keras)
    for runs_before in range(2):
        with tfx_perf.optimized(_NO_TRIALS, folder=tmp_path / "perf") as training:
            losses, weights = _fit(keras)
        assert training.record.runs_before == runs_before
    assert losses == plain_losses
    assert all(map(np.array_equal, weights, plain_weights))
    assert training.record.train_step_count == 128
    assert TrainingRecord.read(tmp_path / "perf" / "metrics.json") == training.record
    assert "How the model was trained" in (tmp_path / "perf" / "report.html").read_text()
    assert f"report: {tmp_path / 'perf' / 'report.html'}" in capfd.readouterr().err
    assert training.decision is None


def test_an_error_of_the_users_code_passes_and_leaves_keras_as_it_was(keras, tmp_path):
    before = keras.Model.fit
    with pytest.raises(ZeroDivisionError), tfx_perf.optimized(folder=tmp_path / "perf"):
        raise ZeroDivisionError
    assert keras.Model.fit is before
    assert not (tmp_path / "perf").exists()


@pytest.mark.parametrize("error", [OSError("disk full"), SystemExit(3)], ids=repr)
def test_an_error_after_a_fit_leaves_its_figures_and_propagates(error, tmp_path, capfd):
    keras = importlib.import_module("keras")
    baseline = tmp_path / "baseline"
    checkpoints = tmp_path / "checkpoints"
    training = {**_NO_TRIALS["training"], "checkpoint_folder": str(checkpoints)}
    settings = {"training": training, "gate": {"baseline_uri": str(baseline)}}
    optimized = tfx_perf.optimized(settings, folder=tmp_path / "perf")
    with pytest.raises(type(error)) as raised, optimized as run:
        _fit(keras)
        raise error
    assert raised.value is error
    assert TrainingRecord.read(tmp_path / "perf" / "metrics.json") == run.record
    assert run.record.train_step_count == 128
    (said,) = [line for line in capfd.readouterr().err.splitlines() if "model.fit" in line]
    assert f"before {type(error).__name__} was raised" in said
    assert f"Report: {tmp_path / 'perf' / 'report.html'}. The gate has not" in said
    assert (tmp_path / "perf" / "report.html").is_file()
    assert run.decision is None
    assert not baseline.exists()
    assert any(checkpoints.iterdir())


def test_an_error_on_a_full_disk_leaves_no_word_of_files_that_are_not_there(tmp_path, capfd):
    folder = tmp_path / "perf"
    with pytest.raises(ZeroDivisionError), tfx_perf.optimized(_NO_TRIALS, folder=folder) as run:
        _fit(importlib.import_module("keras"))
        folder.rmdir()
        folder.touch()
        raise ZeroDivisionError
    said = capfd.readouterr().err
    assert "Could not be written" in said
    assert "before ZeroDivisionError was raised: run.record, of" in said
    assert "Report: " not in said
    assert run.record.train_step_count == 128


@pytest.mark.parametrize("obstacle", [ValueError, SystemExit])
def test_no_error_of_ours_hides_one_of_the_users_code(obstacle, monkeypatch):
    def fails(*arguments, **more):
        raise obstacle

    monkeypatch.setattr(script.scaling, "with_one_replica", fails)
    error = OSError("disk full")
    with pytest.raises(OSError, match="disk full") as raised, tfx_perf.optimized(_NO_TRIALS):
        _fit(importlib.import_module("keras"))
        raise error
    assert raised.value is error


@pytest.mark.parametrize(
    ("context", "words"),
    [(tfx_perf.optimized, "Nothing was measured"), (tfx_perf.measured, "no step was marked")],
)
def test_without_a_fit_or_a_marked_step_nothing_is_measured_and_that_is_said(
    context, words, tmp_path, capfd
):
    with context(folder=tmp_path / "perf") as training:
        pass
    assert training.record is None
    assert words in capfd.readouterr().err
    assert not (tmp_path / "perf").exists()


@pytest.mark.parametrize("context", [tfx_perf.optimized, tfx_perf.measured])
def test_a_gate_that_may_fail_the_script_refuses_that_nothing_was_measured(context, tmp_path):
    gate = {"baseline_uri": str(tmp_path / "baseline"), "fail_pipeline": True}
    with pytest.raises(errors.RefusalError, match="Nothing was measured"), context({"gate": gate}):
        pass


@pytest.mark.parametrize("context", [tfx_perf.optimized, tfx_perf.measured])
@pytest.mark.parametrize(
    "gate", [{"fail_pipeline": True}, {"rules": {"step_time_seconds": {"max": 1.0}}}]
)
def test_a_gate_without_a_folder_of_blessed_runs_is_refused(context, gate):
    refused = pytest.raises(errors.UserError, match="Received: gate.baseline_uri=None")
    with refused, context({"gate": gate}):
        pytest.fail("it began")


@pytest.mark.parametrize("stream", ["/dev/full", None])
def test_a_terminal_that_is_full_or_closed_leaves_the_model(stream, monkeypatch):
    keras = importlib.import_module("keras")
    with open(stream or "/dev/null", "w") as terminal:
        if stream is None:
            terminal.close()
        monkeypatch.setattr(sys, "stderr", terminal)
        with tfx_perf.optimized(_NO_TRIALS) as training:
            _fit(keras)
        monkeypatch.undo()
        assert training.record is not None
        with contextlib.suppress(OSError):  # what is left to write
            terminal.close()


def test_a_folder_in_the_users_home_is_there(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    with tfx_perf.measured(folder="~/perf") as meter, meter.step(examples=1):
        pass
    assert (tmp_path / "perf" / "report.html").exists()


def test_wrong_settings_are_refused_before_anything_trains():
    before = [each.fit for each in interception.model_classes()]
    wrong = tfx_perf.optimized({"training": {"trial_budget_second": 1}})
    with pytest.raises(errors.UserError, match="trial_budget_second"), wrong:
        pytest.fail("the code was run")
    assert [each.fit for each in interception.model_classes()] == before


def _failing_gate(folder, key):
    """The settings of a gate for what other work on the machine does not change."""
    gate = {"use_defaults": False, "rules": {key: {"tolerance": 0.01}}, "fail_pipeline": True}
    return {"gate": {**gate, "baseline_uri": str(folder / "baseline")}}


def test_a_run_that_is_worse_than_the_blessed_ones_is_refused(tmp_path, capfd):
    keras = importlib.import_module("keras")
    settings = _NO_TRIALS | _failing_gate(tmp_path, "train_loss")
    for _ in range(2):
        with tfx_perf.optimized(settings, name="dense") as training:
            _fit(keras)
        assert training.decision.blessed
    assert len(training.decision.baseline_runs) == 1
    for folder in (None, tmp_path / "perf"):
        worse = tfx_perf.optimized(settings, folder=folder, name="dense")
        with pytest.raises(errors.RefusalError, match="train_loss"), worse:
            _fit(keras, learning_rate=1e-5)
    assert not GateRecord.read(tmp_path / "perf" / "evaluation.json").blessed
    page = (tmp_path / "perf" / "gate_report.html").read_text()
    assert "Refused" in page
    assert "PerfEvaluator" not in page
    with tfx_perf.optimized(settings, name="another") as training:
        _fit(keras, learning_rate=1e-5)
    assert not training.decision.baseline_runs
    # A person may decide otherwise, as the terminal has said.
    said = capfd.readouterr().err.splitlines()
    without_folder, line = [line for line in said if "tfx-perf bless" in line]
    assert "give the block a folder" in without_folder
    arguments = line.partition("tfx-perf ")[2].split()
    main.cli.main(arguments, standalone_mode=False)
    with tfx_perf.optimized(settings, name="dense") as training:
        _fit(keras, learning_rate=1e-5)
    assert training.decision.blessed


def _loop(keras, meter, *, epochs=2, scale=1.0):
    """A training as Keras' guides write it; returns the seconds of its epochs without pauses."""
    keras.utils.set_random_seed(1)
    x = np.random.rand(512, 4).astype("float32")
    data = tf.data.Dataset.from_tensor_slices((x, x[:, :1])).batch(16)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    optimizer = keras.optimizers.SGD(0.1)
    seconds = 0.0
    for _ in range(epochs):
        began = time.perf_counter()
        for inputs, targets in data:
            with meter.step(examples=len(inputs)):
                with tf.GradientTape() as tape:
                    loss = tf.reduce_mean((model(inputs) - targets) ** 2)
                variables = model.trainable_variables
                gradients = tape.gradient(loss, variables)
                optimizer.apply_gradients(zip(gradients, variables, strict=True))
        seconds += time.perf_counter() - began
        time.sleep(0.5)  # validation, say
        meter.end_epoch(loss=loss, val_loss=scale * float(loss))
    return seconds


def test_a_custom_loop_is_measured_where_it_marks_its_steps(keras, tmp_path, capfd):
    with tfx_perf.measured(folder=tmp_path / "perf") as meter:
        seconds = _loop(keras, meter)
    record = TrainingRecord.read(tmp_path / "perf" / "metrics.json")
    assert record == meter.record
    assert (record.train_step_count, record.global_batch_size) == (64, 16)
    figures = record.figures()
    # All of the steps, and neither the pauses between epochs nor the first step's beginnings.
    assert 0 < 63 * figures["step_time_low_seconds"] < seconds
    assert sum(each for _, each in record.step_times) <= seconds
    assert figures["examples_per_second"] == 16 / record.mean_step_time_seconds
    assert len(record.losses["loss"]) == 2
    assert figures["train_loss"] == figures["validation_loss"] < record.losses["loss"][0]
    assert figures["training_memory_bytes"] is not None
    said = capfd.readouterr().err
    assert "Trained with a custom training loop" in said
    assert "a custom training loop" in (tmp_path / "perf" / "report.html").read_text()


def test_a_custom_loop_is_judged_by_the_gate(tmp_path):
    keras = importlib.import_module("keras")
    settings = _failing_gate(tmp_path, "validation_loss")
    for _ in range(2):
        with tfx_perf.measured(settings) as meter:
            _loop(keras, meter, epochs=1)
        assert meter.decision.blessed
    assert len(meter.decision.baseline_runs) == 1
    worse = tfx_perf.measured(settings)
    with pytest.raises(errors.RefusalError, match="validation_loss"), worse as meter:
        _loop(keras, meter, epochs=1, scale=2.0)


def test_several_steps_of_one_call_count_and_one_that_raises_does_not():
    with tfx_perf.measured() as meter:
        for _ in range(5):
            with meter.step(examples=80, steps=10):
                pass
        with pytest.raises(ZeroDivisionError), meter.step(examples=80, steps=10):
            raise ZeroDivisionError
    assert (meter.record.train_step_count, meter.record.global_batch_size) == (50, 8)


@pytest.mark.parametrize(
    "wrong",
    [
        {"examples": 0},
        {"examples": 3, "steps": -1},
        {"examples": 3, "steps": 0},
        {"examples": 3, "steps": 4},
        {"examples": None},
        {"examples": 2.5},
        {"examples": 8, "steps": 4.0},
        {"examples": tf.constant([1, 2])},
    ],
    ids=str,
)
def test_a_step_without_examples_is_refused_unless_it_would_end_a_training(wrong):
    with tfx_perf.measured() as meter:
        with pytest.raises(errors.UserError, match="at least one"):
            meter.step(**wrong)
        for given in ({"examples": 4}, wrong, {"examples": 4}):
            with meter.step(**given):
                pass
    assert meter.record.global_batch_size == 4


def test_what_is_told_of_a_loop_may_be_tensors_and_nothing_of_it_ends_the_training():
    with tfx_perf.measured() as meter:
        with meter.step(examples=tf.constant(8), steps=np.int64(2)):
            pass
        meter.end_epoch(loss=tf.constant(0.5), val_loss=None)
        meter.end_epoch(loss=np.zeros(2), val_loss=0.25)
    assert (meter.record.train_step_count, meter.record.global_batch_size) == (2, 4)
    assert meter.record.losses == {"loss": (0.5,), "val_loss": (0.25,)}
    assert "val_loss of epoch 1 is no number" in " ".join(meter.record.notes)


def test_a_model_without_variables_is_refused_at_once():
    refused = pytest.raises(errors.UserError, match="Received: model=list")
    with refused, tfx_perf.measured(model=[object()]):
        pytest.fail("it began")


@pytest.mark.parametrize("context", [tfx_perf.optimized, tfx_perf.measured])
@pytest.mark.parametrize("folder", ["file/perf", "gs://bucket/perf", ""])
def test_a_folder_that_cannot_be_made_is_refused_before_anything_trains(
    context, folder, tmp_path, monkeypatch
):
    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path)
    refused = pytest.raises(errors.UserError, match=f"Received: folder=.*{folder}")
    with refused, context(folder=folder):
        pytest.fail("it began")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_name_that_is_no_text_is_refused():
    with pytest.raises(errors.UserError, match="Received: name=5"), tfx_perf.optimized(name=5):
        pytest.fail("it began")


@pytest.mark.parametrize("fails", [False, True])
def test_a_ledger_that_cannot_be_written_leaves_the_model(fails, tmp_path, capfd):
    """The disk is full, or the folder is gone, since the block began."""
    keras = importlib.import_module("keras")
    gate = {"baseline_uri": str(tmp_path / "baseline"), "fail_pipeline": fails}
    raised = pytest.raises(errors.UserError, match="baseline_uri that can be")
    with raised if fails else contextlib.nullcontext():
        with tfx_perf.optimized(_NO_TRIALS | {"gate": gate}) as training:
            _fit(keras)
            (tmp_path / "baseline").symlink_to(tmp_path / "gone" / "far")
        assert training.record is not None
        assert training.decision is None
        said = capfd.readouterr().err
        assert "neither blessed nor recorded this run" in said
        assert "Blessed" not in said


@pytest.mark.parametrize("context", [tfx_perf.optimized, tfx_perf.measured])
def test_a_baseline_that_cannot_be_read_is_refused_before_anything_trains(context, tmp_path):
    (tmp_path / "file").touch()
    gate = {"gate": {"baseline_uri": str(tmp_path / "file")}}
    for folder in (None, tmp_path / "file"):  # or is the folder of the figures
        raised = pytest.raises(errors.UserError, match="baseline_uri")
        with raised, context(gate, folder=folder):
            pytest.fail("it began")


def test_the_digest_is_of_the_users_code_and_of_none_that_is_in_no_file(tmp_path, monkeypatch):
    loaded, archived = types.ModuleType("loaded"), types.ModuleType("archived")
    loaded.__file__ = str(tmp_path / "loaded.py")
    pathlib.Path(loaded.__file__).write_text("a = 1")
    archived.__file__ = str(tmp_path / "app.pyz" / "archived.py")
    modules = {"__main__": loaded}
    with monkeypatch.context() as patch:
        patch.setattr(sys, "modules", modules)
        known = script._code_digest()
        modules[launch.__name__] = launch  # with which `tfx-perf launch` runs a script
        launched = script._code_digest()
        pathlib.Path(loaded.__file__).write_text("a = 2")
        edited = script._code_digest()
        modules["archived"] = archived
        unknown = script._code_digest()
    assert known
    assert launched == known != edited
    assert unknown is None


def test_a_cache_that_was_not_read_to_its_end_is_let_go_of(keras, tmp_path):
    data = _data().cache(str(tmp_path / "cache"))
    for _ in range(2):
        with tfx_perf.optimized(_NO_TRIALS):
            for _ in range(2):
                _compiled(keras).fit(data.repeat(), steps_per_epoch=3, epochs=2, verbose=0)


_CACHED = """
import sys
import keras
import numpy as np
import tensorflow as tf
import tfx_perf

class Telling(keras.layers.Layer):
    def call(self, x):
        print("traced", file=sys.stderr, flush=True)
        return x

x = np.ones((6400, 4), "float32")
data = tf.data.Dataset.from_tensor_slices((x, x[:, :1])).cache().batch(8)
model = keras.Sequential([keras.layers.Input((4,)), Telling(), keras.layers.Dense(1)])
model.compile("sgd", "mse")
print("here it begins", file=sys.stderr)
with tfx_perf.optimized({"schedule": {"expected_runs": 100}}, folder="perf") as run:
    model.fit(data, epochs=2, verbose=0)
print(len(run.record.trials))
"""


@pytest.mark.slow
def test_what_libraries_log_in_trials_is_in_a_file_and_what_the_user_prints_is_not(tmp_path):
    (tmp_path / "train.py").write_text(_CACHED)
    done = processes.python("train.py", cwd=tmp_path, check=True)
    assert int(done.stdout) > 1
    shown = done.stderr.partition("here it begins\n")[2]
    log = (tmp_path / "perf" / "libraries.log").read_text()
    assert "The calling iterator did not fully read the dataset being cached" in log
    assert ".cc:" not in shown
    assert "traced" in shown
    assert "traced" not in log


def test_what_is_measured_at_the_end_draws_no_seeds(keras):
    def drawn(context):
        keras.utils.set_random_seed(5)
        with context:
            _compiled(keras).fit(_data(), verbose=0)
        return float(tf.random.uniform([]))

    assert drawn(contextlib.nullcontext()) == drawn(tfx_perf.optimized(_NO_TRIALS))


def test_in_a_pipeline_neither_the_loops_folder_nor_its_baseline_counts(tmp_path):
    gate = {"gate": {"baseline_uri": str(tmp_path / "file")}}
    (tmp_path / "file").touch()
    session = TrainingSession(config.PerfConfig())
    loop = tfx_perf.measured(gate, folder=tmp_path / "perf")
    with script.inside(session), loop as meter, meter.step(examples=4):
        pass
    assert session.record == meter.record
    assert not (tmp_path / "perf").exists()


def test_who_looks_for_a_fit_runs_no_step_of_a_loop_and_no_trial(keras):
    """InputTuner and MemoryProfiler run the code up to its `fit`."""

    def loop():
        with tfx_perf.measured() as meter, meter.step(examples=1):
            pytest.fail("a step was run")

    with pytest.raises(errors.NoFitError):
        interception.capture_fit(loop)

    def fits():
        with tfx_perf.optimized():
            _fit(keras)

    assert interception.capture_fit(fits).arguments["epochs"] == 2
    assert not interception.is_capturing()


@pytest.mark.one_case
def test_the_next_run_has_the_plan_of_the_trials_for_data_that_were_copied_for_them(
    keras, tmp_path, capfd, monkeypatch
):
    """`batch` leaves the size of the last batch open, so that only the datasets know it."""
    monkeypatch.setattr(script, "_code_digest", lambda: "the same")  # other tests load modules
    monkeypatch.setattr(turns, "BLOCK_SECONDS", 0.01)
    settings = {
        "training": {"steps_per_execution": [10], "tuning_seconds": 60},
        "compilation": {"enabled": False},
        "schedule": {"expected_runs": 10**6},
    }
    records = []
    for _ in range(2):
        with tfx_perf.optimized(settings, folder=tmp_path) as training:
            _fit(keras)
        records.append(training.record)
    first, second = records
    assert len(first.trials) > 1
    assert first.trial_time_seconds > second.trial_time_seconds == 0.0
    assert (second.plan, second.trials, second.fit) == (first.plan, first.trials, first.fit)
    assert "AutoGraph" not in capfd.readouterr().err


@pytest.mark.parametrize("package", ["keras", "tf_keras"])
def test_a_callback_that_ruled_plans_out_in_the_run_before_is_not_held_against_this_one(
    package, tmp_path
):
    keras = importlib.import_module(package)

    class Each(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            pass

    for callbacks, ruled_out in ([Each()], True), ([], False):
        with tfx_perf.optimized(folder=tmp_path) as run:
            _compiled(keras).fit(_data(), epochs=2, callbacks=callbacks, verbose=0)
        assert ("acts on every batch" in run.record.plan_reason) is ruled_out
