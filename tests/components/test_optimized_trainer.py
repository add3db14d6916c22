"""OptimizedTrainer's wiring, and its executor on artifacts in temporary folders."""

import importlib
import os
import pathlib
import signal
import time
import types as python_types

import numpy as np
import pytest
import tensorflow as tf
import training_cases

from tests.ports import free_port
from tfx_perf.components.optimized_trainer import checkpoints, executor
from tfx_perf.components.training_job import TrainingJob
from tfx_perf.config import PerfConfig
from tfx_perf.core import errors, metrics, unmeasured
from tfx_perf.training import session
from tfx_perf.training.speedups.plan import PLAIN_FIT

pytestmark = pytest.mark.each_choice


@pytest.mark.slow_where("tf_keras")
@pytest.mark.parametrize("line", ["keras", "tf_keras"])
def test_a_stock_module_is_trained_and_measured(trainer, line):
    trainer.run(module={"line": line}, tuning_seconds=60)  # enough even on a busy machine
    assert list(pathlib.Path(trainer.model.uri).rglob("saved_model.pb"))
    assert list(pathlib.Path(trainer.model_run.uri).rglob("events*"))
    assert (pathlib.Path(trainer.perf_metrics.uri) / "trials.log").exists()
    record = trainer.record
    assert record.train_step_count == 120
    assert record.global_batch_size == 10
    assert record.environment["strategy"] == "MirroredStrategy"
    assert record.environment["precision"] == "float32"
    assert not any("outputs are" in note or "this CPU" in note for note in record.notes)
    assert {trial.status for trial in record.trials} & {"chosen", "slower"}
    figures = record.figures()
    assert 0 < figures["trial_time_seconds"] < figures["time_to_first_step_seconds"]
    assert figures["time_to_first_step_seconds"] < figures["fit_time_seconds"]
    in_trials = next(trial for trial in record.trials if trial.plan == record.plan)
    assert record.compile_time_seconds == in_trials.compile_time_seconds  # once, and kept
    for key, value in metrics.checked(record.figures()).items():
        assert trainer.perf_metrics.get_float_custom_property(key) == value, key
    assert trainer.perf_metrics.get_float_custom_property("validation_loss") > 0
    assert trainer.perf_metrics.get_string_custom_property("plan") == str(record.plan)
    html = (pathlib.Path(trainer.perf_metrics.uri) / "report.html").read_text()
    assert record.plan_reason.split(" times")[0] in html


def test_the_tuned_input_is_what_fit_gets(trainer):
    tell = "print(train._input_dataset, file=open(fn_args.model_run_dir + '.txt', 'w'))"
    trainer.run(module={"train": tell}, tuning_seconds=0)
    stock = told(trainer)
    trainer.run(
        module={"train": f"{tell}\n    {training_cases.FIT}"},
        inputs={"input_plan": [trainer.plan("columns")]},
        tuning_seconds=0,
    )
    assert told(trainer) != stock
    assert trainer.record.train_step_count == 120
    assert trainer.record.global_batch_size == 10


ARRAYS = """x, y = zip(*[(x["number"].numpy(), y.numpy()) for x, y in train.take(30)])
    import numpy as np
    x, y = {"number": np.concatenate(x)}, np.concatenate(y)
    model.fit(x, y, batch_size=10, epochs=4, validation_split=0.2, verbose=0)"""


@pytest.mark.slow
@pytest.mark.slow_where("tf_keras")
@pytest.mark.parametrize("line", ["keras", "tf_keras"])
def test_a_module_may_train_on_arrays(trainer, line):
    trainer.run(module={"line": line, "train": ARRAYS}, tuning_seconds=60)
    record = trainer.record
    assert record.train_step_count == 96
    assert record.global_batch_size == 10
    assert {trial.status for trial in record.trials} & {"chosen", "slower"}


# Writes down the process that trains, and the random number it draws first.
_TELLS = f"""import os, numpy
    with open(fn_args.model_run_dir + ".txt", "w") as told:
        print(os.getpid(), numpy.random.random(), file=told)
    {training_cases.FIT}"""


def told(trainer):
    return pathlib.Path(trainer.model_run.uri + ".txt").read_text().split()


@pytest.mark.slow
@pytest.mark.slow_where("tf_keras")
@pytest.mark.parametrize("line", ["keras", "tf_keras"])
def test_a_training_has_its_own_process_and_the_seed_makes_two_equal(trainer, line):
    """So that a run after cached nodes takes as much memory as any other."""
    records, held = [], []
    for before in (1, 2):
        importlib.import_module(line).utils.set_random_seed(before)  # as other code may have
        trainer.run(module={"line": line, "train": _TELLS}, seed=5, tuning_seconds=0)
        records.append(trainer.record)
        held.append(b"x" * 2**29)
    alone_bytes, beside_bytes = (each.figures()["peak_memory_bytes"] for each in records)
    assert beside_bytes < alone_bytes + len(held[0]) // 2
    assert int(told(trainer)[0]) != os.getpid()
    # Not to the last digit: Keras 3 builds the model with an iterator that it drops, and how far
    # that iterator read ahead decides the order of the next pass over these 60 examples.
    losses = [each.losses["loss"] for each in records]
    assert losses[0] == pytest.approx(losses[1], rel=0.02)


