"""Whatever code does with a dataset, before, in or after a `fit`, it gets the default's values.

A candidate knows nothing of who reads its dataset: a second model, an evaluation by groups or a
look at one batch may read features that the first `fit` does not.
"""

import importlib

import numpy as np
import pytest
import tensorflow as tf

from tfx_perf.input import apply, candidates

pytestmark = pytest.mark.each_choice

NAMES = [*(name for name in candidates.CANDIDATES if name != "default"), "columns+autotune"]


def values(batches):
    return [part for batch in batches for part in tf.nest.flatten(batch)]


def model_of(keras, width):
    inputs = keras.Input((width,))
    model = keras.Model(inputs, keras.layers.Dense(1, kernel_initializer="ones")(inputs))
    model.compile(optimizer=keras.optimizers.SGD(1e-6), loss="mse")
    return model


def only(name):
    return lambda features, label: (tf.cast(features[name], tf.float32), label)


def second_fit(dataset, keras):
    model_of(keras, 1).fit(dataset.map(only("number")), verbose=0)
    second, data = model_of(keras, 2), dataset.map(only("pair"))
    history = second.fit(data, validation_data=data, verbose=0).history
    return [history["loss"], history["val_loss"], *second.get_weights()]


def evaluated(dataset, keras):
    return [model_of(keras, 2).evaluate(dataset.map(only("pair")), verbose=0)]


def predicted(dataset, keras):
    return [model_of(keras, 2).predict(dataset.map(only("pair")), verbose=0)]


def adapted(dataset, keras):
    layer = keras.layers.Normalization(axis=-1)
    layer.adapt(dataset.map(lambda features, label: features["pair"]))
    return [layer.mean, layer.variance]


def errors_by_group(dataset, keras):
    """Groups what a trained model gets wrong by a feature that it does not read."""
    model = model_of(keras, 1)
    model.fit(dataset.map(only("number")), verbose=0)
    found = {}
    for features, label in dataset:
        wrong = model(tf.cast(features["number"], tf.float32)) - tf.cast(label, tf.float32)
        for city, one in zip(features["city"].numpy().ravel(), wrong.numpy().ravel(), strict=True):
            found.setdefault(city, []).append(one)
    return [sorted(found), *(found[city] for city in sorted(found))]


USES = {
    "by_hand": lambda dataset, _: values(dataset),
    "take": lambda dataset, _: values(dataset.take(1)),
    "next": lambda dataset, _: values([next(iter(dataset))]),
    "numpy": lambda dataset, _: values(dataset.as_numpy_iterator()),
    "map": lambda dataset, _: values(dataset.map(lambda features, label: features["city"])),
    "filter": lambda dataset, _: values(
        dataset.unbatch().filter(lambda features, label: features["pair"][0] > 5)
    ),
    "group": lambda dataset, _: values(
        dataset.unbatch().group_by_window(
            lambda features, label: tf.strings.to_hash_bucket_fast(features["city"], 3),
            lambda key, rows: rows.batch(4),
            window_size=4,
        )
    ),
    "second_fit": second_fit,
    "evaluate": evaluated,
    "predict": predicted,
    "adapt": adapted,
    "errors_by_group": errors_by_group,
}


@pytest.mark.usefixtures("quick_traces")
@pytest.mark.parametrize("line", ["keras", "tf_keras"])
@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("name", NAMES)
def test_every_use_gets_the_defaults_values(line, name, use, make_source, caplog):
    source = make_source(num_epochs=1, shuffle=False)
    factory = apply.serving(
        candidates.make(name),
        source.default_factory,
        memory_budget_bytes=2**30,
        parser_for=lambda schema, options: source.parse,
    )
    found, expected = (
        USES[use](build([*source.file_patterns], source.options, source.schema),
                  importlib.import_module(line))
        for build in (factory, source.default_factory)
    )  # fmt: skip
    assert "default reads" not in caplog.text
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)
