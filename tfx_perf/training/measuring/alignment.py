"""Whether this device multiplies a model's matrices faster if they are a little larger."""

import dataclasses
import time
from collections.abc import Callable, Sequence

import tensorflow as tf

from tfx_perf import statistics
from tfx_perf.training.record import Misalignment
from tfx_perf.xla.products import Product

# Vector registers, cache lines, blocks of kernels and tensor cores are powers of two.
_UNITS = 64, 16
_MOST_PADDING = 1.25  # of a dimension; more would be another model
_FEWEST = 32  # smaller dimensions are counts of classes and features, which nobody chooses
_LEAST_SHARE = 0.1  # of the model's forward FLOPs
_MOST_PRODUCTS = 3
_LEAST_GAIN = 1.05
_ROUNDS = 7
_BUDGET_SECONDS = 1.5


def misalignments(
    products: Sequence[Product], *, make_timer: Callable[[Product], Callable[[], float]]
) -> tuple[Misalignment, ...]:
    """Returns the products whose rate surely rises by more than 5 % when they are rounded up.

    Args:
        products: of a forward pass.
        make_timer: returns a function that computes a product once and returns the seconds.
    """
    total = sum(product.flops for product in products)
    shapes = {dataclasses.replace(product, layer=""): product for product in reversed(products)}
    large = [
        (product, aligned)
        for product in list(shapes.values())[::-1]
        if product.flops > _LEAST_SHARE * total and (aligned := rounded_up(product)) != product
    ]
    deadline = time.perf_counter() + _BUDGET_SECONDS
    found = []
    for product, aligned in large[:_MOST_PRODUCTS]:
        gain = _gain(product, aligned, make_timer, deadline)
        if gain is not None and gain.surely_above(_LEAST_GAIN):
            found.append(
                Misalignment(
                    layer=product.layer, product=str(product), aligned=str(aligned), gain=gain
                )
            )
    return tuple(found)


def rounded_up(product: Product) -> Product:
    """Returns the product with its width and its contracted dimension rounded up."""
    return dataclasses.replace(
        product, inner=_rounded_up(product.inner), columns=_rounded_up(product.columns)
    )


def timer(product: Product) -> Callable[[], float]:
    """Returns a function that computes a product on this device; it has been called once."""
    left = tf.ones((product.count, product.rows, product.inner), product.dtype)
    right = tf.ones((product.count, product.inner, product.columns), product.dtype)
    multiply = tf.function(lambda: tf.reduce_sum(tf.linalg.matmul(left, right)[:, :1, :1]))

    def run() -> float:
        began = time.perf_counter()
        multiply().numpy()
        return time.perf_counter() - began

    run()
    return run


def _gain(
    product: Product,
    aligned: Product,
    make_timer: Callable[[Product], Callable[[], float]],
    deadline: float,
) -> statistics.Interval | None:
    own, other = make_timer(product), make_timer(aligned)
    rates: tuple[list[float], list[float]] = [], []
    for _ in range(_ROUNDS):
        if time.perf_counter() > deadline:
            return None
        rates[0].append(product.flops / own())
        rates[1].append(aligned.flops / other())
    return statistics.ratio_interval(rates[1], rates[0])


def _rounded_up(size: int) -> int:
    for unit in _UNITS:
        larger = -(-size // unit) * unit
        if size >= _FEWEST and larger <= _MOST_PADDING * size:
            return larger
    return size
