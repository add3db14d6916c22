"""The models of the cases, written as users write them."""

from typing import Any

import tensorflow as tf

from . import layers as own_layers
from .cases import CLASSES, OWN_STEP, Case
from .optimizers import make_optimizer

MODELS = (
    "sequential",
    "functional",
    "subclass",
    "late_built",
    "outputs",
    "masked",
    "recurrent",
    "embedding",  # some of whose indices are out of range
    "ragged",
    "sparse",
    *OWN_STEP,
)
METRICS = ("mae", "accuracy", "vector", "nested", "weighted")
LOSSES = ("mse", "mae", "huber", "own", "own_mean", "summed", "sparse_categorical_crossentropy")


def compiled(keras: Any, case: Case, event: Any) -> Any:
    """Returns the case's model, as the user's code gives it to `fit`.

    Args:
        keras: the line.
        case: the case.
        event: what happens in its steps.
    """
    layers, own = keras.layers, own_layers.make(keras, event)
    hidden = own_layers.body(keras, own, case.parts)
    if case.classifies:
        last = layers.Dense(CLASSES, activation="softmax", dtype=_wide(case), name="last")
    else:
        last = layers.Dense(1, dtype=_wide(case), name="last")
    model = _MAKERS.get(case.model, _functional)(keras, case, [own.Seen(), *hidden, last])
    _compile(keras, case, model)
    if case.model == "step_on_instance":
        model.train_step = _step_of(model, keras)
    return model


def _wide(case: Case) -> str | None:
    return None if case.dtype == "float64" else "float32"


def _sequential(keras: Any, case: Case, layers: list[Any]) -> Any:
    return keras.Sequential([keras.layers.Input((5,)), *layers])


def _chain(layers: list[Any], tensor: Any) -> Any:
    for layer in layers:
        tensor = layer(tensor)
    return tensor


def _functional(keras: Any, case: Case, layers: list[Any], model: Any = None) -> Any:
    inputs = keras.Input((5,))
    return (model or keras.Model)(inputs, _chain(layers, inputs))


def _subclass(keras: Any, case: Case, layers: list[Any]) -> Any:
    class Subclass(keras.Model):
        def __init__(self):
            super().__init__()
            self.chain = layers

        def call(self, inputs, training=None):
            for layer in self.chain:
                is_own = type(layer).__module__ == __name__.replace("models", "layers")
                random = isinstance(layer, (keras.layers.Dropout, keras.layers.GaussianNoise))
                norm = isinstance(layer, keras.layers.BatchNormalization)
                given = (is_own and type(layer).__name__ != "ExtraLoss") or random or norm
                inputs = layer(inputs, training=training) if given else layer(inputs)
            return inputs

    model = Subclass()
    if case.model == "subclass":
        model(tf.zeros((1, 5)))
    return model


def _outputs(keras: Any, case: Case, layers: list[Any]) -> Any:
    inputs = keras.Input((5,))
    hidden = _chain(layers[:-1], inputs)
    kind = keras.layers.Dense(CLASSES, activation="softmax", name="kind", dtype=_wide(case))
    value = keras.layers.Dense(1, name="value", dtype=_wide(case))
    return keras.Model(inputs, {"value": value(hidden), "kind": kind(hidden)})


def _tokens(keras: Any, size: int) -> Any:
    class Tokens(keras.layers.Layer):
        def call(self, inputs):
            return tf.cast(tf.minimum(tf.abs(inputs) * 4, float(size)), tf.int32)

        def compute_output_shape(self, shape):
            return shape

    return Tokens(dtype="float32")


def _masked(keras: Any, case: Case, layers: list[Any]) -> Any:
    make = keras.layers
    pooling = make.SimpleRNN(4) if case.model == "recurrent" else make.GlobalAveragePooling1D()
    size = 3 if case.model == "embedding" else 9
    is_masked = case.model != "embedding"
    words = [_tokens(keras, size), make.Embedding(size + is_masked, 3, mask_zero=is_masked)]
    return _sequential(keras, case, [layers[0], *words, pooling, *layers[1:]])


def _words(keras: Any, case: Case, layers: list[Any]) -> Any:
    is_sparse = case.model == "sparse"

    class Words(keras.Model):
        def __init__(self):
            super().__init__()
            self.seen, self.chain = layers[0], layers[1:]
            self.table = self.add_weight(
                name="table", shape=(10, 4), initializer="glorot_uniform", trainable=True
            )

        def call(self, inputs, training=None):
            hidden = self.seen(inputs["row"], training=training)
            words = inputs["words"]
            if is_sparse:
                hidden += tf.sparse.sparse_dense_matmul(words, tf.convert_to_tensor(self.table))
            else:
                rows = tf.gather(tf.convert_to_tensor(self.table), words)
                hidden += tf.reduce_mean(rows, axis=1)
            for layer in self.chain:
                hidden = layer(hidden)
            return hidden

    return Words()


def _own_step(keras: Any, case: Case, layers: list[Any]) -> Any:
    class OwnStep(keras.Model):
        def train_step(self, data):
            return _step_of(self, keras)(data)

    return _functional(keras, case, layers, OwnStep)


