"""The trial of an uncompressed copy, and the candidate that reads one."""

import os
import pathlib
import time

import pytest
import tensorflow as tf
from record_data import write_records

from tfx_perf.input import candidate, candidates
from tfx_perf.input.candidates import copy
from tfx_perf.input.limits import Limits
from tfx_perf.input.parameters import Parameters
from tfx_perf.input.proof import file_state, fingerprint
from tfx_perf.input.search import copy_trial
from tfx_perf.input.timing import measure
from tfx_perf.statistics import Interval

pytestmark = pytest.mark.each_choice

AMPLE = Limits(memory_bytes=2**30)


@pytest.fixture(autouse=True)
def short_blocks(monkeypatch):
    monkeypatch.setattr(measure, "_BLOCK_SECONDS", 0.05)
    monkeypatch.setattr(measure, "_WARM_UP_SECONDS", 0.02)


class SlowReader(candidates.Default):
    """Sleeps at every batch if the files' names contain `slow`."""

    def __init__(self, slow):
        self._slow = slow

    def build(self, source, *, limits):
        dataset = super().build(source, limits=limits)
        if self._slow not in source.files[0]:
            return dataset

        def wait(label):
            time.sleep(0.01)
            return label

        def step(features, label):
            waited = tf.numpy_function(wait, [label], label.dtype)
            waited.set_shape(label.shape)
            return features, waited

        return dataset.map(step)


@pytest.fixture
def one_round(monkeypatch):
    """Measures once, in whatever time it takes: the figures are not looked at."""
    monkeypatch.setattr(measure, "_MAX_ROUNDS", 1)


def trial(source, slow=".gz", seconds=60, **arguments):
    arguments = {"make_inner": lambda: SlowReader(slow), "limits": AMPLE, **arguments}
    return copy_trial.try_copy(source, seconds=seconds, **arguments)


def test_a_copy_that_is_faster_pays_back(make_source, tmp_path):
    source = make_source()
    found = trial(source, folder=str(tmp_path))
    assert found.ratio.low > 1
    assert found.sample_share == 1  # three small files
    assert found.shard_count == 16
    assert found.payback_epochs > 0
    # 230 examples in 15 batches that each wait 10 ms: an epoch takes at least 0.14 s.
    assert found.payback_epochs < found.copy_seconds / (0.14 * (1 - 1 / found.ratio.value))
    assert found.worthwhile(found.payback_epochs + 1)
    assert not found.worthwhile(found.payback_epochs)
    assert not found.worthwhile(None)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_copy_that_is_slower_never_pays_back(make_source):
    found = trial(make_source(), slow="copy-")
    assert found.ratio.high < 1
    assert found.payback_epochs is None
    assert not found.worthwhile(1e9)


def test_too_little_time_proves_nothing(make_source):
    found = trial(make_source(), seconds=0)
    assert found.payback_epochs is None
    assert type(found).model_validate(found.model_dump(mode="json")) == found


