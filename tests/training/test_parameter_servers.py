"""Trainings with `parameter_servers`: real processes, as `tfx-perf launch --ps` starts them.

`step_dispatcher` runs the steps, also those of an evaluation. Some data are refused before
anything is trained. `state` is saved.
"""

import json
import pathlib
import sys
import time

import numpy as np
import pytest
import served_training
import tensorflow as tf
import tf_keras

from tests import processes
from tfx_perf.config import PerfConfig
from tfx_perf.core import errors
from tfx_perf.core.interception import FitCall
from tfx_perf.distribute.parameter_server.fit import AsynchronousFit, epoch_length, served
from tfx_perf.training.loop.fit_loop import FitLoop
from tfx_perf.training.recovery.checkpoint_writer import CheckpointSchedule

pytestmark = pytest.mark.each_choice

_SCRIPT = pathlib.Path(served_training.__file__)


def launched(folder, *, workers=1, servers=1, restarts=0, heartbeat_timeout=60, **options):
    """Trains under `tfx-perf launch`; returns the ended process with its output."""
    command = [
        *(sys.executable, "-m", "tfx_perf", "launch", "--workers", str(workers)),
        *("--ps", str(servers), "--restarts", str(restarts)),
        *("--heartbeat-timeout", str(heartbeat_timeout)),
        *(str(_SCRIPT), str(folder), json.dumps(options)),
    ]
    return processes.run(*command, cwd=folder, timeout=300)


def outcome(folder):
    return json.loads((folder / "outcome.json").read_text())


@pytest.mark.parametrize(
    ("compiled", "callbacks", "words"),
    [
        ({"jit_compile": True}, [], "Expected a model that is not compiled by XLA"),
        ({}, [tf_keras.callbacks.TerminateOnNaN()], "Received: TerminateOnNaN"),
    ],
    ids=["xla", "callback"],
)
def test_models_that_would_fail_at_a_worker_are_refused_early(compiled, callbacks, words):
    model = tf_keras.Sequential([tf_keras.layers.Dense(1)])
    model.compile("sgd", "mse", **compiled)
    call = FitCall(model, {"callbacks": callbacks, "steps_per_epoch": None, "x": None}, model.fit)
    with pytest.raises(errors.UserError, match=words):
        AsynchronousFit(
            call, FitLoop(call), settings=PerfConfig(), folder=None, clock=CheckpointSchedule()
        )


def test_one_worker_trains_like_one_device(tmp_path):
    done = launched(tmp_path, epochs=1)
    assert done.returncode == 0, done.stdout + done.stderr
    found = outcome(tmp_path)
    alone = served_training.made(tf_keras)
    validation = served_training.validation_data()
    history = alone.fit(served_training.data(), epochs=1, verbose=0, validation_data=validation)
    assert "val_first_mae" in history.history
    for name, values in history.history.items():
        np.testing.assert_allclose(found["history"][name], values, rtol=1e-5, err_msg=name)
    evaluation = alone.evaluate(served_training.data(), verbose=0, return_dict=True)
    for name, value in evaluation.items():
        np.testing.assert_allclose(found["evaluation"][name], value, rtol=1e-5, err_msg=name)
    for mine, theirs in zip(found["weights"], alone.get_weights(), strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-5)
    record = json.loads((tmp_path / "perf" / "metrics.json").read_text())
    assert record["environment"]["strategy"] == "ParameterServerStrategy"
    assert (record["worker_count"], record["parameter_server_count"]) == (1, 1)
    assert record["environment"]["parameter_server_count"] == "1"  # for the gate
    assert (record["train_step_count"], record["global_batch_size"]) == (20, 8)
    assert record["plan"]["steps_per_execution"] == 10
    assert record["peak_memory_bytes"] is record["energy_joules"] is None


@pytest.mark.slow
def test_servers_divide_an_embedding_and_the_model_is_saved_whole(tmp_path):
    done = launched(tmp_path, workers=2, servers=2, epochs=20, optimizer="Adagrad")
    assert done.returncode == 0, done.stdout + done.stderr
    found = outcome(tmp_path)
    assert found["sharded"] == "ShardedVariable"
    assert (1000, 8) in map(np.shape, found["weights"])
    assert found["history"]["loss"][-1] < found["history"]["loss"][0] / 4
    assert not any("embedding" in note for note in found["notes"])


