"""A training in which one replica computes longer than the other; run as a script.

Arguments: the Keras package, where to write, how many replicas this process has (1: it is a
worker), how long the slow one sleeps in each step, in seconds, and the optimizer's name.
"""

import importlib
import json
import operator
import pathlib
import sys
import time
import urllib.request

import model_cases
import numpy as np
import tensorflow as tf

import tfx_perf
from tests.ports import free_port
from tfx_perf.core import workers
from tfx_perf.hardware import energy
from tfx_perf.report import training as training_report
from tfx_perf.tf_internals import autograph

UNITS = 50
JOULES = 7


def plant_energy(folder):
    """Has this process measure energy from files in a folder; returns the counter."""
    zone = folder / "intel-rapl:0"
    zone.mkdir(parents=True, exist_ok=True)
    values = {"name": "package-0", "energy_uj": "0", "max_energy_range_uj": str(10**9)}
    for name, value in values.items():
        (zone / name).write_text(value)
    energy.RaplCounter.__init__.__defaults__ = (folder,)
    return zone / "energy_uj"


def main(package, place, replicas, sleep_seconds, optimizer):
    if replicas > 1:
        (cpu,) = tf.config.list_physical_devices("CPU")
        tf.config.set_logical_device_configuration(
            cpu, [tf.config.LogicalDeviceConfiguration()] * replicas
        )
        strategy = tf.distribute.MirroredStrategy([f"CPU:{index}" for index in range(replicas)])
    else:
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
    keras = importlib.import_module(package)
    keras.utils.set_random_seed(3)

    class Slow(keras.layers.Layer):
        def call(self, x):
            context = tf.distribute.get_replica_context()
            if context is None:  # the model is being built
                return x
            context.all_reduce(tf.distribute.ReduceOp.SUM, 1.0)  # as users' own steps may
            index = tf.cast(context.replica_id_in_sync_group, tf.int32)

            def wait(values, index):
                time.sleep(sleep_seconds if index == 1 else 0.0)
                return values

            found = tf.numpy_function(wait, [x, index], tf.float32)
            found.set_shape(x.shape)
            return x + 0 * tf.stop_gradient(found)

    with strategy.scope():
        layers = [keras.layers.Input((4,)), Slow(), keras.layers.Dense(UNITS, use_bias=False)]
        model = keras.Sequential([*layers, keras.layers.Dense(1, use_bias=False)])
        model.compile(operator.attrgetter(optimizer)(keras.optimizers)(0.01), "mse")
    x = np.random.default_rng(0).normal(size=(800, 4)).astype("float32")
    data = tf.data.Dataset.from_tensor_slices((x, x[:, :1])).batch(8)
    settings = {
        "training": {"tuning_seconds": 0 if replicas > 1 else 20},
        "monitoring": {"metrics_port": free_port()},
    }
    scrapes = []
    energy_file = plant_energy(place / f"rapl-{replicas}")

    def at_the_end(epoch, logs=None):
        energy_file.write_text(str(JOULES * 10**6))  # all workers read the same counter
        url = f"http://127.0.0.1:{settings['monitoring']['metrics_port']}/metrics"
        with urllib.request.urlopen(url, timeout=60) as answer:
            scrapes.append(answer.read().decode())

    with (
        tfx_perf.optimized(settings, folder=place / "perf") as run,
        autograph.libraries_unconverted(),
    ):
        callback = keras.callbacks.LambdaCallback(on_epoch_end=at_the_end)
        model.fit(model_cases.shared_by_rows(data), epochs=2, verbose=0, callbacks=[callback])
    record = run.record
    found = {
        "communication": record.communication.model_dump(),
        "figures": record.figures(),
        "advice": {item.code: item.message for item in record.advice},
        "plan": str(record.plan),
        "environment": record.environment,
        "scrapes": scrapes,
        "page": training_report.report_on(record).render(),
    }
    worker = workers.this().index
    (place / f"{worker}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], pathlib.Path(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]), sys.argv[5])