def _step_of(model: Any, keras: Any) -> Any:
    def train_step(data):
        x, y = data[:2]
        with tf.GradientTape() as tape:
            error = tf.reduce_mean(tf.abs(model(x, training=True) - tf.cast(y, tf.float32)))
        variables = model.trainable_variables
        gradients = tape.gradient(error, variables)
        model.optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return {"loss": error, "share": tf.reduce_mean(tf.cast(y, tf.float32))}

    return train_step


def _step_without_loss(keras: Any, case: Case, layers: list[Any]) -> Any:
    class WithoutLoss(keras.Model):
        def train_step(self, data):
            logs = _step_of(self, keras)(data)
            return {"error": logs["loss"]}

    return _functional(keras, case, layers, WithoutLoss)


def _gan(keras: Any, case: Case, layers: list[Any]) -> Any:
    judge = keras.layers.Dense(1, name="judge")
    names = ("first_error", "second_error")

    class Gan(keras.Model):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.judge = judge
            self.errors = [keras.metrics.Mean(name=name) for name in names]

        def compile(self, optimizer, second):
            super().compile(optimizer=optimizer)
            self.second = second

        @property
        def metrics(self):
            return self.errors

        def train_step(self, data):
            x, y = data[:2]
            with tf.GradientTape(persistent=True) as tape:
                made = self(x, training=True)
                first = tf.reduce_mean(tf.square(made - y)) - 0.1 * tf.reduce_mean(self.judge(made))
                second = tf.reduce_mean(tf.square(self.judge(made) - self.judge(y)))
            mine = [v for v in self.trainable_variables if "judge" not in _path(v)]
            theirs = self.judge.trainable_variables
            self.optimizer.apply_gradients(zip(tape.gradient(first, mine), mine, strict=True))
            self.second.apply_gradients(zip(tape.gradient(second, theirs), theirs, strict=True))
            for metric, value in zip(self.errors, (first, second), strict=True):
                metric.update_state(value)
            return {metric.name: metric.result() for metric in self.metrics}

    model = _functional(keras, case, layers, Gan)
    judge.build((None, 1))
    return model


def _path(variable: Any) -> str:
    return getattr(variable, "path", variable.name)


def _compile(keras: Any, case: Case, model: Any) -> None:
    optimizer = make_optimizer(keras, case)
    if case.model == "gan":
        model.compile(optimizer, keras.optimizers.Adam(0.02))
        return
    loss, metrics = _loss(keras, case), [_metric(keras, m) for m in case.metrics]
    weighted = ["mae"] if "weighted" in case.metrics else None
    if case.model == "outputs":
        loss = {"value": "mse", "kind": "sparse_categorical_crossentropy"}
        metrics, weighted = {"value": [m for m in metrics if m], "kind": ["accuracy"]}, None
    else:
        metrics = [metric for metric in metrics if metric]
    options = {} if case.model == "step_without_loss" else {"loss": loss}
    model.compile(
        optimizer=optimizer,
        metrics=metrics or None,
        weighted_metrics=weighted,
        steps_per_execution=case.steps_per_execution,
        **options,
    )


def _loss(keras: Any, case: Case) -> Any:
    def own(y_true, y_pred):
        y_true = tf.cast(y_true, y_pred.dtype)
        return tf.reduce_mean(tf.abs(y_true - y_pred) ** 1.5, axis=-1)

    def own_mean(y_true, y_pred):
        return tf.reduce_mean(own(y_true, y_pred))

    made = {"own": own, "own_mean": own_mean}
    if case.loss == "summed":
        return keras.losses.MeanSquaredError(reduction="sum")
    if case.loss == "huber":
        return keras.losses.Huber(0.5)
    return made.get(case.loss, case.loss)


def _metric(keras: Any, name: str) -> Any:
    class Total(keras.metrics.Metric):
        def __init__(self, name):
            super().__init__(name=name)
            self.total = self.add_weight(name="total", shape=(2,), initializer="zeros")

        def reset_state(self):
            self.total.assign(tf.zeros(2))

        def update_state(self, y_true, y_pred, sample_weight=None):
            y_pred = tf.cast(y_pred, tf.float32)
            self.total.assign_add(tf.stack([tf.reduce_sum(y_pred), tf.reduce_sum(y_pred**2)]))

    class Nested(Total):
        def result(self):
            total = tf.convert_to_tensor(self.total)
            return {"first": total[0], "second": total[1]}

    class Vector(Total):
        def result(self):
            return tf.convert_to_tensor(self.total) * 1.0

    own = {"nested": Nested, "vector": Vector, "weighted": lambda name: None}
    return own[name](name) if name in own else name


_MAKERS = {
    "sequential": _sequential,
    "subclass": _subclass,
    "late_built": _subclass,
    "outputs": _outputs,
    "masked": _masked,
    "recurrent": _masked,
    "embedding": _masked,
    "ragged": _words,
    "sparse": _words,
    "own_step": _own_step,
    "step_without_loss": _step_without_loss,
    "gan": _gan,
}
