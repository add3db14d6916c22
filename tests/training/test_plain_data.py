"""Values that a file restores unchanged.

Generators and objects with variables are not values: their states are restored into them.
"""

import collections
import datetime
import json
import math
import pathlib
import pickle
import random
import sys

import numpy as np
import pytest
import tensorflow as tf

from tfx_perf.training.recovery import plain_data
from tfx_perf.training.recovery.plain_data import packed, unpacked

pytestmark = pytest.mark.each_choice

VALUES = [
    None,
    True,
    2**70,
    -0.5,
    math.inf,
    "word \ud800",
    b"\0bytes",
    1 + 2j,
    pathlib.Path("a/b"),
    datetime.datetime(2024, 2, 29, 12, tzinfo=datetime.timezone.utc),
    datetime.date(2024, 2, 29),
    datetime.time(12, 30),
    datetime.timedelta(days=-1, microseconds=3),
    [1, [2.5, "x"], (None, ())],
    {1: "one", "1": [1], (2, "b"): {None: 3}},
    {"a", 2, (3,)},
    frozenset({1}),
    collections.deque([1, 2], maxlen=2),
    collections.Counter("abca"),
    collections.OrderedDict(b=1, a=2),
    collections.defaultdict(list, {"k": [1]}),
    np.float32(0.1),
    np.datetime64("2024-02-29"),
    bytearray(b"ab"),
    [int, collections.Counter],
]


def again(value):
    """Returns the value after writing it to a file and reading it back."""
    node = packed(value)
    assert node.is_whole
    return unpacked(plain_data.loaded(plain_data.dumped(node)))


def kind(value):
    """Returns a test id; the repr of a set has another order in every process."""
    return type(value).__name__


@pytest.mark.parametrize("value", [v for v in VALUES if not isinstance(v, np.generic)], ids=kind)
def test_a_value_is_restored_with_its_type(value):
    found = again(value)
    assert found == value
    assert type(found) is type(value)


def test_a_deque_and_a_defaultdict_stay_what_they_are():
    assert again(collections.deque([1, 2], maxlen=2)).maxlen == 2
    assert again(collections.defaultdict(list))["new"] == []


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64", "bool", "<U3", "complex64"])
def test_arrays_scalars_and_tensors_are_restored(dtype):
    array = np.ones((2, 3)).astype(tf.bfloat16.as_numpy_dtype if dtype == "bfloat16" else dtype)
    found = unpacked(packed(array))
    assert (found.dtype, found.tobytes()) == (array.dtype, array.tobytes())
    assert unpacked(packed(array[0, 0])).dtype == array.dtype
    if dtype != "<U3":
        assert isinstance(unpacked(packed(tf.constant(array))), tf.Tensor)


def test_a_packed_copy_does_not_change_with_the_value():
    value = {"a": [1], "b": np.zeros(2)}
    node = packed(value)
    value["a"].append(2)
    value["b"][0] = 7
    found = unpacked(node)
    assert found["a"] == [1]
    assert found["b"].tolist() == [0, 0]


def test_a_container_that_others_hold_is_changed_in_place():
    inner, seen, rate, last = [1], {3}, tf.Variable(0.5), collections.deque([5], maxlen=2)
    held = {"inner": inner, "seen": seen, "rates": [rate], "last": last, "gone": 1}
    then = collections.deque([6, 7], maxlen=2)
    node = packed({"inner": [1, 2], "seen": {4}, "rates": [tf.Variable(0.25)], "last": then})
    assert unpacked(node, held) is held
    assert held == {"inner": [1, 2], "seen": {4}, "rates": [rate], "last": then}
    assert held["last"] is last
    assert held["inner"] is inner
    assert held["seen"] is seen
    assert held["rates"][0] is rate and rate.numpy() == 0.25


@pytest.mark.parametrize(
    ("make", "draw"),
    [
        (lambda: random.Random(1), random.Random.random),
        (lambda: np.random.default_rng(1), np.random.Generator.random),
        (lambda: np.random.RandomState(1), np.random.RandomState.random_sample),
        (lambda: np.random.Generator(np.random.MT19937(1)), np.random.Generator.random),
    ],
)
def test_a_generator_continues_where_it_was(make, draw):
    one = make()
    draw(one)
    node = packed(one)
    expected = draw(one)
    other = make()
    assert unpacked(node, other) is other
    assert draw(other) == expected


def test_objects_with_variables_get_their_values_back(keras):
    one, other = (keras.layers.Dense(2) for _ in range(2))
    for layer in (one, other):
        layer.build((None, 3))
    one.variables[0].assign_add(tf.ones((3, 2)))
    assert unpacked(packed(one), other) is other
    for a, b in zip(one.variables, other.variables, strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())


