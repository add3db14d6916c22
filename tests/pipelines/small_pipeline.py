"""A pipeline of two components in a process of its own; run as a script: FOLDER KERAS_PACKAGE."""

import importlib
import pathlib
import sys

import numpy as np
import tensorflow as tf
from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx import v1 as tfx
from tfx.orchestration import metadata
from tfx_bsl.public import tfxio

from tfx_perf.components import OptimizedTrainer

ROWS, STEPS = 600, 4000
WEIGHTS = "weights.npz"
_SCHEMA = """
    feature { name: "number" type: FLOAT presence { min_fraction: 1 } shape { dim { size: 1 } } }
    feature { name: "label" type: FLOAT presence { min_fraction: 1 } shape { dim { size: 1 } } }
"""


def run_fn(fn_args) -> None:
    """Trains a small model with dropout and BatchNorm and saves its weights, too."""
    keras = importlib.import_module(fn_args.custom_config["line"])
    layers = keras.layers
    options = tfxio.TensorFlowDatasetOptions(
        batch_size=10, label_key="label", shuffle=True, shuffle_seed=3
    )
    schema = text_format.Parse(_SCHEMA, schema_pb2.Schema())
    data = fn_args.data_accessor.tf_dataset_factory(fn_args.train_files, options, schema).repeat()
    inputs = {"number": keras.Input((1,), name="number")}
    hidden = layers.Dense(32, activation="tanh")(inputs["number"])
    hidden = layers.BatchNormalization()(layers.Dropout(0.3)(hidden))
    model = keras.Model(inputs, layers.Dense(1)(hidden))
    model.compile("adam", "mse")
    model.fit(data, steps_per_epoch=STEPS // 4, epochs=4, verbose=0)
    tf.saved_model.save(model, fn_args.serving_model_dir)
    np.savez(pathlib.Path(fn_args.serving_model_dir, WEIGHTS), *model.get_weights())


def main(folder: str, line: str) -> None:
    """Runs the pipeline; what is finished is taken from cache."""
    root = pathlib.Path(folder)
    data = root / "data" / "data.csv"
    if not data.exists():
        data.parent.mkdir(parents=True)
        numbers = np.random.default_rng(0).normal(size=ROWS)
        rows = [f"{number:.6f},{np.sin(number):.6f}" for number in numbers]
        data.write_text("\n".join(["number,label", *rows]) + "\n")
    examples = tfx.components.CsvExampleGen(input_base=str(data.parent))
    trainer = OptimizedTrainer(
        run_fn="small_pipeline.run_fn",
        examples=examples.outputs["examples"],
        train_args=tfx.proto.TrainArgs(num_steps=STEPS),
        eval_args=tfx.proto.EvalArgs(num_steps=1),
        custom_config={"line": line},
        # A plan without trials, so that every run has the same.
        config={
            "training": {
                "seed": 1,
                "tuning_seconds": 0,
                "gradient_checkpointing": 2,
                "checkpoint_every_steps": 50,
            }
        },
    )
    tfx.orchestration.LocalDagRunner().run(
        tfx.dsl.Pipeline(
            pipeline_name="small",
            pipeline_root=str(root / "artifacts"),
            metadata_connection_config=metadata.sqlite_metadata_connection_config(
                str(root / "metadata.sqlite")
            ),
            components=[examples, trainer],
            enable_cache=True,
        )
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
