"""Which trainings are the same: after an edit of the code not, but in another process."""

import functools
import json

import model_cases
import pytest
import tensorflow as tf

from tfx_perf.config import PerfConfig
from tfx_perf.core import cache_key, interception
from tfx_perf.training.loop.fit_loop import FitLoop
from tfx_perf.training.recovery import training_fingerprint

pytestmark = pytest.mark.one_case

# A user's module; each edit replaces a piece of it.
SOURCE = """
import tensorflow as tf

FACTOR = 2.0

def activation(x):
    return tf.nn.relu(x) * FACTOR

def loss(y, y_pred):
    return tf.reduce_mean(tf.square(y - y_pred))

class MyLoss(keras.losses.Loss):
    def __init__(self, alpha=1.0):
        super().__init__()
        self.alpha = alpha
    def call(self, y, y_pred):
        return self.alpha * tf.reduce_mean(tf.abs(y - y_pred), axis=-1)

class MyMetric(keras.metrics.Mean):
    def update_state(self, y, y_pred, sample_weight=None):
        return super().update_state(y - y_pred)

class MyLayer(keras.layers.Layer):
    def call(self, x):
        return x * 2.0

class MyOptimizer(keras.optimizers.SGD):
    def apply_gradients(self, *args, **kwargs):
        return super().apply_gradients(*args, **kwargs)

class MyRate(keras.optimizers.schedules.LearningRateSchedule):
    def __call__(self, step):
        return 0.1 / (1.0 + tf.cast(step, tf.float32))

class MyModel(keras.Model):
    def train_step(self, data):
        return super().train_step(data)

def model():
    inputs = keras.Input((4,))
    x = keras.layers.Dense(8, activation=activation)(inputs)
    x = keras.layers.Dense(8, activation="relu")(x)
    x = MyLayer()(keras.layers.Lambda(lambda x: x + 1.0)(x))
    x = keras.layers.Dropout(0.1)(x)
    a, b = keras.layers.Dense(4)(x), keras.layers.Dense(4, kernel_regularizer="l2")(x)
    model = MyModel(inputs, keras.layers.Dense(1)(keras.layers.Subtract()([a, b])))
    model.compile(
        optimizer=MyOptimizer(MyRate(), momentum=0.5, nesterov=False),
        loss=given_loss,
        metrics=[MyMetric(), "mae"],
        loss_weights=[1.0],
    )
    return model

def made_late():
    class Late(keras.Model):
        def __init__(self, width):
            super().__init__()
            self.hidden = [keras.layers.Dense(width), MyLayer()]
            self.last = keras.layers.Dense(1)
            self._share = 0.5
        def call(self, x):
            for layer in self.hidden:
                x = layer(x)
            return self.last(x) * self._share
    model = Late(8)
    model.compile(optimizer="adam", loss=given_loss)
    return model
"""
EDITS = [
    ("FACTOR = 2.0", "FACTOR = 3.0"),
    ("tf.nn.relu(x)", "tf.nn.elu(x)"),
    ("self.alpha * tf", "2 * self.alpha * tf"),
    ("update_state(y - y_pred)", "update_state(y_pred)"),
    ("return x * 2.0", "return x * 3.0"),
    ("apply_gradients(*args, **kwargs)\n", "apply_gradients(args[0])\n"),
    ("train_step(data)\n", "train_step(list(data))\n"),
    ('activation="relu"', 'activation="tanh"'),
    ("x + 1.0", "x + 2.0"),
    ("Dropout(0.1)", "Dropout(0.2)"),
    ("Subtract()([a, b])", "Subtract()([b, a])"),
    ('"l2"', '"l1"'),
    ("0.1 / (1.0", "0.2 / (1.0"),
    ("momentum=0.5", "momentum=0.6"),
    ("nesterov=False", "nesterov=True"),
    (', "mae"]', ', "mse"]'),
    ("loss_weights=[1.0]", "loss_weights=[2.0]"),
]
LATE_EDITS = [
    ("self._share = 0.5", "self._share = 0.25"),
    ("return self.last(x) *", "return 2 * self.last(x) *"),
    ("Late(8)", "Late(9)"),
    ("return x * 2.0", "return x * 3.0"),
]
# Why a training resumes from a checkpoint despite a different value of these.
UNCOUNTED = {
    "it says what trials look for; a training goes on with the checkpoint's plan":
        "compilation.enabled training.tuning_seconds training.steps_per_execution "
        "training.excluded_speedups training.loss_tolerance training.margin",
    "it says what is made of the trained model": "compilation.aot_signature",
    "what it names is left out on either side": "training.resume_ignores",
    "the model's layers have the policy in their settings": "training.precision",
    "it changes no number": "training.gradient_checkpointing",
    "it says where and when there are checkpoints":
        "training.checkpoint_folder training.checkpoint_every_steps "
        "training.checkpoint_every_seconds",
    "it says when a training goes back": "training.max_loss training.max_rollbacks",
    "any number of replicas goes on; the numbers are those of one device":
        "distribution.strategy distribution.workers distribution.job",
    "it says where layers are": "distribution.device_memory_bytes",
    "sums are the same to their rounding": "distribution.collective_timeout_seconds",
    "their checkpoints are of another strategy's model": "distribution.parameter_servers",
    "it says how workers are started, and started again":
        "distribution.restarts distribution.start_timeout_seconds "
        "distribution.heartbeat_timeout_seconds",
}  # fmt: skip
LOSSES = ["loss", "MyLoss()", "MyLoss(2.0)", "'mse'", "'mae'", "keras.losses.Huber()"]


