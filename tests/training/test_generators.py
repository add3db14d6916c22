"""The states of random generators survive JSON, and then draw the numbers they would have drawn."""

import json
import random

import numpy as np
import pytest
import tensorflow as tf

from tfx_perf.tf_internals import random_state
from tfx_perf.training.recovery import generators


def drawn():
    order = tf.data.Dataset.range(20).shuffle(20)  # asks TensorFlow for a seed
    eagerly = [float(tf.random.normal([])) for _ in range(2)]
    return random.gauss(0, 1), np.random.normal(), list(order.as_numpy_iterator()), eagerly


@pytest.fixture(autouse=True)
def seeds():
    random.seed(1)
    np.random.seed(2)
    tf.random.set_seed(3)


def test_a_saved_state_draws_the_same_again():
    drawn()
    states = json.loads(json.dumps(generators.states()))
    expected = [drawn(), drawn()]
    generators.restore(states)
    assert [drawn(), drawn()] == expected


def test_draws_inside_change_nothing_outside_even_after_an_error():
    drawn()
    states = generators.states()
    expected = [drawn(), drawn()]
    generators.restore(states)
    with generators.kept():
        drawn()
    found = [drawn()]
    with pytest.raises(ZeroDivisionError), generators.kept():
        tf.random.set_seed(4)
        drawn()
        raise ZeroDivisionError
    assert [*found, drawn()] == expected


def test_without_a_seed_no_state_of_tensorflow_is_kept(monkeypatch):
    monkeypatch.setattr(random_state, "operation_seeds", lambda: None)
    with generators.kept():
        expected = random.random(), np.random.random()
    assert (random.random(), np.random.random()) == expected


@pytest.mark.parametrize("place", [-1, 10**9])
def test_a_position_outside_of_the_state_is_refused(place):
    states = generators.states()
    name, keys, _, *rest = states["numpy"]
    with pytest.raises(ValueError, match="outside"):
        generators.restore({**states, "numpy": [name, keys, place, *rest]})
