"""OptimizedTrainer's wiring, and its executor on artifacts in temporary folders."""

import json
import pathlib

import pytest
import tensorflow as tf
from tfx import types as tfx_types
from tfx.types import artifact_utils, standard_artifacts

from tfx_perf import errors, metrics
from tfx_perf.components import types
from tfx_perf.components.optimized_trainer import component, executor
from tfx_perf.config import PerfConfig
from tfx_perf.input.record import CandidateOutcome, TuningRecord
from tfx_perf.training.record import TrainingRecord

_SCHEMA = """
    feature { name: "number" type: FLOAT presence { min_fraction: 1 } shape { dim { size: 1 } } }
    feature { name: "label" type: INT presence { min_fraction: 1 } shape { dim { size: 1 } } }
"""

# A module as TFX's tutorials write it.
_MODULE = """
import {line} as keras
import tensorflow as tf
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx.utils import io_utils
from tfx_bsl.public import tfxio

def _input_fn(files, accessor, schema):
    options = tfxio.TensorFlowDatasetOptions(batch_size=10, label_key="label")
    return accessor.tf_dataset_factory(files, options, schema).repeat()

def run_fn(fn_args):
    schema = io_utils.parse_pbtxt_file(fn_args.schema_path, schema_pb2.Schema())
    train = _input_fn(fn_args.train_files, fn_args.data_accessor, schema)
    test = _input_fn(fn_args.eval_files, fn_args.data_accessor, schema)
    with tf.distribute.MirroredStrategy().scope():
        inputs = {{"number": keras.Input((1,), name="number")}}
        outputs = keras.layers.Dense(1)(keras.layers.Dense(4, "relu")(inputs["number"]))
        model = keras.Model(inputs, outputs)
        model.compile(optimizer="adam", loss="mse")
    {train}
    {save}
"""
_FIT = """model.fit(
        train, steps_per_epoch=fn_args.train_steps, validation_data=test,
        validation_steps=fn_args.eval_steps, verbose=0,
        callbacks=[keras.callbacks.TensorBoard(fn_args.model_run_dir, update_freq="batch")])"""
_LOOP = "model.train_on_batch(*next(iter(train)))"
_SAVE = "tf.saved_model.save(model, fn_args.serving_model_dir)"


class Trainer:
    """Runs the executor as a pipeline would; keeps the output artifacts."""

    def __init__(self, folder):
        self.folder = folder
        self.examples = self._artifact(standard_artifacts.Examples, "examples")
        self.examples.split_names = artifact_utils.encode_split_names(["train", "eval"])
        for split, count in (("train", 60), ("eval", 20)):
            path = pathlib.Path(self.examples.uri) / f"Split-{split}"
            path.mkdir()
            with tf.io.TFRecordWriter(str(path / "part-00000-of-00001.gz"), "GZIP") as writer:
                for number in range(count):
                    writer.write(self._example(number).SerializeToString())
        self.schema = self._artifact(standard_artifacts.Schema, "schema")
        (pathlib.Path(self.schema.uri) / "schema.pbtxt").write_text(_SCHEMA)
        self.model = self._artifact(standard_artifacts.Model, "model")
        self.model_run = self._artifact(standard_artifacts.ModelRun, "model_run")
        self.perf_metrics = self._artifact(types.PerfMetrics, "perf_metrics")

    def run(self, *, line="tf_keras", train=_FIT, save=_SAVE, inputs=None, **training):
        module = self.folder / "module.py"
        module.write_text(_MODULE.format(line=line, train=train, save=save))
        settings = {"training": {"trial_budget_seconds": 15, **training}}
        executor.Executor().Do(
            {"examples": [self.examples], "schema": [self.schema], **(inputs or {})},
            {
                "model": [self.model],
                "model_run": [self.model_run],
                "perf_metrics": [self.perf_metrics],
            },
            {
                "module_file": str(module),
                "train_args": json.dumps({"num_steps": 120}),
                "eval_args": json.dumps({"num_steps": 2}),
                "custom_config": "null",
                "config": PerfConfig.from_dict(settings).to_json(),
            },
        )

    @property
    def record(self):
        return TrainingRecord.read(pathlib.Path(self.perf_metrics.uri) / "metrics.json")

    def plan(self, chosen):
        """Returns InputTuner's artifact with that choice."""
        plan = self._artifact(types.InputPlan, "input_plan")
        TuningRecord(
            chosen=chosen,
            reason="for the test",
            outcomes=tuple(
                CandidateOutcome(name=name, description="", status=status)
                for name, status in (("default", "measured"), (chosen, "chosen"))
            ),
            batch_size=10,
            rounds=1,
            margin=0.0,
            memory_budget_bytes=2**30,
            memory_budget_configured=True,
            example_count=60,
            checked_example_count=60,
            file_count=1,
            file_bytes=1000,
            compression="GZIP",
            tuning_time_seconds=1.0,
        ).write(pathlib.Path(plan.uri) / "plan.json")
        return plan

    def _artifact(self, kind, name):
        item = kind()
        item.uri = str(self.folder / name)
        pathlib.Path(item.uri).mkdir(exist_ok=True)
        return item

    @staticmethod
    def _example(number):
        feature = {
            "number": tf.train.Feature(float_list=tf.train.FloatList(value=[number / 60])),
            "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[number % 2])),
        }
        return tf.train.Example(features=tf.train.Features(feature=feature))


