"""A stock training module and its artifacts, for tests of components that run such code."""

import json
import pathlib
import subprocess
import sys

import numpy as np
import tensorflow as tf
from perf_records import tuning_record
from tfx import v1 as tfx
from tfx.types import artifact_utils, standard_artifacts
from tfx.utils import json_utils
from tuning_cases import serialized

from tfx_perf.components import types
from tfx_perf.components.memory_profiler import executor as memory_executor
from tfx_perf.components.optimized_trainer import executor
from tfx_perf.config import PerfConfig
from tfx_perf.training.record import TrainingRecord

SCHEMA = """
    feature { name: "number" type: FLOAT presence { min_fraction: 1 } shape { dim { size: 1 } } }
    feature { name: "label" type: INT presence { min_fraction: 1 } shape { dim { size: 1 } } }
"""

# Goes to the top of a module.
TWO_DEVICES = """
import tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
"""
# Data that are slow while a condition holds, for `.map(slowly)`.
SLOWLY = """
import time

def wait(y):
    time.sleep({seconds})
    return y

def slowly(x, y):
    if {condition}:
        y = tf.ensure_shape(tf.py_function(wait, [y], y.dtype), y.shape)
    return x, y
"""
# A module in the style of TFX's tutorials.
MODULE = """
import {line} as keras
import tensorflow as tf
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx.utils import io_utils
from tfx_bsl.public import tfxio

{beginning}

def _input_fn(files, accessor, schema):
    options = tfxio.TensorFlowDatasetOptions(batch_size=10, label_key="label")
    return accessor.tf_dataset_factory(files, options, schema).repeat()

def run_fn(fn_args):
    schema = io_utils.parse_pbtxt_file(fn_args.schema_path, schema_pb2.Schema())
    train = _input_fn(fn_args.train_files, fn_args.data_accessor, schema)
    test = _input_fn(fn_args.eval_files, fn_args.data_accessor, schema)
    with tf.distribute.MirroredStrategy().scope():
        inputs = {{"number": keras.Input((1,), name="number")}}
        hidden = keras.layers.Dense(4, "relu")(inputs["number"])
        outputs = keras.layers.Dense(1)({layer}(hidden))
        model = keras.Model(inputs, outputs)
        model.compile(optimizer="adam", loss="mse")
    {train}
    {save}
"""
FIT = """model.fit(
        train, steps_per_epoch=fn_args.train_steps, validation_data=test,
        validation_steps=fn_args.eval_steps, verbose=0,
        callbacks=[keras.callbacks.TensorBoard(fn_args.model_run_dir, update_freq="epoch")])"""
# Makes a module use tf_keras without AutoGraph's conversion, which takes half a minute.
UNCONVERTED = {
    "line": "tf_keras",
    "beginning": "from tfx_perf.tf_internals import autograph",
    "train": f"with autograph.libraries_unconverted():\n        {FIT}",
}
# Checkpoints exist by the time of the kill: the limits on the share of time for saves and on
# how often workers synchronize are lifted.
_KILLED = """import os
    from tfx_perf.training.recovery import checkpoint_writer, guard
    checkpoint_writer._SAVE_SHARE = guard._PERIOD_SECONDS = 0

    class Fuse(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 3 and {condition} and not os.path.exists({flag!r}):
                open({flag!r}, "w").close()
                os.kill(os.getpid(), 9)

    model.fit(train, steps_per_epoch=20, epochs=6, verbose=0, callbacks=[Fuse()])"""
LOOP = "model.train_on_batch(*next(iter(train)))"
# Whether a module's process only measures, which is when it has its own log.
ONLY_MEASURES = 'os.readlink("/proc/self/fd/1").endswith(".log")'
SAVE = "tf.saved_model.save(model, fn_args.serving_model_dir)"


# A stand-in for the first worker of a job; it leaves the files that a training does.
LEAVES_A_MODEL = """
import json, pathlib, sys
folder = pathlib.Path(sys.argv[1])
(folder / "outputs/model/Format-Serving").mkdir(parents=True, exist_ok=True)
(folder / "outputs/model/Format-Serving/saved_model.pb").write_text("the model")
result = {"schema": "tfx_perf.training_result/1", "record": {"reason": "a test"}}
(folder / "result.json").write_text(json.dumps(result))
"""
_EXECUTES = """
import json, sys
from tfx.utils import json_utils
from tfx_perf.components.optimized_trainer import executor

inputs, outputs, properties = json.loads(sys.argv[1])
executor.Executor().Do(json_utils.loads(inputs), json_utils.loads(outputs), properties)
"""


def killed_once(flag, *, condition="True"):
    """Returns what a module trains by to be killed once after 60 of 120 steps.

    Args:
        flag: the path of a file that is made then.
        condition: of the process, in the module's words, for it to be the one.
    """
    return _KILLED.format(flag=str(flag), condition=condition)


