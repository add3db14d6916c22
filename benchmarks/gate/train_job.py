"""One real training with a planted fault, in a process of its own."""

import datetime
import time
from typing import Any

import numpy as np
import tensorflow as tf

from tfx_perf.config import PerfConfig
from tfx_perf.core import interception, metrics
from tfx_perf.gate.run import Run
from tfx_perf.training.session import TrainingSession

_EXAMPLES, _WIDTH, _CLASSES, _BATCH_SIZE = 4096, 512, 10, 256
_SEED = 1


class _Fault(tf.keras.callbacks.Callback):
    """Makes every step longer by a share of its time, and holds memory."""

    def __init__(self, slowdown: float, held_bytes: int) -> None:
        super().__init__()
        self._slowdown, self._held_bytes = slowdown, held_bytes
        self._held: np.ndarray | None = None
        self._begin = 0.0

    def on_train_begin(self, logs: Any = None) -> None:
        self._held = np.ones(self._held_bytes, np.uint8)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self._begin = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        now = time.perf_counter()
        end = now + self._slowdown * (now - self._begin)
        while time.perf_counter() < end:
            pass


def run(*, name: str, slowdown: float, held_bytes: int, steps: int) -> dict[str, Any]:
    """Trains a small dense network and returns the `Run` as JSON values.

    Args:
        name: the run's id.
        slowdown: share of its own time by which each step is made longer.
        held_bytes: memory that is held during the training.
        steps: of the training.
    """
    tf.keras.utils.set_random_seed(_SEED)
    generator = np.random.default_rng(_SEED)
    features = generator.normal(size=(_EXAMPLES, _WIDTH)).astype(np.float32)
    labels = generator.integers(_CLASSES, size=_EXAMPLES)
    data = tf.data.Dataset.from_tensor_slices((features, labels))
    data = data.batch(_BATCH_SIZE, drop_remainder=True).cache().repeat().prefetch(2)
    layers = tf.keras.layers
    hidden = [layers.Dense(_WIDTH, activation="relu") for _ in range(4)]
    model = tf.keras.Sequential([layers.Input((_WIDTH,)), *hidden, layers.Dense(_CLASSES)])
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss)
    session = TrainingSession(PerfConfig())
    with interception.intercepting_fit(session.measure_only):
        model.fit(data, steps_per_epoch=steps, verbose=0, callbacks=[_Fault(slowdown, held_bytes)])
    return Run(
        run_id=name,
        time=datetime.datetime.now(datetime.timezone.utc),
        environment=session.record.environment,
        figures=metrics.checked(session.record.figures()),
    ).model_dump(mode="json")
