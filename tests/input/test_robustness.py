"""Unusual and damaged data: the default's own behavior, or an error that names the file."""

import functools
import logging
import threading

import pytest
import tensorflow as tf
from damaged_data import CASES, NON_UTF8, flip_byte, write_shards
from test_apply import call, plan, tuned

from tfx_perf.config import InputSettings
from tfx_perf.core import errors
from tfx_perf.input import equivalence
from tfx_perf.input.candidate_check import CandidateCheck, DamageSearch, damaged_file
from tfx_perf.input.candidates import CANDIDATES, BlockReader, Columns
from tfx_perf.input.candidates import candidate as candidate_lib
from tfx_perf.input.candidates.limits import Limits

pytestmark = pytest.mark.each_choice

OTHERS = [name for name in CANDIDATES if name != "default"]
every_candidate = pytest.mark.parametrize("name", OTHERS)
DAMAGED = [name for name, case in CASES.items() if case.damaged]
# To an candidate_check, gzip is as plain, and an empty gzip file as one of no bytes.
ALIKE = ("one gzip shard", "an empty shard among others")
SOUND = [
    name
    for name, case in CASES.items()
    if not case.damaged and name not in ("zero examples", *ALIKE)
]
EMPTY_DIGEST = equivalence.Digest(0, 0)


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """Writes each split at its first use."""

    class Folders(dict):
        def __missing__(self, case):
            self[case] = tmp_path_factory.mktemp("split")
            CASES[case].write(self[case])
            return self[case]

    return Folders()


@pytest.fixture(scope="session")
def source_of(make_source, folders):
    """The source over a case's split; keywords are options."""

    @functools.cache
    def make(case, **options):
        settings = {"folder": folders[case], "schema": CASES[case].schema, **CASES[case].options}
        return make_source(**settings, **options)

    return make


def behavior(factory, source):
    """The examples that a factory's dataset yields, or the kind of error."""
    try:
        return equivalence.prefix(call(factory, source)).digest
    except tf.errors.OpError as error:
        return type(error)


def candidate_check(source, **settings):
    settings = {"tuning_seconds": 100.0, "memory_budget_bytes": 2**60, **settings}
    return CandidateCheck(
        source.replace_options(num_epochs=None, shuffle=True), settings=InputSettings(**settings)
    )


def defaults_behavior(source):
    return behavior(source.default_factory, source)


@pytest.mark.one_case
@pytest.mark.parametrize("case", CASES)
@every_candidate
def test_training_sees_the_same_as_with_the_default(case, name, source_of, once):
    source = source_of(case, num_epochs=1)
    expected = once(defaults_behavior, source)
    assert isinstance(expected, type) == bool(CASES[case].damaged)
    assert behavior(tuned(source, plan(name)), source) == expected


@pytest.mark.parametrize("case", DAMAGED)
def test_the_error_names_the_file(case, source_of):
    with pytest.raises(errors.UserError) as caught:
        candidate_check(source_of(case))
    message = str(caught.value)
    assert message.startswith("Expected ")
    assert "Received: " in message
    assert "\n" not in message
    assert "{{" not in message
    assert "[Op:" not in message
    assert all(name in message for name in CASES[case].damaged)


def test_no_files_at_all(make_source, tmp_path):
    for folder in (tmp_path, tmp_path / "missing"):
        with pytest.raises(errors.UserError, match="Received: file_patterns"):
            candidate_check(make_source(folder=folder))


@pytest.mark.one_case
@pytest.mark.one_case
@pytest.mark.parametrize("case", SOUND)
def test_sound_splits_are_examined_without_complaint(case, source_of, monkeypatch):
    monkeypatch.setattr(equivalence, "_MAX_EPOCHS", 2)
    examined = candidate_check(source_of(case))
    for name in OTHERS:
        reason = examined.examine(CANDIDATES[name]()).outcome.reason
        for complaint in ("cannot read", "not those of", "shuffles worse", "Error"):
            assert complaint not in reason, f"{name}: {reason}"


@pytest.fixture
def late_damage(make_source, tmp_path):
    """A damaged record that the default's first batches do not come near to."""
    write_shards(tmp_path, [5000], suffix="")
    flip_byte(tmp_path / "part-00000", share=0.98)
    return make_source(folder=tmp_path, shuffle_buffer_size=10)


def test_a_candidate_that_reads_everything_meets_late_damage_first(late_damage):
    examined = candidate_check(late_damage, tuning_seconds=1e-9)
    assert not examined.reference.complete
    assert examined.default.outcome.status == "measured"
    dropped = examined.examine(Columns()).outcome
    assert dropped.status == "dropped"
    assert f"cannot read {late_damage.files[0]}: corrupted record at " in dropped.reason


def test_search_ends_with_the_time_or_without_damage(late_damage, tmp_path):
    files = late_damage.files
    assert damaged_file(files, "", seconds=60).file == files[0]
    assert damaged_file(files, "", seconds=0) is None
    write_shards(tmp_path / "..", [10], suffix=".sound")
    assert damaged_file([f"{tmp_path}/../part-00000.sound"], "", seconds=60) is None
    found = damaged_file([f"{tmp_path}/missing"], "", seconds=60)
    assert "missing" in found.error


def test_other_errors_are_raised_unchanged(late_damage):
    search = DamageSearch(late_damage)
    assert search.reason(tf.errors.AbortedError(None, None, "gone"), seconds=0).endswith("gone")
    assert search.reason(RuntimeError("no luck\nsecond"), seconds=60) == "RuntimeError: no luck"
    assert search.reason(RuntimeError(), seconds=60) == "RuntimeError: RuntimeError"


@pytest.mark.one_case
@every_candidate
def test_strings_come_through_unchanged(name, source_of):
    source = source_of("non-UTF-8 strings", num_epochs=1)
    features, _ = next(iter(call(tuned(source, plan(name)), source)))
    assert set(features["city"].numpy().ravel().tolist()) == {NON_UTF8}
    assert features["words"].to_list()[0] == [NON_UTF8, b"plain"]


def test_falling_back_says_which_files_are_mixed(source_of, caplog):
    source = source_of("mixed compression", num_epochs=1)
    with caplog.at_level(logging.WARNING):
        behavior(tuned(source, plan("block_reader")), source)
    assert "part-00001.gz is gzip by its name and" in caplog.text


def test_mixed_compression_rules_a_candidate_out(source_of):
    with pytest.raises(candidate_lib.NotApplicable, match="is gzip by its name"):
        BlockReader().build(source_of("mixed compression"), limits=Limits(memory_bytes=2**30))


@pytest.mark.one_case
@every_candidate
def test_endless_training_on_nothing_ends_as_the_defaults_does(name, source_of):
    source = source_of("zero examples")
    found = []

    def train():
        found.append(behavior(tuned(source, plan(name)), source))

    # In a thread, because a pipeline that seeks the next example for ever cannot be interrupted.
    thread = threading.Thread(target=train, daemon=True)
    thread.start()
    thread.join(timeout=120)
    assert found == [behavior(source.default_factory, source)] == [EMPTY_DIGEST]
