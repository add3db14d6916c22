"""Where the default's time goes."""

import time

import pytest
import tensorflow as tf
from record_data import RAGGED_SCHEMA, SCHEMA, SPARSE_SCHEMA
from slow_data import Training, slowed
from tfx_bsl.tfxio import raw_tf_record

from tfx_perf.input import measure, stages

pytestmark = pytest.mark.each_choice

EXAMPLE_STAGES = ["read", "decompress", "shuffle", "batch", "parse", "rename"]


@pytest.fixture(autouse=True)
def short_blocks(monkeypatch):
    monkeypatch.setattr(measure, "_BLOCK_SECONDS", 0.03)
    monkeypatch.setattr(measure, "_WARM_UP_SECONDS", 0.01)


def with_factory(source, factory):
    return type(source)(source.file_patterns, factory, source.options, source.schema)


@pytest.mark.one_case
@pytest.mark.parametrize("schema", [SCHEMA, SPARSE_SCHEMA, RAGGED_SCHEMA])
def test_prefixes_are_cut_from_the_default(schema, make_source):
    source = make_source(schema=schema)
    cuts = stages.prefixes_of(source)
    assert list(cuts) == EXAMPLE_STAGES
    assert cuts["rename"].element_spec == source.element_spec
    assert set(cuts["parse"].element_spec) == {*source.element_spec[0], "label"}
    assert cuts["batch"].element_spec == tf.TensorSpec([16], tf.string)
    for cut in cuts.values():
        assert len(list(cut.take(40))) == 40  # more than two epochs


def test_an_element_before_batching_takes_a_batch_of_records(make_source):
    source = make_source(shuffle=False)
    cuts = stages.prefixes_of(source)
    assert "shuffle" not in cuts
    records = list(source.records().repeat(2).as_numpy_iterator())
    assert list(cuts["decompress"].take(20).as_numpy_iterator()) == records[: 20 * 16 : 16]


def test_plain_files(make_source, tmp_path):
    with tf.io.TFRecordWriter(f"{tmp_path}/plain") as writer:
        for record in make_source().records().as_numpy_iterator():
            writer.write(record)
    source = make_source(folder=tmp_path)
    assert "records" in stages.prefixes_of(source)
    assert source.stored_record_bytes == pytest.approx(source.total_bytes / 230, rel=0.05)


def test_raw_records_are_not_taken_apart_after_batching(make_source):
    def factory(patterns, options, schema):
        del schema
        reader = raw_tf_record.RawTfRecordTFXIO(
            patterns, raw_record_column_name="raw", telemetry_descriptors=["test"]
        )
        return reader.TensorFlowDataset(options)

    cuts = stages.prefixes_of(with_factory(make_source(), factory))
    assert list(cuts) == ["read", "decompress", "shuffle", "batch", "parse"]
    assert set(cuts["parse"].element_spec) == {"raw"}


def test_an_unknown_pipeline_is_one_stage(make_source):
    def factory(patterns, options, schema):
        del patterns, options, schema
        return tf.data.Dataset.from_tensors(tf.zeros(16)).repeat()

    found = stages.measure_stages(with_factory(make_source(), factory), seconds=20)
    assert [stage.name for stage in found] == ["read", "pipeline"]


def test_reading_takes_the_bytes_of_the_files(make_source):
    source = make_source()
    once = tf.data.Dataset.from_tensor_slices(list(source.files))
    take = stages._reader(source.total_bytes / 2)(once)
    take(2)
    with pytest.raises(StopIteration):
        take(1)


def test_size_in_the_file_is_that_of_compressed_examples(make_source):
    source = make_source()
    size_bytes = source.stored_record_bytes
    assert size_bytes == pytest.approx(source.total_bytes / 230, rel=0.2)
    assert size_bytes < source.record_bytes / 2


def test_the_stage_that_waits_is_the_bottleneck(make_source):
    # Slower than the bound below: a stage's time is a difference of two, each with its error.
    found = stages.measure_stages(slowed(make_source(), 0.03), seconds=60)
    assert [stage.name for stage in found] == EXAMPLE_STAGES
    assert sum(stage.share for stage in found) == pytest.approx(1)
    assert max(found, key=lambda stage: stage.share).name == "rename"
    assert found[-1].share > 0.5
    assert found[-1].examples_per_second < 16 / 0.02
    assert all(stage.remedy for stage in found)


@pytest.mark.slow
def test_processing_by_the_training_code_is_a_stage(make_source):
    source = make_source(num_epochs=1)
    train = Training(source.replace_options(batch_size=32), input_seconds=0.01)
    found = stages.measure_stages(source, seconds=20, train=train)
    assert [stage.name for stage in found] == [*EXAMPLE_STAGES, "transform"]
    assert found[-1].share > 0.5


@pytest.mark.slow
def test_with_little_time_turns_are_shorter(make_source, monkeypatch):
    monkeypatch.setattr(measure, "_BLOCK_SECONDS", 4.0)  # of which a round has six
    found = stages.measure_stages(make_source(), seconds=8)
    assert [stage.name for stage in found] == EXAMPLE_STAGES


def test_a_stage_that_does_not_fit_into_the_time_is_not_begun(make_source):
    started = time.monotonic()
    assert stages.measure_stages(slowed(make_source(), 0.2), seconds=1) == ()
    assert time.monotonic() - started < 20  # a round would wait five batches for each prefix


def test_shares_are_of_the_same_round_and_never_negative():
    # The machine was half as fast in the second round; the second prefix waits for records.
    found = stages.divide(
        {
            "read": [1e-6, 2e-6, 1e-6],
            "decompress": [6e-6, 12e-6, 6e-6],
            "shuffle": [4e-6, 8e-6, 4e-6],
            "parse": [10e-6, 20e-6, 10e-6],
        },
        compressed_bytes=10,
        record_bytes=100,
    )
    assert [stage.share for stage in found] == pytest.approx([0.1, 0.3, 0, 0.6])
    assert [stage.seconds_per_example for stage in found] == pytest.approx([1e-6, 3e-6, 0, 6e-6])
    assert found[0].bytes_per_second == pytest.approx(10e6)
    assert found[-1].examples_per_second == pytest.approx(1e5)
    assert found[-1].bytes_per_second == pytest.approx(1e7)
