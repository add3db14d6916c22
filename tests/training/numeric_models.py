"""The models and optimizers whose numbers are compared with Keras' `fit`; tiny, for speed."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

STEPS, ROWS = 20, 8


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(STEPS * ROWS, *shape)).astype("float32")


def integers(limit: int, *shape: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, limit, size=(STEPS * ROWS, *shape))


def batched(*tensors: Any) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices(tensors).batch(ROWS)


def dense(keras: Any) -> tuple[Any, tf.data.Dataset]:
    layers = keras.layers
    model = keras.Sequential(
        [layers.Input((4,)), layers.Dense(8, activation="tanh"), layers.Dense(1)]
    )
    model.compile(optimizer="adam", loss="mse", metrics=["mae"])
    return model, batched(floats(4), floats(1, seed=1))


def cnn(keras: Any) -> tuple[Any, tf.data.Dataset]:
    layers = keras.layers
    model = keras.Sequential(
        [
            layers.Input((8, 8, 1)),
            layers.Conv2D(4, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(3, activation="softmax"),
        ]
    )
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model, batched(floats(8, 8, 1), integers(3, 1))


def transformer(keras: Any) -> tuple[Any, tf.data.Dataset]:
    layers = keras.layers
    tokens = keras.Input((6,), dtype="int32")
    hidden = layers.Embedding(10, 8)(tokens)
    # Without biases: softmax does not see the keys' bias, so its gradient is rounding noise,
    # which Adam, dividing by its size, makes into full steps in random directions.
    attended = layers.MultiHeadAttention(2, 4, use_bias=False)(hidden, hidden)
    hidden = layers.LayerNormalization()(layers.Add()([hidden, attended]))
    wide = layers.Dense(8)(layers.Dense(16, activation="gelu")(hidden))
    hidden = layers.LayerNormalization()(layers.Add()([hidden, wide]))
    model = keras.Model(tokens, layers.Dense(10)(hidden))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, metrics=["accuracy"])
    return model, batched(integers(10, 6), integers(10, 6, seed=2))


def lstm(keras: Any) -> tuple[Any, tf.data.Dataset]:
    layers = keras.layers
    model = keras.Sequential([layers.Input((5, 3)), layers.LSTM(4), layers.Dense(1)])
    model.compile(keras.optimizers.RMSprop(0.01), "mse")
    return model, batched(floats(5, 3), floats(1, seed=1))


def wide_and_deep(keras: Any) -> tuple[Any, tf.data.Dataset]:
    layers = keras.layers
    number = keras.Input((2,), name="number")
    word = keras.Input((3,), dtype="int32", name="word")
    deep = layers.Flatten()(layers.Embedding(7, 4)(word))
    deep = layers.Dense(8, activation="relu")(layers.Concatenate()([number, deep]))
    wide = layers.Flatten()(layers.Embedding(7, 1)(word))
    output = layers.Dense(1, activation="sigmoid")(layers.Concatenate()([wide, deep]))
    model = keras.Model({"number": number, "word": word}, output)
    # Clipping tells apart gradients that are sparse from those that were made dense.
    optimizer = keras.optimizers.Adagrad(0.05, clipnorm=0.1)
    model.compile(optimizer, "binary_crossentropy", metrics=["AUC"])
    inputs = {"number": floats(2), "word": integers(7, 3)}
    return model, batched(inputs, integers(2, 1, seed=2).astype("float32"))


def multi_output(keras: Any) -> tuple[Any, tf.data.Dataset]:
    a, b = keras.Input((4,), name="a"), keras.Input((2,), name="b")
    hidden = keras.layers.Dense(8, activation="tanh")(keras.layers.Concatenate()([a, b]))
    outputs = {
        "value": keras.layers.Dense(1, name="value")(hidden),
        "kind": keras.layers.Dense(3, activation="softmax", name="kind")(hidden),
    }
    model = keras.Model({"a": a, "b": b}, outputs)
    model.compile(
        optimizer=keras.optimizers.SGD(0.05, momentum=0.9),
        loss={"value": "mse", "kind": "sparse_categorical_crossentropy"},
        loss_weights={"value": 0.3, "kind": 2.0},
        metrics={"value": ["mae"], "kind": ["accuracy"]},
    )
    targets = {"value": floats(1, seed=1), "kind": integers(3, 1)}
    return model, batched({"a": floats(4), "b": floats(2, seed=2)}, targets)


MODELS = {
    build.__name__: build for build in (dense, cnn, transformer, lstm, wide_and_deep, multi_output)
}


def with_optimizer(make: Callable[[Any], Any]) -> Callable[[Any], tuple[Any, tf.data.Dataset]]:
    def build(keras: Any) -> tuple[Any, tf.data.Dataset]:
        model, data = dense(keras)
        model.compile(make(keras), "mse", metrics=["mae"])
        return model, data

    return build


def frozen(keras: Any) -> tuple[Any, tf.data.Dataset]:
    model, data = dense(keras)
    model.layers[0].trainable = False
    model.compile("adam", "mse")
    return model, data


def batch_norm(keras: Any) -> tuple[Any, tf.data.Dataset]:
    layers = keras.layers
    model = keras.Sequential(
        [
            layers.Input((4,)),
            layers.Dense(8, use_bias=False),  # it would cancel out: a gradient of mere noise
            layers.BatchNormalization(),
            layers.Dense(1),
        ]
    )
    model.compile("sgd", "mse")
    return model, batched(floats(4), floats(1, seed=1))


def own_compute_loss(keras: Any) -> tuple[Any, tf.data.Dataset]:
    class Own(keras.Model):
        def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
            own = tf.reduce_mean(tf.abs(y - y_pred)) + 0.1 * tf.reduce_mean(tf.square(y_pred))
            if keras.__name__ == "tf_keras":  # where the method also keeps the metric
                self.compiled_loss._total_loss_mean.update_state(own, sample_weight=tf.shape(y)[0])
            return own

    inputs = keras.Input((4,))
    hidden = keras.layers.Dense(8, activation="tanh")(inputs)
    model = Own(inputs, keras.layers.Dense(1)(hidden))
    model.compile("adam", "mse")
    return model, batched(floats(4), floats(1, seed=1))


def extra_losses(keras: Any) -> tuple[Any, tf.data.Dataset]:
    class Activity(keras.layers.Layer):
        def call(self, inputs):
            self.add_loss(1e-2 * tf.reduce_mean(tf.square(inputs)))
            return inputs

    inputs = keras.Input((4,))
    hidden = keras.layers.Dense(8, kernel_regularizer=keras.regularizers.L2(1e-1))(inputs)
    model = keras.Model(inputs, keras.layers.Dense(1)(Activity()(hidden)))
    model.compile("rmsprop", "mse")
    return model, batched(floats(4), floats(1, seed=1))


def classes(keras: Any) -> tuple[Any, tf.data.Dataset]:
    inputs = keras.Input((4,))
    model = keras.Model(inputs, keras.layers.Dense(3, activation="softmax")(inputs))
    model.compile("adam", "sparse_categorical_crossentropy", weighted_metrics=["accuracy"])
    return model, batched(floats(4), integers(3, 1))


def sample_weights(keras: Any) -> tuple[Any, tf.data.Dataset]:
    weights = np.random.default_rng(5).uniform(size=STEPS * ROWS).astype("float32")
    model, _ = classes(keras)
    return model, batched(floats(4), integers(3, 1), weights)


def scaled(keras: Any, inner: Any, **arguments: Any) -> Any:
    """Returns a loss-scaling optimizer; its scale doubles after 6 good steps."""
    lines = keras.optimizers if keras.__name__ == "keras" else keras.mixed_precision
    return lines.LossScaleOptimizer(inner, dynamic_growth_steps=6, **arguments)


def overflow(keras: Any) -> tuple[Any, tf.data.Dataset]:
    """The scaled loss of the eighth batch overflows; that of the others is far from it."""
    model, _ = dense(keras)
    model.compile(scaled(keras, keras.optimizers.Adam(), initial_scale=2.0**100), "mse")
    targets = floats(1, seed=1)
    targets[7 * ROWS] = 1e10
    return model, batched(floats(4), targets)


def half_precision(keras: Any) -> tuple[Any, tf.data.Dataset]:
    layers = keras.layers
    model = keras.Sequential(
        [
            layers.Input((4,)),
            layers.Dense(8, activation="tanh", dtype="mixed_float16"),
            layers.Dense(1, dtype="float32"),
        ]
    )
    model.compile(scaled(keras, keras.optimizers.SGD(0.05), initial_scale=1024.0), "mse")
    return model, batched(floats(4), floats(1, seed=1))


def prepared(keras: Any) -> tuple[Any, tf.data.Dataset]:
    """Strings, tables and counting before the first weights, and an input without any."""
    layers = keras.layers
    number = keras.Input((2,), name="number")
    hour = keras.Input((1,), dtype="int32", name="hour")
    word = keras.Input((1,), dtype="string", name="word")
    scaled_number = layers.Normalization(mean=0.5, variance=2.0)(number)
    kind = layers.StringLookup(vocabulary=["a", "b"], output_mode="one_hot")(word)
    wide = layers.Concatenate()([layers.CategoryEncoding(4)(hour), kind])
    deep = layers.Dense(8, activation="tanh")(layers.Concatenate()([scaled_number, number]))
    output = layers.Dense(1, activation="sigmoid")(layers.Concatenate()([deep, wide, number]))
    model = keras.Model({"number": number, "hour": hour, "word": word}, output)
    model.compile("adam", "binary_crossentropy", metrics=["binary_accuracy"])
    words = np.array(["a", "b", "c"])[integers(3, 1, seed=3)]
    inputs = {"number": floats(2), "hour": integers(4, 1), "word": words}
    return model, batched(inputs, integers(2, 1, seed=2).astype("float32"))


FEATURES = {
    "clipvalue": with_optimizer(lambda keras: keras.optimizers.SGD(0.1, clipvalue=0.05)),
    # With less, all steps of the last bias would have one size and cancel out to noise.
    "clipnorm": with_optimizer(lambda keras: keras.optimizers.SGD(0.1, clipnorm=0.5)),
    "global_clipnorm": with_optimizer(lambda keras: keras.optimizers.SGD(global_clipnorm=0.05)),
    "weight_decay": with_optimizer(lambda keras: keras.optimizers.AdamW(0.01, weight_decay=0.1)),
    "ema": with_optimizer(
        lambda keras: keras.optimizers.SGD(
            use_ema=True, ema_momentum=0.9, ema_overwrite_frequency=6
        )
    ),
    "frozen": frozen,
    "own_compute_loss": own_compute_loss,
    "extra_losses": extra_losses,
    "class_weight": classes,
    "sample_weights": sample_weights,
    "overflow": overflow,
}
ARGUMENTS = {"class_weight": {"class_weight": {0: 0.2, 1: 3.0, 2: 1.0}}}  # of `fit`
