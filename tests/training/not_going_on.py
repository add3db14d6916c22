"""A worker whose process lives, but does not go on; run by `tfx-perf launch`.

Argument: `timeout_seconds` of its reductions.
"""

import sys
import time

import keras
import model_cases
import numpy as np
import tensorflow as tf

import tfx_perf
from tfx_perf.core import workers


def main(timeout_seconds):
    options = tf.distribute.experimental.CommunicationOptions(timeout_seconds=timeout_seconds)
    strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
    with strategy.scope():
        model = model_cases.linear(keras)
    x = np.ones((64, 4), "float32")
    data = tf.data.Dataset.from_tensor_slices((x, x[:, :1])).batch(8, drop_remainder=True)

    def wait(epoch, logs):
        if epoch == 1 and workers.this().index == 1:
            print("does not go on", flush=True)
            time.sleep(1000)

    callback = keras.callbacks.LambdaCallback(on_epoch_end=wait)
    with tfx_perf.optimized(folder="perf"):
        model.fit(model_cases.shared_by_rows(data), epochs=3, verbose=0, callbacks=[callback])


if __name__ == "__main__":
    main(float(sys.argv[1]))
