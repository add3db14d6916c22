"""A training with parameter servers; run as a script under `tfx-perf launch --ps`.

Arguments: where to write, options as JSON.
"""

import contextlib
import importlib
import json
import os
import pathlib
import signal
import sys

import numpy as np
import psutil
import tensorflow as tf

import tfx_perf
from tfx_perf.tf_internals import autograph
from tfx_perf.training.recovery import checkpoint_writer

ROWS, STEPS = 8, 20
PARTITIONERS = tf.distribute.experimental.partitioners


def main(place, options):
    # The training is too short for a save to be a small share.
    checkpoint_writer._SAVE_SHARE = 0
    keras = importlib.import_module(options.get("package", "tf_keras"))
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    strategy = tf.distribute.ParameterServerStrategy(
        resolver,
        variable_partitioner=PARTITIONERS.MinSizePartitioner(
            1024, max_shards=resolver.cluster_spec().num_tasks("ps")
        ),
    )
    with strategy.scope():
        model = made(keras, optimizer=options.get("optimizer", "Adam"))
    found = {"sharded": type(model.get_layer("embedding").embeddings).__name__}
    settings = {"training": {**options.get("training", {})}}
    with (
        tfx_perf.optimized(settings, folder=place / "perf") as run,
        autograph.libraries_unconverted(),
    ):
        arguments = {
            "epochs": options.get("epochs", 2), "verbose": 0, "validation_data": validation_data(),
            "callbacks": [interrupting(keras, place, options)],
        }  # fmt: skip
        if options.get("kills") == "step":
            with contextlib.suppress(RuntimeError):
                model.fit(data(), **arguments)
        history = model.fit(data(), **arguments)
        evaluation = model.evaluate(data(), steps=STEPS, verbose=0, return_dict=True)
    model.save(place / "model")
    again = keras.models.load_model(place / "model")
    found |= {
        "history": history.history,
        "evaluation": evaluation,
        "weights": [each.tolist() for each in again.get_weights()],
        "notes": run.record.notes,
        "resumed_step": run.record.resumed_step,
        "checkpoint_time_seconds": run.record.checkpoint_time_seconds,
    }
    (place / "outcome.json").write_text(json.dumps(found))


def made(keras, *, optimizer="Adam"):
    keras.utils.set_random_seed(3)
    x = keras.Input((4,), name="x")
    item = keras.Input((), dtype="int64", name="item")
    index = keras.layers.IntegerLookup(vocabulary=list(range(999)))(item)
    embedded = keras.layers.Embedding(1000, 8, name="embedding")(index)
    joined = keras.layers.Concatenate()([x, embedded])
    outputs = {
        "first": keras.layers.Dense(1, kernel_regularizer="l2", name="first")(joined),
        "second": keras.layers.Dense(1, name="second")(joined),
    }
    model = keras.Model({"x": x, "item": item}, outputs)
    rate = {"Adam": 0.01, "Nadam": 0.01, "Adagrad": 0.1}[optimizer]
    model.compile(
        getattr(keras.optimizers, optimizer)(rate), "mse", metrics={"first": ["mae"], "second": []}
    )
    return model


def data():
    """Returns batches."""
    random = np.random.default_rng(0)
    x = random.normal(size=(STEPS * ROWS, 4)).astype("float32")
    item = random.integers(0, 1000, size=(STEPS * ROWS,))
    y = {"first": x[:, :1], "second": x[:, 1:2]}
    return tf.data.Dataset.from_tensor_slices(({"x": x, "item": item}, y)).batch(ROWS)


def validation_data():
    """Returns the first batches, which only the process that made them can read."""
    batches = [*data().take(5).as_numpy_iterator()]
    return tf.data.Dataset.from_generator(
        lambda: iter(batches), output_signature=data().element_spec
    )


def interrupting(keras, place, options):
    """Returns a callback that once kills a process of the cluster, or raises."""
    flag, kills = pathlib.Path(place, "interrupted"), options.get("kills")

    class Interrupting(keras.callbacks.Callback):
        def __init__(self):
            super().__init__()
            self._supports_tf_logs = True  # else tf_keras refuses what acts on a step

        def on_epoch_begin(self, epoch, logs=None):
            if epoch == options.get("epoch") and kills != "step" and not flag.exists():
                flag.touch()
                if kills == "raise":
                    raise RuntimeError("planned")
                os.kill(server(kills), getattr(signal, options.get("signal", "SIGKILL")))

        def on_train_batch_end(self, step, logs=None):
            if kills == "step" and not flag.exists():
                flag.touch()
                raise RuntimeError("planned")

    return Interrupting()


def server(kind):
    """Returns the process id of the first one of a kind."""
    for process in psutil.Process().parent().children():
        config = process.environ().get("TF_CONFIG")
        if config and json.loads(config)["task"] == {"type": kind, "index": 0}:
            return process.pid
    raise RuntimeError(f"no {kind}")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), json.loads(sys.argv[2]))
