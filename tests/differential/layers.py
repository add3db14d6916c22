"""Layers that keep state in every place that a user may keep it."""

import types
from typing import Any

import tensorflow as tf

_LOG_SIZE = 1024

# What a model may have beside its dense layers; which Keras layers, and which of those below.
PARTS = (
    "dropout",
    "batch_norm",
    "regularizer",
    "frozen",
    "counter",  # a raw variable that changes the output
    "held",  # raw variables in a list and in a dict
    "noise",  # a raw generator
    "seeded",  # Keras' own noise with a seed of its own
    "late",  # a layer that only training calls, so that nothing builds it before
    "extra_loss",
)


def make(keras: Any, event: Any) -> types.SimpleNamespace:
    """Returns the layers' classes.

    Args:
        keras: the line.
        event: what happens in the steps.
    """
    layers = keras.layers

    class Seen(layers.Layer):
        """Cuts the row's number, the first feature, off, and notes it if it is trained on."""

        def __init__(self):
            super().__init__(dtype="float32", autocast=False)
            self.built = True
            self.rows = self.add_weight(
                name="rows", shape=(_LOG_SIZE,), dtype="int32", trainable=False, initializer="zeros"
            )
            self.count = self.add_weight(
                name="count", shape=(), dtype="int32", trainable=False, initializer="zeros"
            )

        def call(self, inputs, training=False):
            if training:
                rows = tf.cast(inputs[:, 0], tf.int32)
                if event.is_in_step:
                    rows = tf.ensure_shape(
                        tf.numpy_function(event.in_step, [rows], tf.int32), rows.shape
                    )
                count = tf.convert_to_tensor(self.count)
                places = (count + tf.range(tf.shape(rows)[0])) % _LOG_SIZE
                noted = tf.tensor_scatter_nd_update(
                    tf.convert_to_tensor(self.rows), places[:, tf.newaxis], rows
                )
                self.rows.assign(noted)
                self.count.assign(count + tf.shape(rows)[0])
            return inputs[:, 1:]

        def compute_output_shape(self, shape):
            return (shape[0], shape[1] - 1)

    class Counter(layers.Layer):
        def __init__(self):
            super().__init__()
            self.calls = tf.Variable(0.0, trainable=False, name="calls")

        def call(self, inputs, training=False):
            if training:
                self.calls.assign_add(1.0)
            return inputs * tf.cast(1.0 + 0.01 * self.calls, inputs.dtype)

    class Held(layers.Layer):
        def __init__(self):
            super().__init__()
            self.in_list = [tf.Variable(0.0, trainable=False, name="in_list")]
            self.in_dict = {"mean": tf.Variable(0.0, trainable=False, name="in_dict")}

        def call(self, inputs, training=False):
            if training:
                self.in_list[0].assign_add(1.0)
                mean = tf.reduce_mean(tf.cast(inputs, tf.float32))
                self.in_dict["mean"].assign(0.9 * self.in_dict["mean"] + 0.1 * mean)
            state = 0.01 * self.in_list[0] + self.in_dict["mean"]
            return inputs + tf.cast(state, inputs.dtype)

    class Noise(layers.Layer):
        def __init__(self):
            super().__init__()
            self.generator = tf.random.Generator.from_seed(11)

        def call(self, inputs, training=False):
            if not training:
                return inputs
            noise = self.generator.normal(tf.shape(inputs), stddev=0.1)
            return inputs + tf.cast(noise, inputs.dtype)

    class Late(layers.Layer):
        def __init__(self):
            super().__init__()
            self.late = layers.Dense(4, use_bias=False, name="built_late")

        def call(self, inputs, training=False):
            return inputs + 0.1 * self.late(inputs) if training else inputs

    class ExtraLoss(layers.Layer):
        def call(self, inputs):
            self.add_loss(0.01 * tf.reduce_mean(tf.square(tf.cast(inputs, tf.float32))))
            return inputs

    return types.SimpleNamespace(
        Seen=Seen, Counter=Counter, Held=Held, Noise=Noise, Late=Late, ExtraLoss=ExtraLoss
    )


def body(keras: Any, own: Any, parts: tuple[str, ...]) -> list[Any]:
    """Returns the hidden layers of a model with these parts; the width is 4 at the end."""
    layers = keras.layers
    regularizer = keras.regularizers.L2(0.01) if "regularizer" in parts else None
    first = layers.Dense(4, activation="tanh", kernel_regularizer=regularizer, name="hidden")
    first.trainable = "frozen" not in parts
    made = {
        "dropout": lambda: layers.Dropout(0.3),
        "batch_norm": layers.BatchNormalization,
        "counter": own.Counter,
        "held": own.Held,
        "noise": own.Noise,
        "seeded": lambda: layers.GaussianNoise(0.1, seed=5),
        "late": own.Late,
        "extra_loss": own.ExtraLoss,
    }
    return [first, *(made[part]() for part in parts if part in made)]


def raw_state(model: Any, line_layers: Any) -> dict[str, Any]:
    """Returns the variables that are not among the model's own, by place."""
    found = {}
    for index, layer in enumerate(_all_layers(model, line_layers)):
        place = f"{type(layer).__name__}[{index}]"
        if hasattr(layer, "calls") and isinstance(layer.calls, tf.Variable):
            found[f"{place}.calls"] = layer.calls
        if hasattr(layer, "in_list"):
            found[f"{place}.in_list"] = layer.in_list[0]
            found[f"{place}.in_dict"] = layer.in_dict["mean"]
        if isinstance(getattr(layer, "generator", None), tf.random.Generator):
            found[f"{place}.generator"] = layer.generator.state
    return found


def _all_layers(model: Any, line_layers: Any) -> list[Any]:
    return [layer for layer in model._flatten_layers() if isinstance(layer, line_layers.Layer)]
