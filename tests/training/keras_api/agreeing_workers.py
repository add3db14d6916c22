"""A worker; the first has a callback that needs every batch. Prints the plan that trains.

Run as a script with the Keras package and the worker's index, under `TF_CONFIG`.
"""

import importlib
import sys

import numpy as np
import tensorflow as tf

from tfx_perf.config import PerfConfig
from tfx_perf.core import interception
from tfx_perf.training.session import TrainingSession


def main(package, index):
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    keras = importlib.import_module(package)
    with strategy.scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    x = np.ones((80, 4), "float32")
    data = tf.data.Dataset.from_tensor_slices((x, x[:, :1])).batch(8).repeat()
    every_batch = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: None)
    session = TrainingSession(PerfConfig())
    plans = []
    with interception.intercepting_fit(session.fit):
        for callbacks in ([every_batch] if index == "0" else []), []:
            model.fit(data, steps_per_epoch=20, verbose=0, callbacks=callbacks)
            plans.append(str(session._longest.choice.plan))
            session._longest = None
    print("; ".join(plans))


if __name__ == "__main__":
    main(*sys.argv[1:])
