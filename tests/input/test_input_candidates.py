"""Every candidate keeps to the semantics of TFXIO's default: `block_reader`, `columns`."""

import json
import pathlib
import re

import psutil
import pytest
import record_data
import tensorflow as tf
from record_data import SPARSE_SCHEMA

from tests import processes
from tfx_perf.input import candidates
from tfx_perf.input.candidates import batching, candidate
from tfx_perf.input.candidates import table as table_lib
from tfx_perf.input.candidates.columns import row_numbers
from tfx_perf.input.candidates.limits import Limits
from tfx_perf.tf_internals import iterators

pytestmark = pytest.mark.each_choice

AMPLE = Limits(memory_bytes=2**30)
AROUND = [f"{base}+{candidates.Autotune.kind}" for base in candidates.CANDIDATES]
OTHERS = [*(name for name in candidates.CANDIDATES if name != "default"), *AROUND]
every_candidate = pytest.mark.parametrize("name", OTHERS)


def build(name, source, limits=AMPLE):
    return candidates.make(name).build(source, limits=limits)


def numbers(dataset):
    return [batch[0]["number"].numpy().ravel().tolist() for batch in dataset]


def flat(batches):
    return [number for batch in batches for number in batch]


@every_candidate
def test_order_differs_by_epoch_and_by_iterator(name, make_source, built):
    dataset = built(name, make_source(num_epochs=2))
    first, again = flat(numbers(dataset)), flat(numbers(dataset))
    assert first[:230] != first[230:]
    assert first != again
    assert first[:230] != sorted(first[:230])


@pytest.mark.one_case
@every_candidate
def test_users_repeat_reshuffles(name, make_source, built):
    found = flat(numbers(built(name, make_source(num_epochs=1)).repeat(2)))
    assert found[:230] != found[230:]
    assert sorted(found[:230]) == list(range(230))


@pytest.mark.one_case
@every_candidate
def test_seed_makes_the_order_reproducible(name, make_source):
    def order(seed):
        return numbers(build(name, make_source(num_epochs=2, shuffle_seed=seed)))

    assert order(1) == order(1)
    assert order(1) != order(2)


@pytest.mark.slow
def test_seed_repeats_in_another_process(tmp_path):
    record_data.write_records(tmp_path, count=300, files=2)
    script = (
        "import json, test_input_candidates as here;"
        f"print(json.dumps(here.seeded_orders({str(tmp_path)!r})))"
    )
    there = processes.python("-c", script, cwd=pathlib.Path(__file__).parent, check=True)
    assert json.loads(there.stdout.splitlines()[-1]) == seeded_orders(tmp_path)


def seeded_orders(folder):
    source = record_data.plain_source(folder, num_epochs=2, shuffle_seed=7)
    return {name: flat(numbers(build(name, source))) for name in OTHERS}


def test_batch_of_empty_rows_only(make_source):
    source = make_source(schema=SPARSE_SCHEMA, num_epochs=1, shuffle=False, batch_size=1)
    (found, _), (expected, _) = (next(iter(d)) for d in [build("columns", source),
                                                         source.default()])
    assert found["words"].dense_shape.numpy().tolist() == [1, 0]
    assert expected["words"].dense_shape.numpy().tolist() == [1, 0]


def test_columns_refuses_sparse_features_that_are_not_lists(make_source):
    with pytest.raises(candidate.NotApplicable, match="not a list of values per row"):
        build("columns", make_source(schema=record_data.PLACED_SCHEMA))


def loaded(rows):
    return table_lib.load(rows.map(lambda batch: (batch, 1)), limits=AMPLE, expected_bytes=1)


@pytest.mark.parametrize("splits_dtype", [tf.int32, tf.int64])
def test_nested_ragged_columns(splits_dtype):
    lists = tf.ragged.constant(
        [[[1, 2], []], [], [[3], [4, 5], [6]], [[7]]], row_splits_dtype=splits_dtype
    )
    chunks = tf.data.Dataset.from_tensors({"lists": lists[:3]}).concatenate(
        tf.data.Dataset.from_tensors({"lists": lists[3:]})
    )
    table = loaded(chunks)
    parts = next(iter(table.held))
    taken = table.take(tf.constant([3, 0, 0, 2], tf.int64), parts)["lists"]
    assert taken.to_list() == [lists[n].to_list() for n in [3, 0, 0, 2]]
    assert (taken.dtype, taken.row_splits.dtype) == (lists.dtype, splits_dtype)
    assert taken.ragged_rank == 2


def test_columns_are_not_copied_into_the_graph(split_folder):
    """Captured by a function they were, at each new iterator."""
    wide = tf.data.Dataset.from_tensors(tf.zeros([1000, 50_000])).repeat(1)
    table = loaded(wide)
    source = record_data.plain_source(split_folder, num_epochs=1)
    dataset = batching.to_batches(
        row_numbers(table.count, source.options), finish=table.take,
        source=source, limits=Limits(memory_bytes=0), beside=table.held,
    )  # fmt: skip
    before_bytes = psutil.Process().memory_info().rss
    strategy = tf.distribute.MirroredStrategy(["/cpu:0"])
    iterators = [iter(dataset), iter(strategy.experimental_distribute_dataset(dataset))]
    grown_bytes = psutil.Process().memory_info().rss - before_bytes
    assert grown_bytes < table.held_bytes / 2
    assert len(iterators) == 2


def test_a_checkpoint_holds_a_few_batches_of_columns(split_folder, monkeypatch):
    monkeypatch.setattr(batching.host, "cpu_count", lambda: 2)
    rows = tf.random.stateless_uniform([50_000, 64], seed=(1, 2))
    table = loaded(tf.data.Dataset.from_tensors(rows))
    source = record_data.plain_source(split_folder, num_epochs=None)
    dataset = batching.to_batches(
        row_numbers(table.count, source.options), finish=table.take,
        source=source, limits=AMPLE, beside=table.held,
    )  # fmt: skip
    iterator = iter(dataset)
    next(iterator)
    state = tf.io.serialize_tensor(iterators.saved(iterator)).numpy()
    assert len(state) < table.held_bytes / 2


def test_needs_a_parser(make_source):
    source = make_source()
    unparsed = type(source)(source.file_patterns, source.default_factory, source.options)
    with pytest.raises(candidate.NotApplicable, match="no parser for these records"):
        build("block_reader", unparsed)


@pytest.mark.one_case
@every_candidate
def test_memory_limit(name, make_source):
    with pytest.raises(candidate.NotApplicable, match="the budget is 100 B"):
        build(name, make_source(), limits=Limits(memory_bytes=100))


def test_loads_once_for_all_batch_sizes(make_source):
    kind = candidates.make("columns")
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


@pytest.mark.parametrize("name", ["parallel_reader", "columns+own_threads", "block_reader+copy"])
def test_a_candidate_of_an_earlier_version_is_refused(name):
    with pytest.raises(candidate.NotApplicable, match=f"no candidate {re.escape(name)}"):
        candidates.make(name)


def test_autotune_is_left_on_around_a_candidate(make_source):
    wrapped = candidates.make("columns+autotune")
    assert wrapped.description.startswith(wrapped.inner.description)
    assert wrapped.build(make_source(), limits=AMPLE).options().autotune.enabled
    assert wrapped.held_bytes == wrapped.inner.held_bytes > 0
