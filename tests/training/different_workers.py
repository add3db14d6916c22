"""A worker of two that differ. Prints the error that `fit` raises, or the plans of two trainings.

Run as a script with the Keras package, the worker's index and the difference, under `TF_CONFIG`.
With `files` it has none, with `callback` the first worker at first needs every batch.
"""

import importlib
import sys

import numpy as np
import tensorflow as tf

from tfx_perf.config import PerfConfig
from tfx_perf.core import errors, interception
from tfx_perf.training.session import TrainingSession


def main(package, index, what):
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    keras = importlib.import_module(package)
    with strategy.scope():
        first = [] if what == "unbuilt" else [keras.Input((4,))]
        model = keras.Sequential([*first, keras.layers.Dense(1, name="last")])
        model.compile("sgd", "mse")
    is_other = index == "1"
    if is_other and what == "weights":
        model.layers[-1].kernel.assign(np.ones((4, 1)))
    x = np.ones((80, 4), "float32")
    data = tf.data.Dataset.from_tensor_slices((x, x[:, :1])).batch(8).repeat()
    if what == "files":
        rows = tf.data.TextLineDataset(__file__).map(lambda _: (x[0], x[0, :1]))
        data = rows.batch(8, drop_remainder=True).repeat()
    steps = 30 if is_other and what == "steps" else 20
    each_batch = [keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: None)]
    session, plans = TrainingSession(PerfConfig()), []
    with interception.intercepting_fit(session.fit):
        try:
            for callbacks in (each_batch if what == "callback" and not is_other else []), []:
                model.fit(data, steps_per_epoch=steps, verbose=0, callbacks=callbacks)
                plans.append(str(session._longest.choice.plan))
                session._longest = None
            print("; ".join(plans))
        except errors.UserError as error:
            print(error)


if __name__ == "__main__":
    main(*sys.argv[1:])