def names_of(keras, source=SOURCE, loss="loss"):
    names = {"keras": keras, "__name__": "user_module"}
    exec(compile(source, "user_module.py", "exec"), names)
    names["given_loss"] = eval(loss, names)
    return names


def of_call(call):
    loop = FitLoop(call)
    found = training_fingerprint.of(
        call, keras_api=loop.keras_api, train_length=loop.train_length, settings=PerfConfig()
    )
    return found.fields


def of_model(model, **arguments):
    call = interception.capture_fit(lambda: model.fit(model_cases.regression(), **arguments))
    return of_call(call)


def of(keras, *edit, make="model", loss="loss", **arguments):
    source = SOURCE
    if edit:
        assert source.count(edit[0]) == 1, edit
        source = source.replace(*edit)
    return of_model(names_of(keras, source, loss)[make](), **arguments)


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit[1].strip())
def test_an_edit_is_another_training(keras, edit):
    assert of(keras, loss="MyLoss()") != of(keras, *edit, loss="MyLoss()")


@pytest.mark.parametrize("edit", LATE_EDITS, ids=lambda edit: edit[1])
def test_an_edit_of_a_model_made_late_is_another_training(keras, edit):
    assert of(keras, make="made_late") != of(keras, *edit, make="made_late")


STAGES = {
    "as it was": lambda data: data,
    "shuffled": lambda data: data.shuffle(10, seed=1),
    "shuffled more": lambda data: data.shuffle(20, seed=1),
    "scaled": lambda data: data.map(lambda x, y: (x, y * 2.0)),
    "scaled more": lambda data: data.map(lambda x, y: (x, y * 3.0)),
    "scaled by a tensor": lambda data: scaled_by(tf.constant(2.0), data),
    "scaled more by a tensor": lambda data: scaled_by(tf.constant(3.0), data),
    "repeated": lambda data: data.repeat(2),
}


def scaled_by(factor, data):
    return data.map(lambda x, y: (x, y * factor))


def test_other_data_are_another_training(keras):
    model = names_of(keras)["model"]()

    def of_data(stage):
        data = stage(model_cases.regression())
        call = interception.capture_fit(lambda: model.fit(data, steps_per_epoch=3))
        return json.dumps(of_call(call))

    assert len({of_data(stage) for stage in STAGES.values()}) == len(STAGES)
    assert of_data(lambda data: data.prefetch(2)) == of_data(lambda data: data)


def test_every_loss_and_class_weight_is_another_training(keras):
    found = [of(keras, loss=loss) for loss in LOSSES]
    found += [of(keras, class_weight={0: 1.0}), of(keras, class_weight={0: 2.0})]
    assert len({json.dumps(one) for one in found}) == len(found)


def test_the_edited_class_is_named(keras):
    changes = cache_key.differences(of(keras), of(keras, *EDITS[4]))
    assert "code of MyLayer" in changes
    changes = cache_key.differences(of(keras, loss="'mse'"), of(keras, loss="'mae'"))
    assert changes == {"loss": ('"mse"', '"mae"')}


@pytest.mark.parametrize("make", ["model", "made_late"])
def test_a_second_model_of_the_same_code_is_the_same_training(keras, make):
    expected = of(keras, make=make)
    for _ in range(11):  # including numbers of two digits
        keras.layers.Dense(1)
    assert of(keras, make=make) == expected


def test_a_method_of_the_instance_counts(keras):
    found = []
    for factor in 1.0, 1.0, 2.0:
        model = model_cases.dense(keras)
        model.train_step = lambda data, factor=factor: {"loss": factor}
        found.append(of_model(model))
    assert found[0] == found[1]
    assert found[0] != found[2]
    assert found[0] != of_model(model_cases.dense(keras))


def test_a_fit_does_not_change_the_fingerprint_of_the_next_one(keras):
    model = names_of(keras)["made_late"]()
    model.fit(model_cases.regression(), verbose=0)
    expected = of_model(model)
    model.fit(model_cases.regression(), verbose=0)
    model.evaluate(model_cases.regression(), verbose=0)
    assert of_model(model) == expected


def test_an_indescribable_object_ends_nothing(keras):
    class Odd:
        def get_config(self):
            raise ZeroDivisionError

        def __getattr__(self, name):
            raise ZeroDivisionError

    model, odd = model_cases.subclass(keras), Odd()
    model.compile(optimizer="sgd", loss=lambda y, y_pred: odd)
    model.train_step = functools.partial(model.train_step, odd)
    assert of_model(model) == of_model(model)


def test_each_setting_counts_or_has_a_reason_not_to():
    settings = PerfConfig()
    found = {
        f"{section}.{name}"
        for section in ("compilation", "training", "distribution")
        for name in type(getattr(settings, section)).model_fields
    }
    assert found - set(training_fingerprint.SETTINGS) == set(" ".join(UNCOUNTED.values()).split())
