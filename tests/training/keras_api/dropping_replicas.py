"""Prints how many units two replicas drop alike, of a thousand, as they train.

Run as a script with the Keras package.
"""

import importlib
import sys

import numpy as np
import tensorflow as tf

from tfx_perf.config import PerfConfig
from tfx_perf.core import interception
from tfx_perf.training.optimizations.plan import TrainingPlan
from tfx_perf.training.session import TrainingSession
from tfx_perf.training.trials.choice import PlanChoice

UNITS = 1000


def main(package):
    keras = importlib.import_module(package)
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        inputs = keras.Input((UNITS,))
        units = keras.layers.Dropout(0.5)(inputs)
        model = keras.Model(inputs, keras.layers.Dense(1, kernel_initializer="zeros")(units))

        def total(y_true, y_pred):
            return -y_pred

        model.compile(keras.optimizers.SGD(1.0), total)
    session = TrainingSession(PerfConfig())
    plan = TrainingPlan(steps_per_call=1)
    session._choose = lambda call, loop: PlanChoice(plan=plan, plan_reason="given")
    ones = np.ones((2, UNITS), "float32")
    data = tf.data.Dataset.from_tensors((ones, ones[:, :1]))  # a row for each replica
    with interception.intercepting_fit(session.fit):
        model.fit(data, verbose=0)
    # Of what both have dropped, and both have kept; the others were dropped by one of them.
    kept_by = np.round(model.layers[-1].get_weights()[0])
    print(int(np.sum(kept_by != 1)))


if __name__ == "__main__":
    main(*sys.argv[1:])