def test_a_module_that_does_not_call_fit_still_saves_its_model(trainer):
    trainer.run(module={"train": training_cases.LOOP}, tuning_seconds=0)
    assert list(pathlib.Path(trainer.model.uri).rglob("saved_model.pb"))
    assert unmeasured.reason_in(trainer.perf_metrics.uri) == session.NO_FIT
    assert session.NO_FIT in trainer.perf_metrics.get_string_custom_property("plan")
    assert not trainer.perf_metrics.has_custom_property("step_time_seconds")


MARKED = """import tfx_perf
    with tfx_perf.measured({"gate": {"baseline_uri": "nowhere"}}, model=model) as meter:
        for x, y in train.take(30):
            with meter.step(examples=len(y)):
                loss = model.train_on_batch(x, y)
        meter.end_epoch(loss=loss)"""
BY_ITSELF = f"""import tfx_perf
    with tfx_perf.optimized(folder={{folder!r}}) as training:
        {training_cases.FIT}
    assert training.record.train_step_count == 120"""


def test_a_custom_loop_that_marks_its_steps_is_measured(trainer):
    trainer.run(module={"train": MARKED})
    record = trainer.record
    assert (record.train_step_count, record.global_batch_size) == (30, 10)
    assert record.parameter_count == 13
    assert trainer.perf_metrics.get_string_custom_property("plan") == "a custom training loop"
    assert trainer.perf_metrics.has_custom_property("step_time_seconds")
    assert trainer.perf_metrics.has_custom_property("train_loss")


def test_code_that_calls_tfx_perf_itself_leaves_it_to_the_pipeline(trainer, tmp_path):
    folder = tmp_path / "own"
    trainer.run(module={"train": BY_ITSELF.format(folder=str(folder))}, tuning_seconds=0)
    assert trainer.record.train_step_count == 120
    assert not folder.exists()


_RAISES_ONCE = """
    tries = []
    class Raises(keras.callbacks.Callback):
        def on_train_begin(self, logs=None):
            tries.append(1)
            if {when}:
                raise ValueError("no luck")
    for _ in range(2):
        try:
            model.fit(train, steps_per_epoch=20, verbose=0, callbacks=[Raises()])
        except ValueError:
            pass
"""


@pytest.mark.one_case
@pytest.mark.parametrize("when", ["True", "len(tries) == 1"])
def test_a_fit_that_raises_is_reported_though_the_module_continues(trainer, when, caplog):
    trainer.run(module={"train": _RAISES_ONCE.format(when=when)}, tuning_seconds=0)
    remark = trainer.perf_metrics.get_string_custom_property("remark")
    assert "Model.fit raised ValueError: no luck, and your code continued" in remark
    assert remark in caplog.messages
    page = pathlib.Path(trainer.perf_metrics.uri, "report.html").read_text()
    assert "ValueError: no luck" in page.partition('class="verdict')[2].partition("</div>")[0]
    if when == "True":
        assert "no luck" in unmeasured.reason_in(trainer.perf_metrics.uri)
    else:
        assert trainer.record.fit_errors == ("ValueError: no luck",)
        assert trainer.record.train_step_count == 20


@pytest.mark.slow
def test_trials_that_raise_are_reported_though_the_training_succeeds(trainer, caplog):
    # Data that call Python are tried in a separate process, in a separate folder.
    beginning = """
def call_python(x, y):
    return x, tf.ensure_shape(tf.py_function(tf.identity, [y], y.dtype), y.shape)
"""
    train = f"""if "optimized-trainer-" in fn_args.serving_model_dir:
        raise ValueError("no luck in trials")
    {training_cases.FIT.replace("train,", "train.map(call_python),", 1)}"""
    trainer.run(module={"beginning": beginning, "train": train})
    record = trainer.record
    assert record.train_step_count == 120
    assert record.trials_failed
    assert record.remark == f"Trained with Keras fit: {record.plan_reason}."
    assert "ValueError: no luck in trials" in record.remark
    assert trainer.perf_metrics.get_string_custom_property("remark") == record.remark
    assert record.remark in caplog.messages


def test_a_module_that_saves_no_model_fails(trainer):
    module = {"train": training_cases.LOOP, "save": "pass"}
    with pytest.raises(RuntimeError, match="Expected run_fn to save a model"):
        trainer.run(module=module, tuning_seconds=0)


@pytest.mark.parametrize("budget_seconds", [0, 15])
def test_a_wrong_module_is_refused_in_one_line(trainer, budget_seconds):
    given = trainer.given(trainer.folder / "missing.py", tuning_seconds=budget_seconds)
    with pytest.raises(errors.UserError, match="existing module file"):
        executor.Executor().Do(*given)