def test_a_state_without_its_object_is_refused(keras):
    metric = keras.metrics.Mean()
    for current in (None, 3, tf.Module()):
        with pytest.raises(ValueError, match="state|saved"):
            unpacked(packed(metric), current)
    with pytest.raises(ValueError, match="not those that were saved"):
        unpacked(packed(tf.Variable([1.0])), tf.Variable([1.0, 2.0]))


def test_a_missing_variable_is_created():
    made = unpacked(packed(tf.Variable([1.0, 2.0], trainable=False, name="mean")))
    assert isinstance(made, tf.Variable)
    assert made.numpy().tolist() == [1.0, 2.0]
    assert not made.trainable


@pytest.mark.parametrize(
    "value",
    [
        object(),
        [open],
        {"a": lambda: 0},
        {object(): 1},
        np.array([object()]),
        collections.defaultdict(lambda: 0),
        tf.data.Dataset.range(3),
        collections.namedtuple("Pair", "a b")(1, 2),  # noqa: PYI024
    ],
)
def test_values_that_cannot_be_restored_are_not_packed(value):
    assert not packed(value).is_whole
    assert packed(value) == packed(value)


@pytest.mark.parametrize("value", [*VALUES, math.nan, np.array([math.nan])], ids=kind)
def test_a_value_equals_itself_and_no_other(value):
    assert packed(value) == packed(value)
    others = [other for other in VALUES if other is not value]
    assert not any(packed(value) == packed(other) for other in others)


class Running:
    def __reduce__(self):
        return RAN.append, (1,)


RAN = []


@pytest.mark.parametrize("value", [Running(), print, pathlib.Path.unlink], ids=kind)
def test_a_pickle_is_not_read(value):
    with pytest.raises(ValueError):  # noqa: PT011 (as JSON says it)
        plain_data.loaded(pickle.dumps(value))
    assert not RAN


ADDRESS = {"bytes": [8]}


@pytest.mark.parametrize(
    "node",
    [
        {},
        {"this": []},
        {"print": ["x"]},
        {"class": ["Random"]},
        {"ndarray": ["O", [1], ADDRESS]},
        {"ndarray": ["O,i4", [1], ADDRESS]},
        {"ndarray": [[["a", "O"]], [1], ADDRESS]},
        {"generic": ["O", [], ADDRESS]},
        {"Tensor": ["O", [1], ADDRESS]},
        {"ndarray": ["<f4", [3], ADDRESS]},
        {"ndarray": ["<f4", [-2, 5], ADDRESS]},
        {"ndarray": ["V0", [2**40], ADDRESS]},
        {"object": [0]},
        {"date": [{"bytes": [4]}]},
        {"tuple": [{"tuple": 3}]},
    ],
    ids=json.dumps,
)
def test_a_crafted_file_is_refused(node):
    with pytest.raises((LookupError, TypeError, ValueError)):
        plain_data.loaded(json.dumps(node).encode() + b"\n" + b"A" * 64)
    assert "this" not in sys.modules


def test_a_deeply_nested_file_is_refused():
    data = b'{"tuple": [[' * 100_000 + b"]]}" * 100_000
    with pytest.raises(RecursionError):
        plain_data.loaded(data)


@pytest.mark.parametrize(
    "make",
    [
        lambda: np.random.Generator(np.random.MT19937(1)),
        lambda: np.random.Generator(np.random.Philox(1)),
        lambda: np.random.RandomState(1),
    ],
)
@pytest.mark.parametrize("place", [-1, 10**6])
def test_a_generator_does_not_read_outside_of_its_state(make, place):
    node = packed(make())
    ((kind, state, own),) = plain_data.loaded(node.states)
    within, name = (state, "buffer_pos") if "buffer_pos" in state else (state["state"], "pos")
    within[name] = place
    crafted = node._replace(states=plain_data.dumped([(kind, state, own)]))
    with pytest.raises(ValueError, match="outside"):
        unpacked(crafted, make())


def test_a_value_that_raises_when_packed_is_read_as_none():
    with tf.Graph().as_default():
        one, other = tf.constant(1), tf.constant(2)
    node = packed([one])
    assert not node.is_whole
    assert unpacked(node) is None
    assert packed(one) == packed(one) != packed(other)


@pytest.mark.parametrize("value", [np.array([(1, 2.0)], "i4,f4"), tf.constant(["word"])])
def test_an_array_without_plain_numbers_is_lost_but_nothing_else(value):
    node = packed([1, value])
    assert not node.is_whole
    assert unpacked(node) == [1, None]


def test_a_change_beside_an_unpackable_value_is_seen():
    held = {"function": open, "best": [1.0]}
    before = packed(held)
    assert before == packed(held)
    held["best"][0] = 0.5
    assert before != packed(held)
    assert unpacked(packed(held)) == {"function": None, "best": [0.5]}
