"""The measurements of a candidate, and reasons to drop it: contents, shuffling, memory, damage."""

import math
import time

import numpy as np
import pytest
import tensorflow as tf
from record_data import write_records

from tfx_perf.config import InputSettings
from tfx_perf.core import errors
from tfx_perf.input.candidate_check import CandidateCheck
from tfx_perf.input.candidates import CANDIDATES, Columns, Default, candidate
from tfx_perf.input.candidates.limits import Limits, MemoryMeter

pytestmark = pytest.mark.each_choice

MEGABYTE = 2**20
NO_TIME = 1e-9  # one batch is read in any time
_SHARED = {}


def candidate_check(source, *, memory_bytes=2**32, **settings):
    return CandidateCheck(
        source.replace_options(num_epochs=None, shuffle=True),
        settings=InputSettings(memory_budget_bytes=memory_bytes, **settings),
    )


@pytest.fixture
def examined(make_source):
    """One candidate_check of the split without tight limits, for all tests."""
    if not _SHARED:
        _SHARED["examined"] = candidate_check(make_source(), tuning_seconds=200.0)
    return _SHARED["examined"]


class Buffered(Default):
    """The default with a shuffle buffer of another size."""

    def __init__(self, size):
        self.name = f"buffer_{size}"
        self._size = size

    def build(self, source, *, limits):
        return source.replace_options(shuffle_buffer_size=self._size).default()


class Hoarder(Default):
    """Holds memory that it does not tell of."""

    name = "hoarder"

    def __init__(self, *, megabytes, checks=False):
        self._megabytes = megabytes
        self._checks = checks
        self.chunks = []

    def build(self, source, *, limits):
        while len(self.chunks) < self._megabytes / 10:
            self.chunks.append(np.ones(10 * MEGABYTE, np.uint8))
            if self._checks:
                limits.check(0)
        return source.default()


class Passing(Hoarder):
    """Takes memory only while it is being prepared."""

    name = "passing"

    def build(self, source, *, limits):
        dataset = super().build(source, limits=limits)
        time.sleep(0.5)  # many of the meter's intervals
        if source.options.num_epochs is None:
            self.chunks = [np.zeros(0)] * 1000
        return dataset


class WrongIfShuffled(Default):
    """Changes examples in a way that the unshuffled order does not show."""

    name = "wrong_if_shuffled"

    def build(self, source, *, limits):
        change = int(source.options.shuffle)
        return source.default().map(lambda features, label: (features, label + change))


@pytest.fixture(scope="module")
def large_files(tmp_path_factory):
    """Three files of 300 examples: with a batch of 300 the first is read in any time."""
    folder = tmp_path_factory.mktemp("large")
    write_records(folder, count=900, files=3)
    return folder


def test_quality_of_the_default_and_of_candidates(examined):
    default = examined.default.outcome.shuffle
    assert default.epochs > 1
    assert default.example_count == 230
    assert default.mixing_ratio > 0.9
    found = examined.examine(Columns()).outcome
    assert found.status == "measured"
    assert found.shuffle.displacement_ratio > 0.8
    assert found.shuffle.mixing_ratio > 0.9


@pytest.mark.one_case
@pytest.mark.parametrize("size", [1, 10])
def test_weaker_shuffle_is_dropped_unless_allowed(size, examined, make_source):
    found = examined.examine(Buffered(size))
    assert found.outcome.status == "dropped"
    assert "shuffles worse than the default: mixing ratio 0." in found.outcome.reason
    assert found.outcome.shuffle.mixing_ratio < 0.5
    allowed = candidate_check(make_source(), allow_weaker_shuffle=True).examine(Buffered(size))
    assert allowed.outcome.status == "measured"
    assert allowed.outcome.shuffle.mixing_ratio < 0.5


@pytest.mark.one_case
@pytest.mark.parametrize("name", CANDIDATES)
def test_no_candidate_of_ours_shuffles_worse(name, examined):
    reason = examined.examine(CANDIDATES[name]()).outcome.reason
    assert "shuffles worse" not in reason


def test_the_defaults_own_weak_shuffle_is_the_measure(make_source):
    examined = candidate_check(make_source(shuffle_buffer_size=60))
    assert examined.examine(Buffered(60)).outcome.status == "measured"
    assert examined.examine(Buffered(1)).outcome.status == "dropped"


@pytest.mark.slow
def test_large_data_is_judged_by_the_first_files(make_source, large_files):
    examined = candidate_check(
        make_source(folder=large_files, batch_size=300), tuning_seconds=NO_TIME
    )
    assert not examined.reference.complete
    assert examined.default.outcome.shuffle.example_count == 300
    columns = Columns()
    assert examined.examine(columns).outcome.shuffle.example_count == 300
    alone = Columns()
    alone.build(make_source(folder=large_files), limits=Limits(memory_bytes=2**30))
    assert columns.held_bytes == alone.held_bytes  # no table of the first files is left
    weak = examined.examine(Buffered(1)).outcome
    assert "displacement ratio 0 against" in weak.reason


