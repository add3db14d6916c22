"""Every candidate keeps to the semantics of TFXIO's default."""

import numpy as np
import pytest
import tensorflow as tf
from record_data import RAGGED_SCHEMA, SPARSE_SCHEMA

from tfx_perf.input import candidate, candidates, fingerprint
from tfx_perf.input.limits import Limits

AMPLE = Limits(memory_bytes=2**30)
OTHERS = [name for name in candidates.CANDIDATES if name != "default"]
every_candidate = pytest.mark.parametrize("name", OTHERS)


def build(name, source, limits=AMPLE):
    return candidates.make(name).build(source, limits=limits)


def numbers(dataset):
    """The examples' numbers, batch by batch."""
    return [batch[0]["number"].numpy().ravel().tolist() for batch in dataset]


def flat(batches):
    return [number for batch in batches for number in batch]


@every_candidate
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_epochs": 1},
        {"num_epochs": 1, "drop_final_batch": True},
        {"num_epochs": 3, "shuffle": False},
        {"label_key": None},
        {"batch_size": 300},
    ],
)
def test_element_spec_is_the_defaults(name, options, make_source):
    source = make_source(**options)
    assert build(name, source).element_spec == source.element_spec


@every_candidate
@pytest.mark.parametrize("batch_size", [1, 7, 230, 1000])
def test_one_epoch_holds_the_same_examples(name, batch_size, make_source):
    source = make_source(num_epochs=1, batch_size=batch_size)
    dataset = build(name, source)
    assert sorted(flat(numbers(dataset))) == list(range(230))
    assert fingerprint.digest(dataset) == fingerprint.digest(source.default())


@every_candidate
@pytest.mark.parametrize("drop_final_batch", [True, False])
def test_batches_span_epochs_as_the_defaults_do(name, drop_final_batch, make_source):
    source = make_source(num_epochs=2, drop_final_batch=drop_final_batch)
    found, expected = numbers(build(name, source)), numbers(source.default())
    assert [len(batch) for batch in found] == [len(batch) for batch in expected]
    if not drop_final_batch:
        assert sorted(flat(found)) == sorted(2 * list(range(230)))
    assert sorted(flat(found)[:230]) == list(range(230))


@every_candidate
@pytest.mark.parametrize("num_epochs", [None, 2])
def test_cardinality_is_the_defaults(name, num_epochs, make_source):
    source = make_source(num_epochs=num_epochs)
    found = build(name, source)
    assert found.cardinality() == source.default().cardinality()
    if num_epochs is None:
        assert len(numbers(found.take(60))) == 60


@every_candidate
def test_unshuffled_order_is_the_defaults(name, make_source):
    source = make_source(num_epochs=2, shuffle=False)
    assert numbers(build(name, source)) == numbers(source.default())


@every_candidate
def test_order_differs_by_epoch_and_by_iterator(name, make_source):
    dataset = build(name, make_source(num_epochs=2))
    first, again = flat(numbers(dataset)), flat(numbers(dataset))
    assert first[:230] != first[230:]
    assert first != again
    assert first[:230] != sorted(first[:230])


@every_candidate
def test_users_repeat_shuffles_anew(name, make_source):
    found = flat(numbers(build(name, make_source(num_epochs=1)).repeat(2)))
    assert found[:230] != found[230:]
    assert sorted(found[:230]) == list(range(230))


@every_candidate
def test_seed_makes_the_order_reproducible(name, make_source):
    def order(seed):
        return numbers(build(name, make_source(num_epochs=2, shuffle_seed=seed)))

    assert order(1) == order(1)
    assert order(1) != order(2)


@pytest.mark.parametrize("name", ["block_reader", "serialized_cache"])
def test_sparse_features_are_the_defaults(name, make_source):
    source = make_source(schema=SPARSE_SCHEMA, num_epochs=1, shuffle=False)
    assert build(name, source).element_spec == source.element_spec
    for (found, _), (expected, _) in zip(build(name, source), source.default(), strict=True):
        np.testing.assert_array_equal(
            tf.sparse.to_dense(found["words"]), tf.sparse.to_dense(expected["words"])
        )


def test_columns_refuses_sparse_features(make_source):
    with pytest.raises(candidate.NotApplicable, match="sparse"):
        build("columns", make_source(schema=SPARSE_SCHEMA))


@every_candidate
@pytest.mark.parametrize("options", [{"num_epochs": 1}, {}])
def test_ragged_features_are_the_defaults(name, options, make_source):
    source = make_source(schema=RAGGED_SCHEMA, shuffle=False, **options)
    assert isinstance(source.element_spec[0]["words"], tf.RaggedTensorSpec)
    dataset = build(name, source)
    assert dataset.element_spec == source.element_spec
    pairs = zip(dataset.take(15), source.default().take(15), strict=True)
    for (found, _), (expected, _) in pairs:
        assert found["words"].to_list() == expected["words"].to_list()


@pytest.mark.parametrize("name", ["block_reader", "serialized_cache"])
def test_needs_a_parser(name, make_source):
    source = make_source()
    unparsed = type(source)(source.file_patterns, source.default_factory, source.options)
    with pytest.raises(candidate.NotApplicable, match=r"tf\.Examples"):
        build(name, unparsed)


@every_candidate
def test_memory_limit(name, make_source):
    with pytest.raises(candidate.NotApplicable, match="the budget is 100 B"):
        build(name, make_source(), limits=Limits(memory_bytes=100))


@pytest.mark.parametrize("name", ["columns", "serialized_cache"])
def test_loads_once_for_all_batch_sizes(name, make_source):
    kind = candidates.make(name)
    list(kind.build(make_source(num_epochs=1), limits=AMPLE))
    held_bytes = kind.held_bytes
    assert held_bytes > 230 * 8
    # No memory left: it would have to refuse if it loaded again.
    found = kind.build(make_source(num_epochs=1, batch_size=50), limits=Limits(memory_bytes=0))
    assert [len(batch) for batch in numbers(found)] == [50, 50, 50, 50, 30]
    assert kind.held_bytes == held_bytes


@every_candidate
def test_under_a_distribution_strategy(name, make_source):
    strategy = tf.distribute.MirroredStrategy(["/cpu:0"])
    with strategy.scope():
        dataset = strategy.experimental_distribute_dataset(build(name, make_source()).repeat())
    features, label = next(iter(dataset))
    assert features["pair"].shape == (16, 2)
    assert label.shape == (16, 1)
