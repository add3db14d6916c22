"""MemoryProfiler's wiring, and its executor on artifacts in temporary folders."""

import pathlib

import pytest
import training_cases
from tfx import types as tfx_types
from tfx.types import standard_artifacts
from tfx.utils import json_utils
from tfx_bsl.tfxio import dataset_options

from tfx_perf.components import InputTuner, MemoryProfiler, OptimizedTrainer, trainer_args
from tfx_perf.components import examples as examples_lib
from tfx_perf.components.memory_profiler import child, executor
from tfx_perf.config import MemorySettings
from tfx_perf.core import errors, metrics
from tfx_perf.input.record import TuningRecord
from tfx_perf.memory.record import ProfileRecord

pytestmark = pytest.mark.each_choice

_MODULE = """
import {line} as keras
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx.utils import io_utils
from tfx_bsl.public import tfxio

def run_fn(fn_args):
    schema = io_utils.parse_pbtxt_file(fn_args.schema_path, schema_pb2.Schema())
    options = tfxio.TensorFlowDatasetOptions(batch_size=16, label_key="label")
    data = fn_args.data_accessor.tf_dataset_factory(fn_args.train_files, options, schema)
    inputs = {{"number": keras.Input((1,), name="number")}}
    outputs = keras.layers.Dense(1)(keras.layers.Dense(64)(inputs["number"]))
    model = keras.Model(inputs, outputs)
    model.compile(optimizer="adam", loss="mse")
    model.fit(data, steps_per_epoch=fn_args.train_steps)
    raise AssertionError("not reached")
"""


def written(trainer, text):
    module = trainer.folder / "module.py"
    module.write_text(text)
    return module


@pytest.mark.slow_where("tf_keras")
@pytest.mark.parametrize("line", ["keras", "tf_keras"])
def test_publishes_a_profile(line, trainer):
    # The module makes its devices, which it can only before any data are read.
    module = written(trainer, _MODULE.format(line=line) + training_cases.TWO_DEVICES)
    profile = trainer.profile(
        module,
        inputs={"input_plan": [trainer.plan("columns")]},
        settings={"memory": {"batch_sizes": [8, 32]}},
    )

    record = ProfileRecord.read(pathlib.Path(profile.uri) / "profile.json")
    assert (record.keras, record.module_batch_size) == (line, 16)
    assert record.state.weights_bytes == 4 * (64 + 64 + 64 + 1)
    assert record.step("plain", 16).input_batch_bytes == 16 * (4 + 8)
    assert {step.batch_size for step in record.steps} == {8, 16, 32}
    assert all(step.peak_bytes for step in record.steps), record.steps
    assert "<svg" in (pathlib.Path(profile.uri) / "report.html").read_text()
    assert profile.get_string_custom_property("keras") == line
    trained = [item.batch_size for item in record.footprints if item.status == "measured"]
    assert trained == [8, 16, 32]  # nothing larger was requested
    # Far from the memory limit, so one process is enough.
    assert [path.name for path in pathlib.Path(profile.uri).glob("*.log")] == ["profile.log"]
    assert record.largest_is_lower_bound
    assert record.largest_batch_size == 32  # the largest one trained; there are 60 rows
    assert record.epoch_example_count >= 60
    figures = metrics.checked(record.figures())
    assert figures["step_peak_bytes"] > figures["weights_bytes"]
    for key, value in figures.items():
        assert profile.get_float_custom_property(key) == value


@pytest.mark.slow
def test_the_module_gets_hyperparameters_base_model_and_the_precision_that_trains(trainer):
    found = trainer.artifact(standard_artifacts.HyperParameters, "hyperparameters")
    (pathlib.Path(found.uri) / "best.txt").write_text('{"space": [], "values": {"units": 5}}')
    base = trainer.artifact(standard_artifacts.Model, "base")
    saved = pathlib.Path(base.uri) / "Format-Serving" / "units.txt"
    saved.parent.mkdir(parents=True)
    saved.write_text("3")
    given = """
    import os
    units = fn_args.hyperparameters["values"]["units"]
    with open(os.path.join(fn_args.base_model, "units.txt")) as file:
        units += int(file.read())
    print("POLICY", keras.mixed_precision.global_policy().name)
    schema ="""
    text = _MODULE.format(line="keras").replace("\n    schema =", given, 1)
    precision = {"precision": "mixed_bfloat16"}
    profile = trainer.profile(
        written(trainer, text.replace("Dense(64)", "Dense(units)")),
        inputs={"hyperparameters": [found], "base_model": [base]},
        settings={"memory": {"batch_sizes": [8, 32]}, "training": precision},
    )
    record = ProfileRecord.read(pathlib.Path(profile.uri) / "profile.json")
    assert record.state.weights_bytes == 4 * (8 + 8 + 8 + 1)
    assert "POLICY mixed_bfloat16" in (pathlib.Path(profile.uri) / "profile.log").read_text()