def test_large_data_are_compared_shuffled_too(make_source, large_files):
    examined = candidate_check(
        make_source(folder=large_files, batch_size=300), tuning_seconds=NO_TIME
    )
    assert "with different values" in examined.examine(WrongIfShuffled()).outcome.reason


def test_a_single_large_file_has_no_known_quality(make_source, tmp_path):
    write_records(tmp_path, count=300, files=1)
    examined = candidate_check(make_source(folder=tmp_path), tuning_seconds=NO_TIME)
    assert examined.default.outcome.shuffle is None
    found = examined.examine(Buffered(1)).outcome
    assert (found.status, found.shuffle) == ("measured", None)


@pytest.mark.slow
def test_checking_ends_with_the_time(examined):
    class Slow(Default):
        name = "slow"

        def build(self, source, *, limits):
            def wait(*batch):
                with tf.control_dependencies([tf.py_function(lambda: time.sleep(2), [], [])]):
                    return tf.nest.map_structure(tf.identity, batch)

            first, rest = source.default().take(1), source.default().skip(1)
            return first.concatenate(rest.map(wait))  # 14 batches

    found = examined.examine(Slow(), deadline_seconds=time.monotonic() + 3)
    assert "the time budget ended while it was being" in found.outcome.reason


def test_memory_that_a_candidate_does_not_tell_of(make_source):
    examined = candidate_check(make_source(), memory_bytes=150 * MEGABYTE)
    found = examined.examine(Hoarder(megabytes=80)).outcome
    assert found.status == "measured"
    assert 80 * MEGABYTE <= found.resident_bytes < 150 * MEGABYTE
    assert found.peak_memory_bytes >= found.resident_bytes
    assert "the budget is 150 M" in examined.examine(Hoarder(megabytes=200)).outcome.reason


def test_over_the_budget_loading_ends_early(make_source):
    hoarder = Hoarder(megabytes=2000, checks=True)
    found = candidate_check(make_source(), memory_bytes=100 * MEGABYTE).examine(hoarder)
    assert "the budget is 100 M" in found.outcome.reason
    assert len(hoarder.chunks) <= 11


def test_memory_that_is_only_taken_for_a_time_counts(make_source):
    found = candidate_check(make_source(), memory_bytes=100 * MEGABYTE).examine(
        Passing(megabytes=200)
    )
    assert "the budget is 100 M" in found.outcome.reason


@pytest.mark.slow
def test_string_columns_are_measured(make_source, tmp_path):
    with tf.io.TFRecordWriter(f"{tmp_path}/strings") as writer:
        for number in range(20_000):
            text = b"%05d" % number * 400
            feature = tf.train.Feature(bytes_list=tf.train.BytesList(value=[text]))
            record = tf.train.Example(features=tf.train.Features(feature={"text": feature}))
            writer.write(record.SerializeToString())
    schema = 'feature { name: "text" type: BYTES presence { min_fraction: 1 } shape {} }'
    source = make_source(folder=tmp_path, schema=schema, label_key=None)
    content_bytes = 20_000 * len(text)
    found = candidate_check(source).examine(Columns()).outcome
    assert found.status == "measured"
    # The table, and the blocks of it that the running pipeline has in its buffers.
    assert content_bytes <= found.resident_bytes < 8 * content_bytes
    over = candidate_check(source, memory_bytes=content_bytes * 8 // 10).examine(Columns()).outcome
    assert over.status == "dropped"


def test_meter_sees_memory_that_was_freed_before():
    def pieces():  # below the size from which glibc maps memory of its own
        return [np.ones(100_000, np.uint8) for _ in range(1500)]

    before = pieces()
    kept = before[::50]
    del before
    with MemoryMeter() as meter:
        again = pieces()
        assert meter.growth_bytes() > 140_000_000
        del again
        assert meter.settled_growth_bytes() < 50_000_000
        assert meter.peak_growth_bytes > 140_000_000
    assert kept


def test_limits_count_only_the_excess():
    with MemoryMeter() as meter:
        limits = Limits(memory_bytes=50 * MEGABYTE, meter=meter)
        limits.check(0)
        with pytest.raises(candidate.NotApplicable, match="the budget"):
            limits.check(51 * MEGABYTE)
        held = np.ones(60 * MEGABYTE, np.uint8)
        with pytest.raises(candidate.NotApplicable, match="the budget"):
            limits.check(0)
        assert held.size


def test_limits_without_a_deadline():
    assert Limits(memory_bytes=1).remaining_seconds == math.inf


def test_no_examples(make_source, tmp_path):
    with tf.io.TFRecordWriter(f"{tmp_path}/empty.gz", "GZIP"):
        pass
    with pytest.raises(errors.UserError, match="at least one example"):
        candidate_check(make_source(folder=tmp_path))
