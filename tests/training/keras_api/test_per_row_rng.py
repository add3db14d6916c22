"""Layers draw for some rows what they draw of them for the whole batch, whatever Keras they are of.

`random_layers` has those of tf_keras do so.
"""

import numpy as np
import pytest
import tensorflow as tf

from tfx_perf.core import errors
from tfx_perf.distribute import as_one_device
from tfx_perf.training.keras_api import either_keras, per_row_rng

pytestmark = pytest.mark.each_choice

LAYERS = {
    "Dropout": {"rate": 0.5},
    "SpatialDropout1D": {"rate": 0.5},
    "GaussianDropout": {"rate": 0.5},
    "GaussianNoise": {"stddev": 1.0},
    "AlphaDropout": {"rate": 0.5},
    "LSTM": {"units": 3, "dropout": 0.5, "recurrent_dropout": 0.5, "unroll": True},
    "RandomTranslation": {"height_factor": 0.5, "width_factor": 0.5},
    "RandomZoom": {"height_factor": 0.5, "width_factor": 0.5},
}
ROWS = 6
PARTS = [(0, 2), (2, 2), (4, 2), (0, 6), (5, 1)]


@pytest.mark.parametrize("rows_are_known", [True, False])
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_draws_for_some_rows_what_it_draws_for_all(keras, name, rows_are_known):
    shape = (8, 8, 1) if name.startswith("Random") else (4, 5)
    layer = getattr(keras.layers, name)(**LAYERS[name])
    model = keras.Sequential([keras.layers.Input(shape), layer])
    model.compile("sgd", "mse")
    keras_api = either_keras.api_of(model)
    batch = np.random.default_rng(0).normal(size=(ROWS, *shape)).astype("float32")
    count = None if rows_are_known else tf.shape

    def drawn(begin, rows):
        signature = tf.TensorSpec([rows if rows_are_known else None, *shape])

        @tf.function(input_signature=[signature], autograph=False)
        def draw(part):
            size = rows if count is None else count(part)[0]
            place = per_row_rng.Rows(begin, size, ROWS)
            with per_row_rng.of_rows(lambda: place):
                return model(part, training=True)

        for seed, value in zip(keras_api.seeds(model), first_seeds, strict=True):
            seed.assign(value)
        return draw(batch[begin : begin + rows]).numpy()

    with as_one_device.drawing_by_rows(model, keras_api):
        first_seeds = [seed.numpy() for seed in keras_api.seeds(model)]
        whole = drawn(0, ROWS)
        assert np.abs(whole - drawn(0, ROWS)).max() < 1e-6, "the same seeds give the same numbers"
        for begin, rows in PARTS:
            part = drawn(begin, rows)
            np.testing.assert_allclose(part, whole[begin : begin + rows], atol=1e-6)
    plain = model(batch, training=True).numpy()
    assert np.abs(plain - model(batch, training=True).numpy()).max() > 1e-3


def test_another_step_draws_other_numbers(keras):
    layer = keras.layers.Dropout(0.5)
    model = keras.Sequential([keras.layers.Input((100,)), layer, keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    ones = np.ones((1, 100), "float32")
    with as_one_device.drawing_by_rows(model, either_keras.api_of(model)):
        found = [layer(ones, training=True).numpy() for _ in range(2)]
        model.fit(ones, ones[:, :1], verbose=0)
        found.append(layer(ones, training=True).numpy())
    assert len({each.tobytes() for each in found}) == 3


def test_a_train_step_of_ones_own_cannot_say_which_rows_it_computes(keras):
    class Own(keras.Model):
        def train_step(self, data):
            return {}

    inputs = keras.Input((1,))
    model = Own(inputs, keras.layers.Dense(1)(inputs))
    model.compile("sgd", "mse")
    with (
        pytest.raises(errors.UserError, match=r"Received: .*sharding_invariant_random=True"),
        as_one_device.drawing_by_rows(model, either_keras.api_of(model)),
    ):
        pass
