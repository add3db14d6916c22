"""Products that would run faster if they were larger: which are looked at, and when it is said."""

import pytest
import tensorflow as tf

from tfx_perf.training.measuring import alignment
from tfx_perf.xla import hlo, products
from tfx_perf.xla.products import Product


def product(rows=256, inner=512, columns=512, *, count=1, layer="a"):
    return Product(
        count=count, rows=rows, inner=inner, columns=columns, dtype="float32", layer=layer
    )


@pytest.mark.parametrize(
    ("size", "expected"), [(1000, 1024), (1024, 1024), (250, 256), (100, 112), (33, 33), (10, 10)]
)
def test_dimensions_are_rounded_up_by_little(size, expected):
    assert alignment.rounded_up(product(inner=size, columns=512)).inner == expected
    assert alignment.rounded_up(product(inner=512, columns=size)).columns == expected


def planted(rates):
    """Returns timers by width, in FLOPs a second."""
    return lambda product: lambda: product.flops / rates[product.columns]


def test_only_a_clear_gain_is_told():
    found = alignment.misalignments(
        [product(columns=1000)], make_timer=planted({1000: 1e9, 1024: 1.3e9})
    )
    assert [item.layer for item in found] == ["a"]
    assert found[0].gain.value == pytest.approx(1.3)
    assert found[0].product == "(256 x 512) (512 x 1,000)"
    assert found[0].aligned == "(256 x 512) (512 x 1,024)"
    for little in (1.04, 0.9):
        assert not alignment.misalignments(
            [product(columns=1000)], make_timer=planted({1000: 1e9, 1024: little * 1e9})
        )


def test_small_parts_and_aligned_ones_are_not_timed():
    def refuse(product):
        raise AssertionError(product)

    aligned, small = product(columns=1024), product(rows=1, columns=1000)
    assert alignment.misalignments([aligned, small], make_timer=refuse) == ()


def test_a_real_product_takes_time():
    seconds = alignment.timer(product())()
    assert 1e-6 < seconds < 60


def test_products_of_a_training_step(keras):
    batch, length, width, heads, key = 2, 6, 40, 4, 10
    inputs = keras.Input((length, width))
    attended = keras.layers.MultiHeadAttention(num_heads=heads, key_dim=key)(inputs, inputs)
    outputs = keras.layers.Dense(70, name="head")(attended)
    model = keras.Model(inputs, outputs)
    model.compile(optimizer="sgd", loss="mse")
    data = (tf.zeros((batch, length, width)), tf.zeros((batch, length, 70)))
    module = hlo.model_step_hlo(model, data, optimized=False)
    found = products.forward_products(module)
    shapes = [(item.count, item.rows, item.inner, item.columns) for item in found]
    assert shapes[0] == (1, batch * length, width, 70)
    assert "head" in found[0].layer
    assert shapes.count((1, batch * length, width, heads * key)) == 4  # in and out
    # Scores and their mix; which operand stands left is the line's own affair.
    scores = [tuple(sorted(shape[1:])) for shape in shapes if shape[0] == batch * heads]
    assert scores == [tuple(sorted((length, length, key)))] * 2
