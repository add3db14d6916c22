"""The plan behind the user's dataset factory."""

import logging

import pytest
from record_data import PLACED_SCHEMA, write_records

from tfx_perf.input import apply, fingerprint
from tfx_perf.input.candidates import CANDIDATES
from tfx_perf.input.record import TuningRecord


def plan(chosen, *, memory_budget_bytes=2**30, configured=True):
    return TuningRecord(
        chosen=chosen, reason="", outcomes=(), batch_size=32, rounds=9, margin=0.02,
        memory_budget_bytes=memory_budget_bytes, memory_budget_configured=configured,
        example_count=230, checked_example_count=230, file_count=3, file_bytes=1,
        compression="GZIP", tuning_time_seconds=1.0,
    )  # fmt: skip


def call(factory, source):
    return factory(list(source.file_patterns), source.options, source.schema)


def tuned(source, record):
    return apply.tuned_factory(
        source.default_factory, record, parser_for=lambda schema, options: source.parser
    )


def test_default_plan_is_the_factory_itself(make_source):
    source = make_source()
    assert tuned(source, plan("default")) is source.default_factory


@pytest.mark.parametrize("name", [name for name in CANDIDATES if name != "default"])
def test_serves_several_splits_and_options(name, make_source, tmp_path, caplog):
    write_records(tmp_path, count=40, files=1)
    train = make_source(num_epochs=1)
    factory = tuned(train, plan(name, configured=False))
    for source in [train, make_source(num_epochs=1, batch_size=64), make_source(folder=tmp_path,
                                                                              num_epochs=1)]:
        dataset = call(factory, source)
        assert fingerprint.digest(dataset) == fingerprint.digest(source.default())
        assert dataset.element_spec == source.element_spec
    pattern_as_text = factory(train.file_patterns[0], train.options, train.schema)
    assert fingerprint.digest(pattern_as_text) == fingerprint.digest(train.default())
    assert "default reads" not in caplog.text


def test_reads_a_split_once(make_source):
    source = make_source()
    reads = []

    def counting(patterns, options, schema):
        if options.num_epochs == 1:
            reads.append(patterns)
        return source.default_factory(patterns, options, schema)

    factory = apply.tuned_factory(counting, plan("columns"))
    for _ in range(3):
        next(iter(call(factory, source)))
    assert len(reads) == 1


@pytest.mark.parametrize(
    ("settings", "record", "reason"),
    [
        ({"schema": PLACED_SCHEMA}, plan("columns"), "places of its own"),
        ({}, plan("columns", memory_budget_bytes=10), "the budget is 10 B"),
    ],
)
def test_falls_back_to_the_default(settings, record, reason, make_source, caplog):
    source = make_source(num_epochs=1, **settings)
    with caplog.at_level(logging.WARNING):
        dataset = call(tuned(source, record), source)
    assert fingerprint.digest(dataset) == fingerprint.digest(source.default())
    assert reason in caplog.text


def test_a_failing_parser_falls_back(make_source, caplog):
    source = make_source(num_epochs=1)

    def broken(schema, options):
        raise RuntimeError("cannot parse")

    factory = apply.tuned_factory(source.default_factory, plan("block_reader"), parser_for=broken)
    with caplog.at_level(logging.WARNING):
        dataset = call(factory, source)
    assert fingerprint.digest(dataset) == fingerprint.digest(source.default())
    assert "cannot parse" in caplog.text