@pytest.mark.slow
@pytest.mark.usefixtures("one_round")
def test_the_copys_size_is_extrapolated(make_source, tmp_path, monkeypatch):
    write_records(tmp_path, count=4000, files=2)
    source = make_source(folder=tmp_path)
    exact = sum(
        len(record) + 16  # length and two checksums
        for record in source.records().as_numpy_iterator()
    )
    whole = trial(source)
    assert (whole.sample_share, whole.copy_bytes) == (1, exact)
    monkeypatch.setattr(copy_trial, "_SAMPLE_BYTES", exact // 4)
    part = trial(source)
    assert 0.1 < part.sample_share < 0.4
    assert part.copy_bytes == pytest.approx(exact, rel=0.1)


@pytest.mark.slow
@pytest.mark.usefixtures("one_round")
def test_many_files_are_tried_as_they_are(make_source, tmp_path, monkeypatch):
    write_records(tmp_path, count=2000, files=40)
    monkeypatch.setattr(copy_trial, "_SAMPLE_BYTES", 200_000)
    source = make_source(folder=tmp_path)
    read = []

    class Recording(candidates.Default):
        def build(self, source, *, limits):
            read.append(source.files)
            return super().build(source, limits=limits)

    trial(source, make_inner=Recording)
    originals, copies = read
    assert 16 <= len(originals) < 40
    assert set(originals) < set(source.files)
    assert len(copies) == 16


def test_no_examples(make_source, tmp_path):
    with tf.io.TFRecordWriter(f"{tmp_path}/empty.gz", "GZIP"):
        pass
    with pytest.raises(candidate.NotApplicable, match="no examples"):
        trial(make_source(folder=tmp_path))


def test_payback_below_the_planned_epochs_is_worthwhile():
    found = copy_trial.CopyTrial(
        ratio=Interval(value=2, low=1.5, high=2.5), sample_share=0.5, copy_bytes=10,
        copy_seconds=1, shard_count=16, payback_epochs=3,
    )  # fmt: skip
    assert [found.worthwhile(epochs) for epochs in (2, 3, 4)] == [False, False, True]


@pytest.fixture
def copied(make_source, tmp_path):
    """The plan's parameters with a copy of the split, and that copy's folder."""
    folder = tmp_path / "copy"
    folder.mkdir()
    source = make_source()
    files = source.files
    chunks = (chunk for name in files for chunk in copy.read_chunks(name))
    copy.write_shards(chunks, copy.shard_paths(str(folder), 5))
    state = file_state.digest(source.file_states)
    return Parameters(**copy.of_files(files, files_state=state, folder=str(folder)))


class Reader(candidates.BlockReader):
    """Remembers which files it was to read."""

    def build(self, source, *, limits):
        self.files = source.files
        return super().build(source, limits=limits)


def read_by(source, parameters):
    reader = Reader()
    dataset = copy.Copy(reader, parameters).build(source, limits=AMPLE)
    assert dataset.element_spec == source.element_spec
    if source.options.num_epochs == 1:
        assert fingerprint.digest(dataset) == fingerprint.digest(source.default())
    return {os.path.dirname(name) for name in reader.files}


def test_reads_the_copy_where_it_serves(make_source, copied):
    wrapped = copy.Copy(Reader(), copied)
    assert wrapped.name == "block_reader+copy"
    for options in ({"num_epochs": 1}, {}, {"num_epochs": 1, "label_key": None}):
        assert read_by(make_source(**options), copied) == {copied.copy_folder}


@pytest.mark.slow
def test_seed_repeats_the_order(make_source, copied):
    source = make_source(num_epochs=1, shuffle_seed=5)

    def order():
        dataset = copy.Copy(candidates.BlockReader(), copied).build(source, limits=AMPLE)
        return [number for batch, _ in dataset for number in batch["number"].numpy().ravel()]

    assert order() == order()
    assert sorted(order()) == list(range(230))


def test_reads_the_files_where_the_copy_does_not_serve(
    make_source, copied, split_folder, tmp_path, caplog
):
    here = {str(split_folder)}
    assert read_by(make_source(num_epochs=1, shuffle=False), copied) == here
    assert read_by(make_source(num_epochs=1), Parameters()) == here
    other = tmp_path / "other"
    other.mkdir()
    write_records(other, count=20, files=2)
    assert read_by(make_source(num_epochs=1, folder=other), copied) == {str(other)}
    assert not caplog.records
    pathlib.Path(copy.shard_paths(copied.copy_folder, 5)[4]).unlink()
    assert read_by(make_source(num_epochs=1), copied) == here
    assert "it is not complete" in caplog.text
    gone = copied.model_copy(update={"copy_folder": "/gone"})
    assert read_by(make_source(num_epochs=1), gone) == here


@pytest.mark.parametrize("damage", ["cut", "emptied", "of others"])
def test_a_changed_copy_is_not_read(damage, make_source, copied, caplog):
    first, second = map(pathlib.Path, copy.shard_paths(copied.copy_folder, 5)[:2])
    content = {"cut": first.read_bytes()[:-1], "emptied": b"", "of others": second.read_bytes()}
    first.write_bytes(content[damage])
    source = make_source(num_epochs=1)
    assert read_by(source, copied) == {os.path.dirname(source.files[0])}
    assert "changed since it was made" in caplog.text


def test_shards_are_equally_long(tmp_path):
    paths = copy.shard_paths(str(tmp_path), 3)
    copy.write_shards([[b"1", b"2"], [], [b"3", b"4", b"5", b"6", b"7"]], paths)
    assert [sum(map(len, copy.read_chunks(path))) for path in paths] == [3, 2, 2]


def test_a_copy_of_files_that_were_written_anew_is_not_read(make_source, tmp_path, caplog):
    data, folder = tmp_path / "data", tmp_path / "copy"
    data.mkdir()
    folder.mkdir()
    write_records(data, count=20, files=1)
    before = make_source(folder=data, num_epochs=1)
    chunks = (chunk for name in before.files for chunk in copy.read_chunks(name))
    copy.write_shards(chunks, copy.shard_paths(str(folder), 2))
    state = file_state.digest(before.file_states)
    parameters = Parameters(
        **copy.of_files(before.files, files_state=state, folder=str(folder))
    )
    assert copy.obstacle(before, parameters) is None
    write_records(data, count=30, files=1)
    assert read_by(make_source(folder=data, num_epochs=1), parameters) == {str(data)}
    assert "written anew" in caplog.text
