"""A worker of a training that is interrupted; run as a script under `tfx-perf launch`.

Arguments: the Keras package, where to write, options as JSON.
"""

import importlib
import json
import os
import pathlib
import resource
import signal
import sys

import model_cases
import numpy as np
import psutil
import tensorflow as tf

import tfx_perf
from tfx_perf.tf_internals import autograph
from tfx_perf.training.recovery import checkpoint_writer, guard

_ROW_BYTES = 2**29
EPOCHS, STEPS, ROWS = 3, 10, 12  # epochs, steps per epoch, rows per batch for 2 or 3 workers


def main(package, place, options):
    # Saves may take any share of the time and come at any time, since these trainings are short.
    checkpoint_writer._SAVE_SHARE = 0
    guard._PERIOD_SECONDS = 0
    model_cases.count_no_flops()
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    keras = importlib.import_module(package)
    worker = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
    checkpoints = place / "checkpoints"
    keras.utils.set_random_seed(3)
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.layers.Input((4,)),
                keras.layers.Dense(8, "relu"),
                *layers(keras, package, whole=not options.get("same_alone")),
                keras.layers.Dense(1),
            ]
        )
        loss = hungry_loss if "exhausts" in options else "mse"
        # In steps; an epoch ends within a window.
        window = {"gradient_accumulation_steps": 3} if options.get("accumulates") else {}
        model.compile(keras.optimizers.Adam(0.01, **window), loss, metrics=["mae"])

    def interrupt():
        flag = pathlib.Path(place, "interrupted")
        if options.get("worker") == worker and not flag.exists():
            flag.touch()
            os.kill(os.getpid(), getattr(signal, options["signal"]))

    def after_batch(batch, logs=None):
        if int(tf.convert_to_tensor(model.optimizer.iterations)) >= options["step"]:
            interrupt()

    class AtEpoch(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == options.get("epoch"):
                interrupt()
            if (worker, epoch) == (options.get("exhausts"), options.get("from_epoch")):
                limit_memory()
            if epoch == options.get("frees"):
                (checkpoints / "filler").unlink(missing_ok=True)

        def on_epoch_end(self, epoch, logs=None):
            if [worker, epoch] == options.get("stops"):
                self.model.stop_training = True

    # A callback that needs every batch makes Keras' `fit` train.
    each_batch = keras.callbacks.LambdaCallback(on_train_batch_end=after_batch)
    callbacks = [each_batch, AtEpoch()] if "step" in options else [AtEpoch()]
    folder = str(checkpoints) if {"signal", "saves"} & options.keys() else None
    training = {"checkpoint_folder": folder, "checkpoint_every_steps": 4, "precision": "auto"}
    with (
        tfx_perf.optimized({"training": training}, folder=place / "perf") as run,
        autograph.libraries_unconverted(),
    ):
        examples = data(bad_row=options.get("bad_row"))
        epochs = options.get("epochs", EPOCHS)
        history = model.fit(examples, epochs=epochs, verbose=0, callbacks=callbacks)
        saved_steps = steps_of(checkpoints)
    outcome = {
        "weights": {
            getattr(each, "path", each.name): np.asarray(tf.convert_to_tensor(each)).tolist()
            for each in model.weights
        },
        "history": history.history,
        "iterations": int(tf.convert_to_tensor(model.optimizer.iterations)),
    }
    found = {"outcome": outcome, "resumed_step": run.record.resumed_step}
    found |= {"plan": str(run.record.plan), "notes": run.record.notes, "saved_steps": saved_steps}
    found["idle_settings"] = run.record.idle_settings
    found |= {"oom_count": run.record.oom_count, "slices": run.record.micro_batches}
    choice = run.record.for_another_run("", expected_runs=1)
    found["plan_of_next_run"] = str(choice.plan) if choice else None
    (place / f"{worker}.json").write_text(json.dumps(found))


def steps_of(checkpoints):
    """Returns the steps of the checkpoints that are there, in order."""
    names = (path.name for path in checkpoints.glob("fit-0/*/checkpoint-*"))
    return sorted(int(name.split("-")[1]) for name in names)


def limit_memory():
    """Limits this process to memory for three or four rows in `hungry_loss`."""
    limit_bytes = psutil.Process().memory_info().vms + 4 * _ROW_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit_bytes, limit_bytes))


def hungry_loss(y_true, y_pred):
    """The mean squared error of each row, with memory allocated for all of them at once."""

    def allocate(rows):
        np.empty(int(rows) * _ROW_BYTES, np.uint8)  # takes addresses, but no pages
        return np.float32(0)

    return tf.reduce_mean(tf.square(y_true - y_pred), axis=-1) + tf.ensure_shape(
        tf.numpy_function(allocate, [tf.shape(y_true)[0]], tf.float32), []
    )


def layers(keras, package, *, whole):
    """Returns layers that compute different values in every replica."""
    if not whole:
        return []
    dropout = keras.layers.Dropout(0.3 if package == "keras" else 0.0)
    return [keras.layers.BatchNormalization(), dropout]


def data(*, bad_row):
    numbers = np.random.default_rng(0).normal(size=(STEPS * ROWS, 5)).astype("float32")
    if bad_row is not None:
        numbers[bad_row, 1] = np.nan
    found = tf.data.Dataset.from_tensor_slices((numbers[:, :4], numbers[:, 4:]))
    if bad_row is None:
        found = found.shuffle(STEPS * ROWS, seed=7)
    return model_cases.shared_by_rows(found.batch(ROWS))


if __name__ == "__main__":
    main(sys.argv[1], pathlib.Path(sys.argv[2]), json.loads(sys.argv[3]))
