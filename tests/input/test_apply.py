"""The plan behind the user's dataset factory."""

import dataclasses
import logging
import os
import shutil

import pytest
import tensorflow as tf
from perf_records import tuning_record
from record_data import PLACED_SCHEMA, write_records

from tfx_perf.input import apply, candidates, equivalence
from tfx_perf.input.candidates import CANDIDATES

pytestmark = pytest.mark.each_choice


def plan(chosen, *, memory_budget_bytes=2**30, configured=True):
    return tuning_record(
        chosen, memory_budget_bytes=memory_budget_bytes, memory_budget_configured=configured
    )


def call(factory, source):
    return factory(list(source.file_patterns), source.options, source.schema)


def tuned(source, record):
    return apply.tuned_factory(
        source.default_factory, record, parser_for=lambda schema, options: source.parse
    )


def test_the_default_reads_where_it_is_the_plan_or_that_is_of_an_earlier_version(
    make_source, caplog
):
    source = make_source()
    assert tuned(source, plan("default")) is source.default_factory
    assert tuned(source, plan("columns+own_threads")) is source.default_factory
    assert "this version has no candidate columns+own_threads" in caplog.text


@pytest.mark.one_case
@pytest.mark.parametrize("name", [name for name in CANDIDATES if name != "default"])
def test_serves_several_splits_and_options(name, make_source, tmp_path, caplog):
    write_records(tmp_path, count=40, files=1)
    train = make_source(num_epochs=1)
    factory = tuned(train, plan(name, configured=False))
    for source in [
        train,
        make_source(num_epochs=1, batch_size=64),
        make_source(folder=tmp_path, num_epochs=1),
    ]:
        dataset = call(factory, source)
        assert equivalence.prefix(dataset).digest == equivalence.prefix(source.default()).digest
        assert dataset.element_spec == source.element_spec
    pattern_as_text = factory(train.file_patterns[0], train.options, train.schema)
    assert equivalence.prefix(pattern_as_text).digest == equivalence.prefix(train.default()).digest
    assert "default reads" not in caplog.text


def test_reads_a_split_once(make_source):
    source = make_source()
    reads = []

    def counting(patterns, options, schema):
        if options.num_epochs == 1:
            reads.append(patterns)
        return source.default_factory(patterns, options, schema)

    factory = apply.tuned_factory(counting, plan("columns"))
    next(iter(call(factory, source)))
    loading = len(reads)  # and looking at files that the plan was not made for
    for _ in range(3):
        next(iter(call(factory, source)))
    assert len(reads) == loading > 0


def test_rewritten_files_are_read_again(make_source, tmp_path):
    write_records(tmp_path, count=40, files=1)
    source = make_source(folder=tmp_path, num_epochs=1)
    factory = tuned(source, plan("columns"))
    assert equivalence.prefix(call(factory, source)).digest.count == 40
    write_records(tmp_path, count=50, files=1)
    assert equivalence.prefix(call(factory, source)).digest.count == 50


def test_a_file_in_the_place_of_another_is_read_whatever_its_time(make_source, tmp_path):
    write_records(tmp_path, count=40, files=1)
    (written,) = tmp_path.iterdir()
    records = [*tf.data.TFRecordDataset(str(written), "GZIP").as_numpy_iterator()]
    written.unlink()
    file, other = tmp_path / "file", tmp_path / "other"
    for path, content in ((file, records), (other, records[::-1])):  # of one size
        with tf.io.TFRecordWriter(str(path)) as writer:
            for record in content:
                writer.write(record)
    shutil.copystat(file, other)
    source = make_source(folder=tmp_path, num_epochs=1, shuffle=False, batch_size=40)
    source = dataclasses.replace(source, file_patterns=(str(file),))
    factory = tuned(source, plan("columns"))

    def order():
        return [batch["number"].numpy().ravel().tolist() for batch, _ in call(factory, source)]

    assert order() == [[*range(40)]]
    os.replace(other, file)
    assert order() == [[*reversed(range(40))]]


class Wrong(candidates.BlockReader):
    """Swaps features in all files but those it was examined on."""

    def build(self, source, *, limits):
        def swapped(features, label):
            return {**features, "pair": features["pair"][:, ::-1]}, label

        return super().build(source, limits=limits).map(swapped)


@pytest.mark.parametrize("is_examined", [True, False])
def test_files_that_it_was_not_examined_on_are_looked_at(is_examined, make_source, caplog):
    source = make_source(num_epochs=1)
    state = source.files_digest
    factory = apply.serving(
        Wrong(), source.default_factory, memory_budget_bytes=2**30,
        parser_for=lambda schema, options: source.parse,
        examined_state=state if is_examined else "of others",
    )  # fmt: skip
    same = (
        equivalence.prefix(call(factory, source)).digest
        == equivalence.prefix(source.default()).digest
    )
    assert same != is_examined
    assert ("examples differ from the default's" in caplog.text) != is_examined


@pytest.mark.one_case
@pytest.mark.parametrize("name", [name for name in CANDIDATES if name != "default"])
def test_serves_inside_of_a_function(name, make_source, caplog):
    source = make_source(num_epochs=1)
    factory = tuned(source, plan(name))

    @tf.function
    def total():
        numbers = call(factory, source).map(lambda features, label: features["number"])
        return numbers.reduce(tf.constant(0, tf.int64), lambda sum, n: sum + tf.reduce_sum(n))

    assert int(total()) == sum(range(230))
    assert "default reads" not in caplog.text


@pytest.mark.parametrize(
    ("settings", "record", "reason"),
    [
        ({"schema": PLACED_SCHEMA}, plan("columns"), "not a list of values per row"),
        ({}, plan("columns", memory_budget_bytes=10), "the budget is 10 B"),
    ],
)
def test_falls_back_to_the_default(settings, record, reason, make_source, caplog):
    source = make_source(num_epochs=1, **settings)
    with caplog.at_level(logging.WARNING):
        dataset = call(tuned(source, record), source)
    assert equivalence.prefix(dataset).digest == equivalence.prefix(source.default()).digest
    assert reason in caplog.text


def test_a_failing_parser_falls_back(make_source, caplog):
    source = make_source(num_epochs=1)

    def broken(schema, options):
        raise RuntimeError("cannot parse")

    factory = apply.tuned_factory(source.default_factory, plan("block_reader"), parser_for=broken)
    with caplog.at_level(logging.WARNING):
        dataset = call(factory, source)
    assert equivalence.prefix(dataset).digest == equivalence.prefix(source.default()).digest
    assert "cannot parse" in caplog.text
