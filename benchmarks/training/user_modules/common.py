"""Code that the modules share: reading the examples, training, saving."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx.components.trainer.fn_args_utils import FnArgs
from tfx.utils import io_utils
from tfx_bsl.public import tfxio

from benchmarks.training.clock import Clock
from tfx_perf.core import interception
from tfx_perf.training.loop.fit_loop import FitLoop

LABEL_KEY = "label"

_PIXELS = (28, 28, 1)
_WORDS, VOCABULARY = 64, 5000


def train(fn_args: FnArgs, model: tf.keras.Model, decode: Callable[..., Any]) -> None:
    """Trains the model and saves it.

    Args:
        fn_args: of `run_fn`; `custom_config` has the `batch_size` and the path of a `clock`.
        model: gives logits.
        decode: maps features and label, as they are read, to the model's inputs and label.
    """
    schema = io_utils.parse_pbtxt_file(fn_args.schema_path, schema_pb2.Schema())
    options = tfxio.TensorFlowDatasetOptions(
        batch_size=fn_args.custom_config["batch_size"], label_key=LABEL_KEY
    )
    data = fn_args.data_accessor.tf_dataset_factory(fn_args.train_files, options, schema)
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(tf.keras.optimizers.Adam(1e-4), loss, metrics=["accuracy"])
    clock = Clock(fn_args.custom_config["clock"])
    with _calling_when_it_trains(lambda: clock.follow(model)) as callbacks:
        model.fit(
            data.repeat().map(decode),
            steps_per_epoch=fn_args.train_steps,
            callbacks=callbacks,
            verbose=0,
        )
    tf.saved_model.save(model, fn_args.serving_model_dir)


@contextlib.contextmanager
def _calling_when_it_trains(start: Callable[[], None]) -> Iterator[list[Any]]:
    """Yields callbacks for a `fit`, and makes it call `start` before its own first step.

    tfx-perf calls `on_train_begin` before the trials, whose steps do not count as training.
    """

    def starting(own: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            start()
            return own(*args, **kwargs)

        return run

    if not interception._OPEN:  # the stock Trainer
        yield [tf.keras.callbacks.LambdaCallback(on_train_begin=lambda logs: start())]
        return
    with (
        interception.replacing(FitLoop, "fit", starting),
        interception.replacing(FitLoop, "measure_only", starting),
    ):
        yield []


def image(features: dict[str, Any], label: Any) -> tuple[tf.Tensor, Any]:
    """Returns the pixels, [batch, 28, 28, 1] of 0 to 1, and the label."""
    pixels = tf.io.decode_raw(features["image"][:, 0], tf.uint8)
    return tf.cast(tf.reshape(pixels, [-1, *_PIXELS]), tf.float32) / 255, label


def flat_image(features: dict[str, Any], label: Any) -> tuple[tf.Tensor, Any]:
    """Returns the pixels, [batch, 784] of 0 to 1, and the label."""
    pixels, label = image(features, label)
    return tf.reshape(pixels, [-1, 784]), label


def words(features: dict[str, Any], label: Any) -> tuple[tf.Tensor, Any]:
    """Returns the first words as numbers, [batch, 64], padded with 0, and the label."""
    text = features["words"]
    hashed = tf.strings.to_hash_bucket_fast(text.values, VOCABULARY - 1) + 1
    numbers = tf.sparse.to_dense(tf.SparseTensor(text.indices, hashed, text.dense_shape))
    first = numbers[:, :_WORDS]
    padded = tf.pad(first, [[0, 0], [0, _WORDS - tf.shape(first)[1]]])
    return tf.ensure_shape(padded, [None, _WORDS]), label
