"""Trains for as long as nobody ends it, without checkpoints; one of two workers.

Run as a script with the Keras package; it says when it has begun, and that its `finally` runs.
"""

import importlib
import sys
import time

import tensorflow as tf

import tfx_perf


def main(package):
    keras = importlib.import_module(package)
    with tf.distribute.MultiWorkerMirroredStrategy().scope():
        model = keras.Sequential([keras.layers.Input([2]), keras.layers.Dense(1)])
        model.compile("sgd", "mse")

    def wait(epoch, logs):
        print("has begun", flush=True)
        time.sleep(0.2)

    data = tf.data.Dataset.from_tensors((tf.ones([8, 2]), tf.ones([8, 1]))).repeat()
    callbacks = [keras.callbacks.LambdaCallback(on_epoch_end=wait)]
    try:
        with tfx_perf.optimized({"training": {"trial_budget_seconds": 0}}):
            model.fit(data, steps_per_epoch=5, epochs=10**6, verbose=0, callbacks=callbacks)
    finally:
        print("finally", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