def test_the_tuned_input_is_not_loaded_but_its_memory_is_reserved(trainer, tmp_path):
    plan = trainer.plan("columns")
    place = pathlib.Path(plan.uri) / "plan.json"
    record = TuningRecord.read(place)
    held = [each.model_copy(update={"resident_bytes": 2.0**20}) for each in record.outcomes]
    record.model_copy(update={"outcomes": tuple(held)}).write(place)
    inputs, _, given = trainer.given(
        written(trainer, "def run_fn(fn_args): raise ValueError(fn_args.data_accessor)"),
        inputs={"input_plan": [plan]},
    )
    attempts = executor.Attempts(
        json_utils.dumps(inputs), given, settings=MemorySettings(), folder=tmp_path
    )
    assert attempts._module.reserved_bytes == 2**20
    with pytest.raises(errors.MeasurementError, match="get_tf_dataset_factory_from_artifact"):
        child._capture_fit(attempts._module)


def test_input_plan_is_applied(trainer):
    plan = {"input_plan": [trainer.plan("columns")]}
    stock = trainer_args.fn_args(*trainer.given("module.py"))
    tuned = trainer_args.fn_args(*trainer.given("module.py", inputs=plan))
    assert stock.train_steps == tuned.train_steps == 120
    assert tuned.serving_model_dir.startswith(trainer.model.uri)
    proto = examples_lib.read_schema({"schema": [trainer.schema]})
    options = dataset_options.TensorFlowDatasetOptions(batch_size=8, label_key="label")
    datasets = [
        arguments.data_accessor.tf_dataset_factory(arguments.train_files, options, proto)
        for arguments in (stock, tuned)
    ]
    assert datasets[0].element_spec == datasets[1].element_spec
    assert stock.data_accessor.tf_dataset_factory is not tuned.data_accessor.tf_dataset_factory


@pytest.mark.parametrize("taker", [MemoryProfiler, OptimizedTrainer])
def test_a_wired_plan_that_does_not_arrive_is_an_error(taker, trainer):
    def missing(input_plan):
        channel = tfx_types.Channel(type=standard_artifacts.Examples)
        node = taker(examples=channel, run_fn="a.b", input_plan=input_plan)
        inputs, _, given = trainer.given("module.py")
        source = node.exec_properties.get("input_plan_source")
        return trainer_args.missing_plan(inputs, {**given, "input_plan_source": source})

    assert missing(None) is None
    tuner = InputTuner(examples=tfx_types.Channel(type=standard_artifacts.Examples))
    assert missing(tuner.with_id("Tuner").outputs["input_plan"]) == (
        "Expected an input_plan from Tuner. Received: none, so the examples are read as TFX reads "
        "them. Add Tuner to the pipeline's components."
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train_args": '{"splits": ["training"]}'}, "Received: split=training"),
        ({"eval_args": '{"splits": ["validation"]}'}, "Received: split=validation"),
        ({"train_args": '{"splits": ["empty"]}'}, "Expected training examples"),
    ],
)
def test_wrong_examples(changes, message, trainer):
    trainer.examples.split_names = '["train", "eval", "empty"]'
    inputs, outputs, given = trainer.given("module.py")
    with pytest.raises(errors.UserError, match=message) as caught:
        trainer_args.fn_args(inputs, outputs, {**given, **changes})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "Expected an existing module file"),
        ("def run(fn_args): pass", "defines run_fn"),
        ("run_fn = 3", "run_fn to be a function"),
        ("import no_such_package", "no_such_package"),
        ("def run_fn(:", "can be imported.*Correct .*module.py, line 1"),
    ],
)
def test_wrong_module_file(text, message, tmp_path):
    module = tmp_path / "module.py"
    if text is not None:
        module.write_text(text)
    with pytest.raises(errors.UserError, match=message) as caught:
        trainer_args.load_run_fn({"module_file": str(module)})
    assert f"Received: module_file={module}" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_wrong_run_fn(tmp_path, monkeypatch):
    (tmp_path / "some_training.py").write_text("def run(fn_args): pass")
    monkeypatch.syspath_prepend(tmp_path)
    for path in ("some_training.run_fn", "no_such_training.run_fn", "run_fn"):
        with pytest.raises(errors.UserError, match=f"Received: run_fn={path}"):
            trainer_args.load_run_fn({"run_fn": path})
    with pytest.raises(errors.UserError, match="Received: neither"):
        trainer_args.load_run_fn({"run_fn": None})