@pytest.fixture
def trainer(tmp_path):
    return Trainer(tmp_path)


@pytest.mark.parametrize("line", ["keras", "tf_keras"])
def test_a_stock_module_is_trained_and_measured(trainer, line):
    trainer.run(line=line)
    assert list(pathlib.Path(trainer.model.uri).rglob("saved_model.pb"))
    assert list(pathlib.Path(trainer.model_run.uri).rglob("events*"))
    record = trainer.record
    assert record.train_step_count == 120
    assert record.global_batch_size == 10
    assert record.environment["strategy"] == "MirroredStrategy"
    assert {trial.status for trial in record.trials} & {"chosen", "slower"}
    for key, value in metrics.checked(record.figures()).items():
        assert trainer.perf_metrics.get_float_custom_property(key) == value, key
    assert trainer.perf_metrics.get_float_custom_property("validation_loss") > 0
    assert trainer.perf_metrics.get_string_custom_property("plan") == str(record.plan)
    html = (pathlib.Path(trainer.perf_metrics.uri) / "report.html").read_text()
    assert record.plan_reason.split(" times")[0] in html


def test_the_tuned_input_is_what_fit_gets(trainer):
    train = "print('DATA', train._input_dataset, file=open(fn_args.model_run_dir + '.txt', 'w'))"
    trainer.run(train=train, inputs={})
    stock = pathlib.Path(trainer.model_run.uri + ".txt").read_text()
    trainer.run(train=train, inputs={"input_plan": [trainer.plan("columns")]})
    tuned = pathlib.Path(trainer.model_run.uri + ".txt").read_text()
    assert tuned != stock
    trainer.run(inputs={"input_plan": [trainer.plan("columns")]}, trial_budget_seconds=0)
    assert trainer.record.train_step_count == 120
    assert trainer.record.global_batch_size == 10


def test_the_seed_makes_two_trainings_equal(trainer):
    losses = []
    for _ in range(2):
        trainer.run(seed=5, trial_budget_seconds=0)
        losses.append(trainer.record.losses["loss"])
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


def test_a_module_that_does_not_call_fit_keeps_its_model(trainer):
    trainer.run(train=_LOOP)
    assert list(pathlib.Path(trainer.model.uri).rglob("saved_model.pb"))
    assert "did not call fit" in trainer.perf_metrics.get_string_custom_property("plan")
    assert not trainer.perf_metrics.has_custom_property("step_time_seconds")


def test_a_module_that_saves_no_model_fails(trainer):
    with pytest.raises(RuntimeError, match="Expected run_fn to save a model"):
        trainer.run(train=_LOOP, save="pass")


@pytest.mark.parametrize(
    ("module_file", "words"),
    [("missing.py", "existing module file"), ("empty.py", "defines run_fn")],
)
def test_a_wrong_module_is_said_in_one_line(trainer, module_file, words):
    (trainer.folder / "empty.py").write_text("x = 1\n")
    properties = {
        "module_file": str(trainer.folder / module_file),
        "config": PerfConfig().to_json(),
    }
    with pytest.raises(errors.UserError, match=words):
        executor.Executor().Do({}, {}, properties)


def channel(kind):
    return tfx_types.Channel(type=kind)


def test_the_component_declares_what_it_reads_and_writes():
    trainer = component.OptimizedTrainer(
        run_fn="module.run_fn",
        examples=channel(standard_artifacts.Examples),
        schema=channel(standard_artifacts.Schema),
        input_plan=channel(types.InputPlan),
        custom_config={"a": 1},
        config={"training": {"seed": 3}},
    )
    assert {key: value.type_name for key, value in trainer.outputs.items()} == {
        "model": "Model",
        "model_run": "ModelRun",
        "perf_metrics": "tfx_perf.PerfMetrics",
    }
    assert trainer.inputs["input_plan"].type_name == "tfx_perf.InputPlan"
    assert PerfConfig.from_json(trainer.exec_properties["config"]).training.seed == 3
    assert json.loads(trainer.exec_properties["custom_config"]) == {"a": 1}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "exactly one of module_file and run_fn"),
        ({"run_fn": "a.b", "module_file": "c.py"}, "exactly one of module_file and run_fn"),
        ({"run_fn": "a.b", "config": {"trainig": {}}}, "trainig"),
    ],
)
def test_wrong_arguments_are_refused_when_the_pipeline_is_built(arguments, words):
    with pytest.raises(errors.UserError, match=words):
        component.OptimizedTrainer(examples=channel(standard_artifacts.Examples), **arguments)
