"""One of two workers, trained without checkpoints under `tfx-perf launch`; run as a script.

Arguments: the Keras package and `timeout_seconds` of its reductions. With a timeout, worker 1 stays
alive but stops after two epochs; without one, both train until they are ended. A worker prints when
it has begun or stops, and that its `finally` runs.
"""

import importlib
import sys
import time

import model_cases
import tensorflow as tf

import tfx_perf
from tfx_perf.core import workers


def main(package, timeout_seconds=None):
    waits = timeout_seconds is not None
    options = tf.distribute.experimental.CommunicationOptions(
        timeout_seconds=float(timeout_seconds) if waits else None
    )
    keras = importlib.import_module(package)
    strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
    with strategy.scope():
        model = model_cases.linear(keras)

    def wait(epoch, logs):
        is_stuck = waits and epoch == 1 and workers.this().index == 1
        print("does not go on" if is_stuck else "has begun", flush=True)
        time.sleep(1000 if is_stuck else 0.2)

    data = tf.data.Dataset.from_tensors((tf.ones([8, 4]), tf.ones([8, 1]))).repeat()
    callbacks = [keras.callbacks.LambdaCallback(on_epoch_end=wait)]
    try:
        with tfx_perf.optimized({"training": {"tuning_seconds": 0}}):
            model.fit(data, steps_per_epoch=5, epochs=10**6, verbose=0, callbacks=callbacks)
    finally:
        print("finally", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
