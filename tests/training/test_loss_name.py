"""How the record names a model's loss: `recording`, on both lines of Keras."""

import pytest

from tfx_perf.training import recording


def _own(y_true, y_pred):
    return y_pred


@pytest.mark.parametrize("kind", ["string", "function", "object", "own", "several", "added"])
def test_the_name_is_known_where_it_tells_the_value(keras, kind):
    name = "binary_crossentropy"
    loss = {
        "function": keras.losses.binary_crossentropy,
        "object": keras.losses.BinaryCrossentropy(),
        "own": _own,
        "several": [name],
    }.get(kind, name)
    regularizer = "l2" if kind == "added" else None
    model = keras.Sequential([keras.layers.Dense(1, kernel_regularizer=regularizer)])
    model.build((None, 2))
    model.compile(loss=loss)
    known = name if kind in ("string", "function", "object") else ""
    assert recording.loss_name(model) == known