@pytest.mark.slow
def test_the_others_continue_without_a_worker_that_is_restarted(tmp_path):
    done = launched(
        tmp_path, workers=2, restarts=1, epochs=20, epoch=2, kills="worker", optimizer="Nadam"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Worker 0 was killed (SIGKILL)" in done.stderr
    assert "and is started again." in done.stderr
    assert "All were ended" not in done.stderr
    found = outcome(tmp_path)
    assert len(found["history"]["loss"]) == 20
    assert any(note.startswith("Nadam updates all rows of an") for note in found["notes"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("worker", "Worker 0 was killed after 10 s without a heartbeat: it was stopped or hung"),
        ("ps", "Restarting all workers (1 of 1). Server 0: was killed after 10 s without a"),
    ],
)
def test_a_stopped_process_is_killed_and_restarted(tmp_path, kind, words):
    training = {"checkpoint_folder": str(tmp_path / "checkpoints"), "checkpoint_every_steps": 20}
    done = launched(
        tmp_path, workers=2, restarts=1, heartbeat_timeout=10, epochs=5, epoch=3, kills=kind,
        signal="SIGSTOP", training=training,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert any(line.startswith(words) for line in done.stderr.splitlines()), done.stderr
    found = outcome(tmp_path)
    assert (found["resumed_step"] or 0) >= (0 if kind == "worker" else 40)
    assert not list((tmp_path / "checkpoints").rglob("checkpoint-*"))
    assert found["checkpoint_time_seconds"] > 0 or kind == "ps"  # a coordinator that restarts


@pytest.mark.slow
def test_a_fit_that_raised_leaves_no_steps_behind(tmp_path):
    done = launched(tmp_path, workers=2, kills="step")
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(outcome(tmp_path)["history"]["loss"]) == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        ({"epoch": 1, "kills": "raise"}, 1, "RuntimeError: planned"),
        ({"package": "keras"}, 2, "Expected a model of tf_keras under ParameterServerStrategy"),
    ],
    ids=["raises", "keras"],
)
def test_an_error_of_the_code_ends_all(tmp_path, options, code, said):
    done = launched(tmp_path, restarts=1, **options)
    assert done.returncode == code
    assert done.stderr.splitlines()[-1].startswith(f"Coordinator: {said}")
    assert "start again" not in done.stderr


DATA = tf.data.Dataset.range(10).batch(2)
ARGUMENTS = {
    "x": DATA, "steps_per_epoch": None, "validation_data": None, "validation_steps": None,
    "class_weight": None,
}  # fmt: skip


def length(**arguments):
    return epoch_length({**ARGUMENTS, **arguments})


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"x": np.ones(3)}, "Expected x to be a tf.data.Dataset .*Received: x=ndarray.*slices"),
        ({"x": DATA.take(0)}, "Expected training data. Received: x of 0 batches"),
        ({"x": DATA.repeat()}, "Expected steps_per_epoch.*Received: steps_per_epoch=None"),
        ({"x": lambda context: DATA}, "Expected steps_per_epoch.* x=function"),
        ({"class_weight": {0: 2.0}}, "Expected no class_weight.*Received: .*sample weights"),
        ({"validation_data": DATA.repeat()}, "Expected validation_steps"),
    ],
)
def test_data_on_which_an_epoch_would_fail_are_refused(arguments, words):
    with pytest.raises(errors.UserError, match=words) as caught:
        length(**arguments)
    assert "\n" not in str(caught.value)


def test_the_length_of_an_epoch_is_the_datas_by_default():
    assert length() == 5
    assert length(x=DATA.repeat(), steps_per_epoch=7) == 7


def test_batches_are_taken_from_the_process_that_reads_them():
    data = tf.data.Dataset.range(6).map(
        lambda x: tf.numpy_function(lambda x: x * 10, [x], tf.int64)
    )
    with served(data, host="localhost", step=8) as found:
        first = [int(each) for each in found.take(6)]
    assert first == [20, 30, 40, 50, 0, 10]
    assert length(x=data) == 6


# TensorFlow stops a worker while it holds the GIL, which the worker's prefetching may need.
def test_prefetching_of_python_functions_is_ended():
    calls = []

    def slow(x):
        calls.append(x)
        time.sleep(0.01)
        return x

    data = DATA.map(lambda x: tf.numpy_function(slow, [x], tf.int64)).repeat(100).prefetch(500)
    with served(data, host="localhost", step=0) as found:
        next(iter(found))
    assert len(calls) < 500
