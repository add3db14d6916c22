"""One worker of a training whose steps compute for a fixed time; prints its communication."""

import importlib
import sys
import time

import numpy as np
import tensorflow as tf

from tfx_perf.config import PerfConfig
from tfx_perf.core import interception
from tfx_perf.training.session import TrainingSession

_COMPUTE_SECONDS = 0.1  # asleep, so that workers on one machine do not slow each other down
_UNITS, _ROWS = 512, 64


def main(package: str, steps: int) -> None:
    """Prints the `CommunicationAccount` of a training as JSON.

    Args:
        package: the Keras package.
        steps: of the training.
    """
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    keras = importlib.import_module(package)

    def computed(values: np.ndarray) -> np.ndarray:
        time.sleep(_COMPUTE_SECONDS)
        return values

    class Computing(keras.layers.Layer):  # type: ignore[misc]
        def call(self, x: tf.Tensor) -> tf.Tensor:
            if tf.distribute.in_cross_replica_context():  # the model is built
                return x
            found = tf.numpy_function(computed, [x], tf.float32)
            found.set_shape(x.shape)
            return x + 0 * tf.stop_gradient(found)

    with strategy.scope():
        hidden = [keras.layers.Dense(_UNITS, "relu") for _ in range(4)]
        layers = [keras.layers.Input((_UNITS,)), Computing(), *hidden, keras.layers.Dense(1)]
        model = keras.Sequential(layers)
        model.compile("sgd", "mse")
    x = np.zeros((_ROWS, _UNITS), np.float32)
    data = tf.data.Dataset.from_tensor_slices((x, x[:, :1])).repeat()
    data = data.batch(8 * strategy.num_replicas_in_sync, drop_remainder=True)
    options = tf.data.Options()
    by_rows = tf.data.experimental.AutoShardPolicy.DATA
    options.experimental_distribute.auto_shard_policy = by_rows
    session = TrainingSession(PerfConfig())
    with interception.intercepting_fit(session.fit):
        model.fit(data.with_options(options), steps_per_epoch=steps, verbose=0)
    record = session.record
    assert record is not None
    assert record.communication is not None
    print(record.communication.model_dump_json())


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