def imported(folder, *, reimport=False):
    """Returns the nodes of the examples and of the schema that a folder has."""
    examples = tfx.dsl.Importer(
        source_uri=str(folder / "examples"),
        artifact_type=standard_artifacts.Examples,
        properties={"split_names": '["train", "eval"]'},
        reimport=reimport,
    )
    schema = tfx.dsl.Importer(
        source_uri=str(folder / "schema"), artifact_type=standard_artifacts.Schema
    )
    return examples.with_id("examples"), schema.with_id("schema")


class Trainer:
    """Runs the executor as a pipeline would; keeps the output artifacts."""

    def __init__(self, folder):
        self.folder = folder
        self.examples = self.artifact(standard_artifacts.Examples, "examples")
        self.examples.split_names = artifact_utils.encode_split_names(["train", "eval"])
        for split, count in (("train", 60), ("eval", 20)):
            path = pathlib.Path(self.examples.uri) / f"Split-{split}"
            path.mkdir()
            with tf.io.TFRecordWriter(str(path / "part-00000-of-00001.gz"), "GZIP") as writer:
                for number in range(count):
                    writer.write(serialized(number=number / 60, label=number % 2))
        self.schema = self.artifact(standard_artifacts.Schema, "schema")
        (pathlib.Path(self.schema.uri) / "schema.pbtxt").write_text(SCHEMA)
        self.model = self.artifact(standard_artifacts.Model, "model")
        self.model_run = self.artifact(standard_artifacts.ModelRun, "model_run")
        self.perf_metrics = self.artifact(types.PerfMetrics, "perf_metrics")

    def write_module(
        self,
        *,
        line="keras",
        beginning="",
        layer="keras.layers.Identity()",
        train=FIT,
        save=SAVE,
        template=MODULE,
    ):
        """Writes the training module and returns its path."""
        module = self.folder / f"{self.folder.name}_module.py"
        module.write_text(
            template.format(line=line, beginning=beginning, layer=layer, train=train, save=save)
        )
        return module

    def run(self, *, inputs=None, module=None, **settings):
        """Trains; see `given` for the settings."""
        module = self.write_module(**(module or {}))
        executor.Executor().Do(*self.given(module, inputs=inputs, **settings))

    def started(self, module, **settings):
        """Starts a process that runs the executor; see `given`."""
        inputs, outputs, properties = self.given(module, **settings)
        given = json.dumps([json_utils.dumps(inputs), json_utils.dumps(outputs), properties])
        command = [sys.executable, "-c", _EXECUTES, given]
        pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
        return subprocess.Popen(command, text=True, **pipes)

    def given(
        self,
        module,
        *,
        inputs=None,
        compilation=None,
        distribution=None,
        monitoring=None,
        expected_runs=300,
        **training,
    ):
        """Returns the arguments of `Do`; other keywords are settings of the section `training`.

        By default there are enough runs for trials of several steps per execution.
        """
        settings = {
            "training": {"tuning_seconds": 15, **training},
            "compilation": compilation or {},
            "distribution": distribution or {},
            "monitoring": monitoring or {},
            "schedule": {"expected_runs": expected_runs},
        }
        return (
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

    def profile(self, module, *, inputs=None, settings=None, **properties):
        """Runs MemoryProfiler on a module; returns its artifact."""
        profile = self.artifact(types.MemoryProfile, "profile")
        inputs, _, given = self.given(module, inputs=inputs)
        config = PerfConfig.from_dict(settings or {}).to_json()
        memory_executor.Executor().Do(
            inputs, {"memory_profile": [profile]}, {**given, "config": config, **properties}
        )
        return profile

    @property
    def record(self):
        return TrainingRecord.read(pathlib.Path(self.perf_metrics.uri) / "metrics.json")

    def variables(self):
        """Returns the floating-point variables of the saved model, by name."""
        place = str(pathlib.Path(self.model.uri, "Format-Serving", "variables", "variables"))
        reader = tf.train.load_checkpoint(place)
        found = {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
        return {name: value for name, value in found.items() if np.asarray(value).dtype.kind == "f"}

    def plan(self, chosen):
        """Returns InputTuner's artifact with that choice."""
        plan = self.artifact(types.InputPlan, "input_plan")
        record = tuning_record(chosen, batch_size=10, example_count=60, checked_example_count=60)
        record.write(pathlib.Path(plan.uri) / "plan.json")
        return plan

    def artifact(self, kind, name):
        """Returns an artifact of a type, in a folder of that name."""
        item = kind()
        item.uri = str(self.folder / name)
        pathlib.Path(item.uri).mkdir(exist_ok=True)
        return item
