"""A training over two replicas that scrapes itself and prints that; run as a script."""

import urllib.request

import keras
import tensorflow as tf

from tests.ports import free_port
from tfx_perf.config import PerfConfig
from tfx_perf.core import interception
from tfx_perf.training.session import TrainingSession
from tfx_perf.training.speedups.plan import PLAIN_FIT
from tfx_perf.training.tuning.choice import PlanChoice


def main():
    (cpu,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    port, texts = free_port(), []

    def scrape(epoch, logs=None):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            texts.append(answer.read().decode())

    session = TrainingSession(PerfConfig.from_dict({"monitoring": {"metrics_port": port}}))
    session._choose = lambda call, loop: PlanChoice(
        plan=PLAIN_FIT, plan_reason="given", input_wait_ratio=0.1
    )
    with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
        model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
        model.compile(optimizer="sgd", loss="mse")
    data = tf.data.Dataset.from_tensors((tf.ones((4, 2)), tf.ones((4, 1)))).repeat(30)
    callback = keras.callbacks.LambdaCallback(on_epoch_end=scrape)
    with interception.intercepting_fit(session.fit):
        model.fit(data, epochs=2, verbose=0, callbacks=[callback])
    print(texts[-1])


if __name__ == "__main__":
    main()
