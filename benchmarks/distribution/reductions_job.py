"""One worker: trains in blocks, in turns for each type in which gradients are summed."""

import importlib
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tfx_perf.config import PerfConfig
from tfx_perf.core import interception
from tfx_perf.training.keras_api import either_keras
from tfx_perf.training.session import TrainingSession

_SETTINGS: dict[str, dict[str, str]] = {  # of `distribution`, by the type sent
    "float32": {},
    "bfloat16": {"reduction_dtype": "bfloat16"},
    "float16": {"reduction_dtype": "float16"},
}

_UNITS, _ROWS, _BATCH = 512, 4096, 16  # the batch is each worker's


def main(package: str, steps: int, rounds: int) -> None:
    """Prints as JSON, by the type sent, the seconds per step and the loss of each round.

    Args:
        package: the Keras package.
        steps: measured steps of a block; as many unmeasured ones precede them.
        rounds: blocks of each type.
    """
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    keras = importlib.import_module(package)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(_ROWS, _UNITS)).astype("float32")
    y = np.tanh(x[:, :8]).sum(axis=1, keepdims=True)
    data = tf.data.Dataset.from_tensor_slices((x, y)).repeat()
    data = data.batch(_BATCH * strategy.num_replicas_in_sync, drop_remainder=True)
    options = tf.data.Options()
    by_rows = tf.data.experimental.AutoShardPolicy.DATA
    options.experimental_distribute.auto_shard_policy = by_rows
    data = data.with_options(options)

    def trainer(asked: dict[str, Any]) -> Callable[[], tuple[float, float]]:
        keras.utils.set_random_seed(3)
        with strategy.scope():
            hidden = [keras.layers.Dense(_UNITS, "relu") for _ in range(4)]
            model = keras.Sequential(
                [keras.layers.Input((_UNITS,)), *hidden, keras.layers.Dense(1)]
            )
            model.compile(keras.optimizers.Adam(1e-4), "mse")
        settings = PerfConfig.from_dict({"distribution": asked})
        session, api = TrainingSession(settings), either_keras.api_of(model)

        def block() -> tuple[float, float]:
            ends: list[float] = []
            callback = api.callback(on_epoch_end=lambda *_: ends.append(time.perf_counter()))
            with interception.intercepting_fit(session.fit):
                history = model.fit(
                    data, steps_per_epoch=steps, epochs=2, verbose=0, callbacks=[callback]
                ).history
            return (ends[1] - ends[0]) / steps, history["loss"][-1]  # the first epoch traces

        return block

    trainers = {sent: trainer(asked) for sent, asked in _SETTINGS.items()}
    found: dict[str, list[tuple[float, float]]] = {sent: [] for sent in _SETTINGS}
    for _ in range(rounds):
        for sent, block in trainers.items():
            found[sent].append(block())
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
