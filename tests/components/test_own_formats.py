"""Examples that only the training code can read, as Trainer takes them."""

import pathlib

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import tuning_cases
from gated_project import artifact_in
from tfx.components.trainer import executor as stock
from tfx.components.util import examples_utils
from tfx.proto import example_gen_pb2

from tfx_perf.components import types
from tfx_perf.components.input_tuner import executor as input_tuner
from tfx_perf.components.memory_profiler import executor as memory_profiler
from tfx_perf.components.optimized_trainer import executor as optimized_trainer
from tfx_perf.input.record import TuningRecord
from tfx_perf.memory.record import ProfileRecord

MODULE = """
import glob
import {line} as keras
import pyarrow.parquet
import tensorflow as tf

{beginning}

def _read(patterns):
    files = [file for pattern in patterns for file in sorted(glob.glob(pattern))]
    {read}
    return data.batch(10).repeat()

def run_fn(fn_args):
    inputs = keras.Input((1,))
    model = keras.Model(inputs, keras.layers.Dense(1)({layer}(inputs)))
    model.compile(optimizer="sgd", loss="mse")
    train, test = _read(fn_args.train_files), _read(fn_args.eval_files)
    {train}
    {save}
"""
READ = {
    "parquet": """
    table = pyarrow.parquet.read_table(files).to_pandas()
    data = tf.data.Dataset.from_tensor_slices((table[["number"]], table[["label"]]))
""",
    "text": """
    data = tf.data.TextLineDataset(files).map(lambda line: tf.io.decode_csv(line, [[0.0]] * 2))
    data = data.map(lambda number, label: (number[None], label[None]))
""",
}


@pytest.fixture(params=READ)
def given(trainer, request):
    """Returns the arguments of a trainer's executor, with examples in their own format."""
    for split in ("train", "eval"):
        (file,) = (pathlib.Path(trainer.examples.uri) / f"Split-{split}").iterdir()
        numbers = np.arange(60.0, dtype=np.float32) / 64
        if request.param == "parquet":
            table = pyarrow.table({"number": numbers, "label": (numbers > 0.5).astype(np.float32)})
            pyarrow.parquet.write_table(table, file.with_name("part.parquet"))
        else:
            lines = (f"{number},{number > 0.5:d}\n" for number in numbers)
            file.with_name("part.csv").write_text("".join(lines))
        file.unlink()
    if request.param == "parquet":
        examples_utils.set_payload_format(
            trainer.examples, example_gen_pb2.PayloadFormat.FORMAT_PARQUET
        )
    template = MODULE.replace("{read}", READ[request.param].strip())
    module = trainer.write_module(template=template)
    inputs, outputs, properties = trainer.given(module)
    del inputs["schema"]
    return inputs, outputs, properties


@pytest.mark.slow
def test_it_trains_as_with_the_stock_trainer_and_is_profiled_not_tuned(trainer, given, tmp_path):
    inputs, outputs, properties = given
    stock.GenericExecutor().Do(*given)
    (saved,) = pathlib.Path(trainer.model.uri).rglob("saved_model.pb")
    saved.unlink()
    optimized_trainer.Executor().Do(*given)
    assert list(pathlib.Path(trainer.model.uri).rglob("saved_model.pb"))
    assert trainer.record.train_step_count == 120
    assert trainer.record.trials
    profile = artifact_in(tmp_path / "profile", types.MemoryProfile)
    memory_profiler.Executor().Do(inputs, {"memory_profile": [profile]}, properties)
    found = ProfileRecord.read(tmp_path / "profile" / "profile.json")
    assert found.module_batch_size == 10
    plan = artifact_in(tmp_path / "plan", types.InputPlan)
    tuned = {**tuning_cases.properties(), **properties}
    input_tuner.Executor().Do(inputs, {"input_plan": [plan]}, tuned)
    record = TuningRecord.read(tmp_path / "plan" / "plan.json")
    assert record.chosen == "default"
    assert "TFXIO cannot read" in record.reason
    assert plan.get_string_custom_property("chosen_candidate") == "default"
    # The plan with the default changes nothing.
    optimized_trainer.Executor().Do({**inputs, "input_plan": [plan]}, outputs, properties)
    assert trainer.record.train_step_count == 120


def test_a_split_without_files_is_still_refused(given):
    inputs, outputs, properties = given
    for file in pathlib.Path(inputs["examples"][0].uri).rglob("part.*"):
        file.unlink()
    with pytest.raises(ValueError, match="Expected training examples. Received: none"):
        optimized_trainer.Executor().Do(inputs, outputs, properties)
