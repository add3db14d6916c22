"""Shuffle quality against what theory says, and the verdict on weak shuffles."""

import math

import numpy as np
import pytest
import tensorflow as tf

from tfx_perf.input.shuffle import Permutation, ShuffleQuality, file_order_deviation

pytestmark = pytest.mark.each_choice

COUNT = 12_000
IN_ORDER = np.random.default_rng(1).permutation(COUNT).astype(np.int64)  # fingerprints


def quality(orders, *, batch_size=40, in_order=IN_ORDER):
    """The quality of epochs, each given as the places of its examples in `in_order`."""
    unshuffled = Permutation(in_order)
    ratios = [unshuffled.ratios(in_order[order], batch_size=batch_size) for order in orders]
    return ShuffleQuality.of_epochs(ratios, example_count=unshuffled.example_count)


def full(*, epochs=4, count=COUNT, seed=2):
    random = np.random.default_rng(seed)
    return [random.permutation(count) for _ in range(epochs)]


def blocks(size, *, epochs=4, count=COUNT):
    """Every example stays within its block of `size`."""
    random = np.random.default_rng(3)
    places = np.arange(count).reshape(-1, size)
    return [random.permuted(places, axis=1).ravel() for _ in range(epochs)]


def buffered(size, *, epochs=2, count=COUNT):
    """Imitates tf.data's shuffle buffer of `size`."""
    dataset = tf.data.Dataset.range(count).shuffle(size, seed=4).batch(count)
    return [next(dataset.as_numpy_iterator()) for _ in range(epochs)]


def by_file(files, *, epochs=4, count=COUNT, seed=5):
    """Only the order of the files is random."""
    random = np.random.default_rng(seed)
    places = np.arange(count).reshape(files, -1)
    return [places[random.permutation(files)].ravel() for _ in range(epochs)]


def shortfall(found, default, *, files=1):
    deviation = file_order_deviation([1] * files)
    return quality(found).shortfall(quality(default), file_order_deviation=deviation)


@pytest.mark.parametrize("batch_size", [1, 7, 40, 5000])
def test_full_shuffle_is_one_and_no_shuffle_is_zero(batch_size):
    found = quality(full(), batch_size=batch_size)
    assert found.displacement_ratio == pytest.approx(1, abs=0.02)
    assert found.mixing_ratio == pytest.approx(1, abs=0.02)
    assert (found.example_count, found.epochs) == (COUNT, 4)
    none = quality([np.arange(COUNT)], batch_size=batch_size)
    assert (none.displacement_ratio, none.mixing_ratio) == (0, pytest.approx(0, abs=1e-9))


@pytest.mark.parametrize("size", [400, 2000])
def test_blocks_are_as_theory_says(size):
    found = quality(blocks(size), batch_size=40)
    footrule = (size**2 - 1) / (3 * size) / ((COUNT**2 - 1) / (3 * COUNT))
    assert found.displacement_ratio == pytest.approx(footrule, rel=0.05)
    # Two of n examples in a row are (n + 1) / 3 apart.
    assert found.mixing_ratio == pytest.approx((size - 40) / (COUNT - 40), rel=0.05)


def test_shuffle_buffer_is_as_theory_says():
    # An example waits a geometric time of mean w, whose mean absolute deviation is 2w/e.
    found = quality(buffered(300))
    assert found.displacement_ratio == pytest.approx(2 * 300 / math.e / (COUNT / 3), rel=0.05)


def test_file_order_alone_moves_but_does_not_mix():
    found = quality(by_file(100, epochs=20))
    assert found.displacement_ratio == pytest.approx(1, abs=0.05)
    assert found.mixing_ratio == pytest.approx(0, abs=1e-9)


def test_one_batch_with_everything_is_mixed():
    assert quality([np.arange(COUNT)], batch_size=COUNT).mixing_ratio == 1


def test_examples_that_occur_twice_are_left_out():
    in_order = np.concatenate([np.arange(300), np.full(200, 7)])
    found = quality(full(count=500), in_order=in_order, batch_size=20)
    assert found.example_count == 299
    assert found.displacement_ratio == pytest.approx(1, abs=0.15)
    assert found.mixing_ratio == pytest.approx(1, abs=0.1)
    none = quality([np.arange(500)], in_order=in_order, batch_size=20)
    assert (none.displacement_ratio, none.mixing_ratio) == (0, pytest.approx(0, abs=1e-9))


@pytest.mark.parametrize(
    ("in_order", "tells"),
    [
        (np.arange(100), True),
        (np.arange(99), False),
        (np.concatenate([np.arange(200), np.full(199, 7)]), False),
        (np.concatenate([np.arange(200), np.full(198, 7)]), True),
        (np.empty(0, np.int64), False),
    ],
)
def test_too_few_that_differ_tell_nothing(in_order, tells):
    assert Permutation(in_order).tells is tells


@pytest.mark.parametrize(("files", "expected"), [([1, 1], 0.75), ([9, 1], 0.27), ([1], 0), ([], 0)])
def test_file_order_deviation_is_as_theory_says(files, expected):
    # Two files of shares p and q swap or not: displacement 2pq or 0, over 1/3.
    assert file_order_deviation(files) == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("files", [2, 3, 100])
@pytest.mark.parametrize("epochs", [1, 4])
def test_planted_weak_shuffles_are_found(files, epochs):
    default = full(epochs=epochs)
    assert "mixing" in shortfall(by_file(files, epochs=epochs), default, files=files)
    assert "ratio" in shortfall(buffered(100, epochs=epochs), default, files=files)
    frozen_files = blocks(COUNT // 100, epochs=epochs)
    shuffled_files = [
        order[at] for order, at in zip(frozen_files, by_file(100, epochs=epochs), strict=True)
    ]
    assert "displacement" in shortfall(frozen_files, shuffled_files, files=100)


@pytest.mark.parametrize("epochs", [1, 2, 16])
@pytest.mark.parametrize("files", [1, 2, 3, 10])
def test_as_good_a_shuffle_is_never_dropped_by_chance(files, epochs):
    """Epochs of few files differ by luck, which must not count against a candidate."""
    count = 120

    def shuffled_files(seed):
        orders = by_file(files, epochs=epochs, count=count, seed=seed)
        random = np.random.default_rng(seed)
        return [random.permuted(order.reshape(files, -1), axis=1).ravel() for order in orders]

    def of(orders):
        return quality(orders, in_order=np.arange(count))

    deviation = file_order_deviation([1] * files)
    for seed in range(60):
        default = of(shuffled_files(seed))
        for found in (full(epochs=epochs, count=count, seed=seed), shuffled_files(seed + 1000)):
            assert not of(found).shortfall(default, file_order_deviation=deviation)


def test_one_epoch_is_enough_of_many_examples_in_one_file():
    one, few = full(epochs=1), full(epochs=8, count=200)
    assert quality(one).is_certain(file_order_deviation=file_order_deviation([1]))
    assert not quality(one).is_certain(file_order_deviation=file_order_deviation([1] * 4))
    found = quality(few, in_order=np.arange(200, dtype=np.int64))
    assert not found.is_certain(file_order_deviation=0.0)
    assert not shortfall(full(epochs=1), full(epochs=1, seed=3))
    assert shortfall(blocks(300, epochs=1), full(epochs=1)).startswith("it shuffles worse")
