"""A user's training module, written as in TFX's documentation, for several models."""

import importlib
from typing import Any

import tensorflow as tf
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx.components.trainer.fn_args_utils import FnArgs
from tfx.utils import io_utils
from tfx_bsl.public import tfxio

from benchmarks.first_run import data


def run_fn(fn_args: FnArgs) -> None:
    """Trains the model that `custom_config` names, with the Keras package that it names."""
    config = fn_args.custom_config
    keras = importlib.import_module(config["line"])
    schema = io_utils.parse_pbtxt_file(fn_args.schema_path, schema_pb2.Schema())

    def read(files: list[str]) -> tf.data.Dataset:
        options = tfxio.TensorFlowDatasetOptions(
            batch_size=config["batch_size"], label_key=data.LABEL
        )
        return fn_args.data_accessor.tf_dataset_factory(files, options, schema).repeat()

    model = MODELS[config["model"]](keras)
    model.fit(
        read(fn_args.train_files),
        steps_per_epoch=fn_args.train_steps,
        validation_data=read(fn_args.eval_files),
        validation_steps=fn_args.eval_steps,
        verbose=0,
    )
    if config["line"] == "keras":
        model.export(fn_args.serving_model_dir)
    else:
        model.save(fn_args.serving_model_dir, save_format="tf")


def _compiled(keras: Any, model: Any) -> Any:
    model.compile(
        keras.optimizers.Adam(1e-3),
        keras.losses.BinaryCrossentropy(from_logits=True),
        metrics=[keras.metrics.BinaryAccuracy(threshold=0.0)],
    )
    return model


def _numbers(keras: Any) -> Any:
    return keras.Input((data.NUMBERS,), name="numbers")


def dense(keras: Any) -> Any:
    """Returns a network on numbers."""
    numbers = x = _numbers(keras)
    for _ in range(3):
        x = keras.layers.Dense(256, "relu")(x)
    return _compiled(keras, keras.Model({"numbers": numbers}, keras.layers.Dense(1)(x)))


def wide_deep(keras: Any) -> Any:
    """Returns a deep network on numbers and categories, with a wide part for the categories."""
    layers = keras.layers
    numbers = _numbers(keras)
    categories = keras.Input((data.CATEGORIES,), dtype="int64", name="categories")
    wide = layers.Flatten()(layers.Embedding(data.CATEGORY_COUNT, 1)(categories))
    deep = layers.Flatten()(layers.Embedding(data.CATEGORY_COUNT, 8)(categories))
    deep = layers.Concatenate()([deep, numbers])
    for units in (128, 64, 32):
        deep = layers.BatchNormalization()(layers.Dense(units, "relu")(deep))
        deep = layers.Dropout(0.1)(deep)
    output = layers.Dense(1)(layers.Concatenate()([wide, deep]))
    return _compiled(keras, keras.Model({"numbers": numbers, "categories": categories}, output))


def embeddings(keras: Any) -> Any:
    """Returns a network on two large embeddings."""
    layers = keras.layers
    inputs = {name: keras.Input((1,), dtype="int64", name=name) for name in ("user", "item")}
    parts = [
        layers.Flatten()(layers.Embedding(data.ID_COUNT, 64)(each)) for each in inputs.values()
    ]
    x = layers.Dense(64, "relu")(layers.Concatenate()(parts))
    return _compiled(keras, keras.Model(inputs, layers.Dense(1)(x)))


def cnn(keras: Any) -> Any:
    """Returns two convolutions on an image."""
    layers = keras.layers
    pixels = keras.Input((data.PIXELS,), name="pixels")
    x = layers.Reshape((28, 28, 1))(pixels)
    for filters in (16, 32):
        x = layers.MaxPooling2D()(layers.Conv2D(filters, 3, activation="relu")(x))
    x = layers.Dense(64, "relu")(layers.Flatten()(x))
    return _compiled(keras, keras.Model({"pixels": pixels}, layers.Dense(1)(x)))


def lstm(keras: Any) -> Any:
    """Returns a bidirectional LSTM on words."""
    layers = keras.layers
    words = keras.Input((data.WORDS,), dtype="int64", name="words")
    x = layers.Embedding(data.WORD_COUNT, 32)(words)
    x = layers.Bidirectional(layers.LSTM(64))(x)
    return _compiled(keras, keras.Model({"words": words}, layers.Dense(1)(x)))


def train_step(keras: Any) -> Any:
    """Returns a model that computes its step itself."""

    class Own(keras.Model):
        def train_step(self, batch: Any) -> dict[str, Any]:
            x, y = batch
            with tf.GradientTape() as tape:
                predicted = self(x, training=True)
                loss = self.compute_loss(x=x, y=y, y_pred=predicted)
            gradients = tape.gradient(loss, self.trainable_variables)
            self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
            return {"loss": loss, **self.compute_metrics(x, y, predicted, None)}

    numbers = x = _numbers(keras)
    for _ in range(2):
        x = keras.layers.Dense(128, "relu")(x)
    return _compiled(keras, Own({"numbers": numbers}, keras.layers.Dense(1)(x)))


MODELS = {each.__name__: each for each in (dense, wide_deep, embeddings, cnn, lstm, train_step)}
"""The models, by the name in `custom_config`."""