@pytest.mark.slow
def test_sigterm_reaches_the_process_that_trains(trainer, tmp_path):
    module = trainer.write_module(
        beginning=training_cases.SLOWLY.format(seconds=0.1, condition="True"),
        train=training_cases.FIT.replace("train,", "train.map(slowly),", 1),
    )
    kept = tmp_path / "kept"
    settings = {
        "checkpoint_folder": str(kept), "checkpoint_every_steps": 10_000, "tuning_seconds": 0
    }  # fmt: skip
    process = trainer.started(module, **settings)
    deadline = time.monotonic() + 120
    while not list(kept.glob("fit-0/*")) and time.monotonic() < deadline:
        time.sleep(0.1)  # the checkpoint of the start
    time.sleep(2)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == -signal.SIGTERM, process.stderr.read()[-2000:]
    executor.Executor().Do(*trainer.given(module, **settings))
    assert 0 < trainer.record.resumed_step < 120
    assert trainer.record.train_step_count == 120 - trainer.record.resumed_step


@pytest.mark.slow
def test_the_model_is_compiled_ahead_of_time_on_request(trainer):
    trainer.run(compilation={"aot_signature": "serving_default"}, tuning_seconds=0)
    (header,) = pathlib.Path(trainer.model.uri).rglob("assets.extra/aot_cpu/model.h")
    assert f"compiled ahead of time: {header.parent}" in trainer.record.notes


# Data that record, batch by batch, whether they are read for trials and whether the port is
# served.
PROBES = f"""
import os, socket

def probe():
    try:
        socket.create_connection(("127.0.0.1", {{port}}), timeout=5).close()
        is_served = True
    except ConnectionRefusedError:
        is_served = False
    with open({{log!r}}, "a") as log:
        print({training_cases.ONLY_MEASURES}, is_served, file=log)

def watch(x, y):
    with tf.control_dependencies([tf.py_function(probe, [], [])]):
        return x, tf.identity(y)
"""


@pytest.mark.slow
def test_the_training_serves_its_metrics_and_the_trials_do_not(trainer, tmp_path):
    port, log = free_port(), tmp_path / "probes.txt"
    trainer.run(
        module={
            "beginning": PROBES.format(port=port, log=str(log)),
            "train": training_cases.FIT.replace("train,", "train.map(watch),", 1),
        },
        monitoring={"metrics_port": port},
    )
    found = set(log.read_text().splitlines())
    assert "True False" in found  # the trials
    assert "False True" in found
    assert "True True" not in found


def test_a_checkpoint_is_found_again_whether_monitored_or_not():
    def folder(**settings):
        context = python_types.SimpleNamespace(stateful_working_dir="/node/.system/working/1")
        properties = {"config": PerfConfig.from_dict(settings).to_json(), "run_fn": "a.b"}
        job = TrainingJob(inputs="{}", exec_properties=properties, code="", plan=PLAIN_FIT)
        return checkpoints.folder_for(job, context)

    assert folder(monitoring={"metrics_port": 9090}) == folder()
    assert folder(training={"seed": 1}) != folder()


# AutoGraph converts this to a graph in a model that is built when it trains.
_BRANCHING = """
def branching(x):
    if tf.reduce_sum(x) > 1e9:
        return 0.0 * x
    return x
"""
_BUILT_LATE = """
    model = keras.Sequential([keras.layers.Dense(4, branching), keras.layers.Dense(1)])
    model.compile(optimizer="adam", loss="mse")
    train, test = (data.map(lambda x, y: (x["number"], y)) for data in (train, test))
    """
_COUNTS_CONVERSIONS = """
from tensorflow.python.autograph.impl import api

def count(entity, context, before=api._convert_actual):
    converted.append(entity.__module__)
    return before(entity, context)

converted, api._convert_actual = [], count
"""


def test_libraries_are_not_converted_by_autograph(trainer):
    tell = "\n    print(*converted, file=open(fn_args.model_run_dir + '.txt', 'w'))"
    save = training_cases.SAVE + tell
    module = {"line": "tf_keras", "beginning": _COUNTS_CONVERSIONS, "save": save}
    trainer.run(module=module, tuning_seconds=0)
    converted = told(trainer)
    # Except the parsing of examples, which `Dataset.map` itself converts.
    assert len([name for name in converted if name.startswith("tfx_bsl.")]) <= 4
    assert not [name for name in converted if name.startswith("tf_keras.src.engine.base_layer")]


@pytest.mark.slow
@pytest.mark.skipif(
    tf.__version__.startswith("2.21"), reason="Keras fit does not convert it either"
)
def test_code_that_needs_converted_libraries_is_still_trained(trainer, caplog):
    save = "model.save_weights(fn_args.serving_model_dir + '/weights')"
    train = _BUILT_LATE + training_cases.FIT
    trainer.run(module={"line": "tf_keras", "beginning": _BRANCHING, "train": train, "save": save})
    assert trainer.record.train_step_count == 120
    assert "all libraries converted" in caplog.text
    assert trainer.record.trials
    assert not trainer.record.trials_failed


def test_the_code_draws_the_same_numbers_as_in_this_process(trainer):
    np.random.seed(4)
    trainer.run(module={"train": _TELLS}, tuning_seconds=0)
    drawn = float(told(trainer)[1])
    np.random.seed(4)
    assert drawn == np.random.random()
